"""The keys of service account tokens: those of the settings, otherwise one made in DATA_DIR/pki/sa.key.

The key is RSA of 2048 bits, as kubeadm's: every verifier supports RS256. It is made once and kept, because without it
all tokens that it signed become invalid.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kubechronicle.http.authentication import jws
from kubechronicle.http.authentication.service_accounts import ServiceAccountIssuer
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.locks import locked
from kubechronicle.ops.pki import write_whole
from kubechronicle.ops.settings.settings import Settings

RSA_BITS = 2048
KEY_FILE = "sa.key"
# Bounds of --service-account-max-token-expiration, in seconds; kube-apiserver's.
LEAST_EXPIRATION, MOST_EXPIRATION = 3600, 2**32


def check(settings: Settings) -> None:
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
    if settings.service_account_signing_key_file is not None:
        _signing_key(settings.service_account_signing_key_file)
    _further_keys(settings)


def issuer_of(settings: Settings, directory: Path) -> ServiceAccountIssuer:
    """Return the issuer. ``directory``: of our own key, for settings without a key. Raise OperatorError."""
    file = settings.service_account_signing_key_file
    signing = _signing_key(file) if file is not None else _own_key(directory)
    issuers = settings.service_account_issuer
    return ServiceAccountIssuer(
        issuers=issuers,
        signing=signing,
        verifying=tuple(jws.distinct([*_further_keys(settings), signing.verifying])),
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
