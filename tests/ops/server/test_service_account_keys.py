"""The keys of service account tokens: from settings or made once; unusable ones are reported in one line."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from kubechronicle.api.features.gates import FeatureGates, effective_version
from kubechronicle.ops.commands import make_parser
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.server import service_account_keys
from kubechronicle.ops.settings.settings import Settings, load

DEFAULT = "https://kubernetes.default.svc.cluster.local"


def settings(**flags: str) -> Settings:
    return load({name.replace("_", "-"): value for name, value in flags.items()}, environment={})


def key_files(folder: Path, name: str) -> tuple[Path, Path]:
    """A private key's file, and its public key's."""
    key = ec.generate_private_key(ec.SECP384R1())
    private, public = folder / f"{name}.key", folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


def test_a_key_is_made_once_and_kept_private(tmp_path: Path) -> None:
    issuer = service_account_keys.issuer_of(settings(), tmp_path / "pki")
    file = tmp_path / "pki" / "sa.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert issuer.signing.verifying.algorithm == "RS256"
    assert (issuer.issuers, issuer.audiences, issuer.verifying) == ((DEFAULT,), (DEFAULT,), (issuer.signing.verifying,))
    assert (issuer.max_expiration, issuer.extend_expiration) == (0, True)
    again = service_account_keys.issuer_of(settings(), tmp_path / "pki")
    assert again.signing.verifying.key_id == issuer.signing.verifying.key_id


def test_a_damaged_key_is_reported(tmp_path: Path) -> None:
    (tmp_path / "sa.key").write_text("nothing")
    with pytest.raises(OperatorError, match="remove it, and the server makes a new one"):
        service_account_keys.issuer_of(settings(), tmp_path)


def test_everything_can_be_named(tmp_path: Path) -> None:
    signing, public = key_files(tmp_path, "new")
    old_private, old = key_files(tmp_path, "old")
    flags = settings(
        service_account_issuer="https://new,https://old",
        service_account_signing_key_file=str(signing),
        service_account_key_file=f"{old},{public},{old_private}",
        api_audiences="api,vault",
        service_account_max_token_expiration="2h",
        service_account_extend_token_expiration="false",
        service_account_jwks_uri="https://keys",
    )
    service_account_keys.check(flags, FeatureGates())
    issuer = service_account_keys.issuer_of(flags, tmp_path / "pki")
    assert not (tmp_path / "pki").exists()
    assert (issuer.issuers, issuer.audiences) == (("https://new", "https://old"), ("api", "vault"))
    assert [key.algorithm for key in issuer.verifying] == ["ES384", "ES384"]
    assert issuer.verifying[1].key_id == issuer.signing.verifying.key_id
    assert (issuer.max_expiration, issuer.extend_expiration, issuer.jwks_uri) == (7200, False, "https://keys")


def test_an_external_signer_needs_its_gate() -> None:
    flags = settings(service_account_signing_endpoint="@signer")
    service_account_keys.check(flags, FeatureGates())
    off = FeatureGates(effective_version(["1.35"], []), {"ExternalServiceAccountTokenSigner": False})
    with pytest.raises(OperatorError, match="requires enabling ExternalServiceAccountTokenSigner feature gate"):
        service_account_keys.check(flags, off)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"service_account_issuer": ","}, "needs at least one"),
        ({"service_account_issuer": "https://a,https://a"}, "listed twice"),
        ({"service_account_issuer": ":"}, "no URL"),
        ({"service_account_jwks_uri": "http://a"}, "must begin with https"),
        ({"service_account_max_token_expiration": "59m"}, "between 1h"),
        ({"service_account_max_token_expiration": "2000000h"}, "between 1h"),
        ({"service_account_signing_key_file": "PUBLIC"}, "holds no private key"),
        ({"service_account_signing_key_file": "EMPTY"}, "holds no private key"),
        ({"service_account_key_file": "EMPTY"}, "holds no key"),
        ({"service_account_key_file": "PUBLIC,NONE"}, "there is no file"),
        ({"service_account_extend_token_expiration": "perhaps"}, "must be true or false"),
        ({"enable_bootstrap_token_auth": "2"}, "must be true or false"),
    ],
)
def test_mistakes_are_reported(tmp_path: Path, flags: dict[str, str], why: str) -> None:
    _, public = key_files(tmp_path, "a")
    empty = tmp_path / "empty"
    empty.touch()
    places = {"PUBLIC": str(public), "EMPTY": str(empty), "NONE": str(tmp_path / "none")}
    for name, path in places.items():
        flags = {flag: value.replace(name, path) for flag, value in flags.items()}
    (flag,) = flags
    with pytest.raises(OperatorError, match=why) as raised:
        service_account_keys.check(settings(**flags), FeatureGates())
    assert str(raised.value).startswith(f"--{flag.replace('_', '-')}: ")


def test_switches_need_no_value_and_lists_grow() -> None:
    parser = make_parser()
    arguments = vars(
        parser.parse_args(["serve", "--enable-bootstrap-token-auth", "--service-account-issuer", "https://a"])
    )
    assert arguments["enable-bootstrap-token-auth"] == "true"
    line = ["serve", "--enable-bootstrap-token-auth=false", "--api-audiences", "a", "--api-audiences", "b"]
    arguments = vars(parser.parse_args(line))
    assert (arguments["enable-bootstrap-token-auth"], arguments["api-audiences"]) == ("false", ["a", "b"])
    assert bool(settings(enable_bootstrap_token_auth="T").enable_bootstrap_token_auth) is True
    assert bool(settings().enable_bootstrap_token_auth) is False
