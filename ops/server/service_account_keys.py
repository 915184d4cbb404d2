"""The keys of service account tokens: those of the settings, otherwise one made in DATA_DIR/pki/sa.key.

The key is RSA of 2048 bits, as kubeadm's: every verifier supports RS256. It is made once and kept, because without it
all tokens that it signed become invalid. With --service-account-signing-endpoint there is none: an external signer has
the keys (outside/jwt_signer.py).
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import trio
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.subresources.token_request import EXTENDED_SECONDS, MIN_SECONDS, POD_SECONDS
from kubechronicle.http.authentication import jws
from kubechronicle.http.authentication.token_issuer import ServiceAccountIssuer
from kubechronicle.ops.data_dir import locked
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.pki import write_whole
from kubechronicle.ops.settings.feature_gates import SIGNER_GATE
from kubechronicle.ops.settings.settings import Settings

log = logging.getLogger(__name__)

RSA_BITS = 2048
KEY_FILE = "sa.key"
# Bounds of --service-account-max-token-expiration, in seconds; kube-apiserver's.
LEAST_EXPIRATION, MOST_EXPIRATION = 3600, 2**32

ENDPOINT: Final = "--service-account-signing-endpoint"
_ABSTRACT_SOCKET: Final = re.compile(r"@([a-zA-Z0-9_-]+\.)*[a-zA-Z0-9_-]+")


def check(settings: Settings, features: FeatureGates) -> None:
    """Check everything that can be checked without making a key. Raise OperatorError."""
    issuers = settings.service_account_issuer
    if not issuers:
        raise OperatorError("--service-account-issuer: needs at least one issuer")
    for position, name in enumerate(issuers):
        if ":" in name and not _is_url(name):
            raise OperatorError(f"--service-account-issuer: {name!r} has a colon but is no URL")
        if name in issuers[:position]:
            raise OperatorError(f"--service-account-issuer: {name} is listed twice")
    uri = settings.service_account_jwks_uri
    if uri is not None and not uri.startswith("https://"):
        raise OperatorError(f"--service-account-jwks-uri: must begin with https://, got {uri!r}")
    longest = settings.service_account_max_token_expiration
    if longest and not LEAST_EXPIRATION <= longest <= MOST_EXPIRATION:
        raise OperatorError("--service-account-max-token-expiration: must be between 1h and 2^32 seconds, or 0s")
    endpoint = settings.service_account_signing_endpoint
    if endpoint is not None:
        if not features.enabled(SIGNER_GATE):
            raise OperatorError(f"{ENDPOINT}: requires enabling {SIGNER_GATE} feature gate")
        if settings.service_account_signing_key_file is not None or settings.service_account_key_file is not None:
            raise OperatorError(
                f"{ENDPOINT}: leave out --service-account-signing-key-file and --service-account-key-file"
            )
        if endpoint.startswith("@") and not _ABSTRACT_SOCKET.fullmatch(endpoint):
            raise OperatorError(f"{ENDPOINT}: {endpoint} is no name of an abstract socket")
    if settings.service_account_signing_key_file is not None:
        _signing_key(settings.service_account_signing_key_file)
    _further_keys(settings)


async def make_issuer(settings: Settings, directory: Path) -> ServiceAccountIssuer:
    """Return the issuer, as ``issuer_of`` does, or that of the external signer after it has given its keys."""
    endpoint = settings.service_account_signing_endpoint
    if endpoint is None:
        return await trio.to_thread.run_sync(issuer_of, settings, directory)
    from kubechronicle.ops.server.outside.jwt_signer import BadSignerAnswer, GrpcError, JwtSigner  # few servers need it

    signer = JwtSigner(endpoint)
    try:
        longest = await signer.first_answers()
    except (GrpcError, BadSignerAnswer) as error:
        raise OperatorError(f"{ENDPOINT}: the signer at {endpoint} has given no keys: {error}") from None
    if longest < MIN_SECONDS:
        raise OperatorError(f"{ENDPOINT}: the signer allows {longest} s; tokens last {MIN_SECONDS} s or longer")
    wanted = int(settings.service_account_max_token_expiration)
    if wanted > longest:
        raise OperatorError(f"--service-account-max-token-expiration: the signer allows {longest} s at most")
    most, extends = wanted or longest, settings.service_account_extend_token_expiration
    if extends and most < EXTENDED_SECONDS:
        reached = "are not extended" if most < POD_SECONDS else f"are extended to {min(longest, EXTENDED_SECONDS)} s"
        log.warning("Tokens of pods %s, because the external signer allows %s s", reached, longest)
    return replace(
        _issuer(settings, None, ()),
        max_expiration=most,
        extended=min(longest, EXTENDED_SECONDS),
        external=signer,
    )


def issuer_of(settings: Settings, directory: Path) -> ServiceAccountIssuer:
    """Return the issuer. ``directory``: of our own key, for settings without a key. Raise OperatorError."""
    file = settings.service_account_signing_key_file
    signing = _signing_key(file) if file is not None else _own_key(directory)
    return _issuer(settings, signing, tuple(jws.distinct([*_further_keys(settings), signing.verifying])))


def _issuer(
    settings: Settings, signing: jws.SigningKey | None, verifying: tuple[jws.VerifyingKey, ...]
) -> ServiceAccountIssuer:
    issuers = settings.service_account_issuer
    return ServiceAccountIssuer(
        issuers=issuers,
        signing=signing,
        verifying=verifying,
        audiences=settings.api_audiences if settings.api_audiences is not None else issuers,
        max_expiration=int(settings.service_account_max_token_expiration),
        extend_expiration=settings.service_account_extend_token_expiration,
        jwks_uri=settings.service_account_jwks_uri or "",
    )


def _signing_key(path: Path) -> jws.SigningKey:
    try:
        return jws.signing_key_of(path.read_bytes())
    except jws.KeyFileError as error:
        raise OperatorError(f"--service-account-signing-key-file: {path} cannot sign: {error}") from None
    except OSError as error:
        raise OperatorError(f"--service-account-signing-key-file: cannot read {path}: {error.strerror}") from None


def _further_keys(settings: Settings) -> list[jws.VerifyingKey]:
    keys: list[jws.VerifyingKey] = []
    for path in settings.service_account_key_file or ():
        try:
            keys += jws.verifying_keys_of(path.read_bytes())
        except jws.KeyFileError as error:
            raise OperatorError(f"--service-account-key-file: {path} holds no key: {error}") from None
        except OSError as error:
            raise OperatorError(f"--service-account-key-file: cannot read {path}: {error.strerror}") from None
    return keys


def _own_key(directory: Path) -> jws.SigningKey:
    """Return the key in the directory. Make it if missing, under a lock, so that two servers do not make two."""
    path = directory / KEY_FILE
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o755)
        with locked(directory / ".lock", wait=True):
            if not path.exists():
                key = rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS)
                pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
                write_whole(path, pem, mode=0o600)
        return jws.signing_key_of(path.read_bytes())
    except jws.KeyFileError as error:
        raise OperatorError(f"{path} cannot sign: {error}; remove it, and the server makes a new one") from None
    except OSError as error:
        raise OperatorError(f"cannot keep the key of service account tokens in {directory}: {error}") from None


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme and (parts.netloc or parts.path))
