"""Flags and file of JWT issuers: their meaning, and one line for every mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kubechronicle.http.authentication.oidc.configuration import (
    AnonymousAuthCondition,
    AnonymousAuthConfig,
    PrefixedClaimOrExpression,
)
from kubechronicle.http.authentication.oidc.web_keys import ALGORITHMS
from kubechronicle.ops import cli
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.pki import Pki, serving_names
from kubechronicle.ops.server import authentication
from kubechronicle.ops.settings import settings
from kubechronicle.ops.settings.types import SeparatePairs

OURS = "https://kubernetes.default.svc.cluster.local"
REQUIRED = {"oidc-issuer-url": "https://issuer.example.com", "oidc-client-id": "kubernetes"}
HEAD = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"}
JWT: dict[str, Any] = {
    "issuer": {"url": "https://issuer.example.com", "audiences": ["kubernetes"]},
    "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
}


def load(flags: dict[str, Any], **environment: str) -> settings.Settings:
    return settings.load(flags, environment=environment)


def jwt_settings(**flags: Any) -> Any:
    return authentication._jwt_settings(load({name.replace("_", "-"): value for name, value in flags.items()}))


def test_without_them_no_issuer_is_trusted() -> None:
    assert jwt_settings() is None


def test_the_flags() -> None:
    issuers = jwt_settings(
        **REQUIRED,
        oidc_username_claim="email",
        oidc_groups_claim="roles",
        oidc_groups_prefix="oidc:",
        oidc_signing_algs="ES256,PS512",
        oidc_required_claim=["hd=example.com,example.org", "tenant="],
    )
    (mapper,) = issuers.plan.mappers
    assert mapper.config.issuer.url == "https://issuer.example.com"
    assert mapper.config.issuer.audiences == ("kubernetes",)
    assert mapper.config.claim_mappings.username == PrefixedClaimOrExpression(claim="email", prefix="")
    assert mapper.config.claim_mappings.groups == PrefixedClaimOrExpression(claim="roles", prefix="oidc:")
    assert mapper.required == (("hd", "example.com,example.org"), ("tenant", ""))
    assert issuers.plan.algorithms == {"ES256", "PS512"}
    assert (issuers.plan.file, issuers.anonymous) == (None, None)


def test_the_flags_left_out() -> None:
    (mapper,) = (issuers := jwt_settings(**REQUIRED)).plan.mappers
    assert mapper.config.claim_mappings.username == PrefixedClaimOrExpression(
        claim="sub", prefix="https://issuer.example.com#"
    )
    assert (mapper.config.claim_mappings.groups, mapper.required, issuers.plan.algorithms) == (
        PrefixedClaimOrExpression(),
        (),
        {"RS256"},
    )


def test_required_claims_in_a_config_file(tmp_path: Path) -> None:
    expected = SeparatePairs((("hd", "a,b"), ("ok", "true")))
    config = tmp_path / "config.yaml"
    for text in ("{hd: 'a,b', ok: true}", "['hd=a,b', ok=true]"):
        config.write_text(f"oidc-required-claim: {text}\n")
        assert settings.load({}, config_file=config, environment={}).oidc_required_claim == expected


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"oidc-issuer-url": "https://x"}, "oidc-issuer-url and oidc-client-id must be specified together"),
        ({"oidc-client-id": "x"}, "must be specified together when any oidc-* flags are set"),
        ({"oidc-groups-claim": "x"}, "must be specified together"),
        ({**REQUIRED, "oidc-issuer-url": "http://x"}, "URL scheme must be https"),
        ({**REQUIRED, "oidc-issuer-url": "https://u:p@x"}, "URL must not contain a username or password"),
        ({**REQUIRED, "oidc-issuer-url": "https:///x"}, "name a host"),
        ({**REQUIRED, "oidc-issuer-url": OURS}, f"URL must not overlap with disallowed issuers: [{OURS}]"),
        ({**REQUIRED, "oidc-signing-algs": "HS256"}, 'oidc: unsupported signing alg: "HS256"'),
        ({**REQUIRED, "oidc-signing-algs": "none"}, 'oidc: unsupported signing alg: "none"'),
        ({**REQUIRED, "oidc-signing-algs": "RS256,EdDSA"}, 'oidc: unsupported signing alg: "EdDSA"'),
        ({**REQUIRED, "oidc-required-claim": ["hd"]}, "must be KEY=VALUE"),
        ({**REQUIRED, "oidc-ca-file": __file__}, "data does not contain any valid RSA or ECDSA certificates"),
        ({**REQUIRED, "oidc-ca-file": "/nowhere"}, "--oidc-ca-file: there is no file"),
        ({"authentication-config": "/nowhere"}, "--authentication-config: there is no file"),
    ],
)
def test_mistakes_in_flags(flags: dict[str, Any], why: str) -> None:
    with pytest.raises(OperatorError) as caught:
        authentication.check(load(flags))
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "authentication.yaml"


def write(file: Path, *jwt: dict[str, Any], **fields: Any) -> str:
    file.write_text(yaml.safe_dump({**HEAD, "jwt": list(jwt), **fields}))
    return str(file)


def test_the_file(file: Path) -> None:
    issuers = jwt_settings(authentication_config=write(file, JWT))
    assert [mapper.config.issuer.url for mapper in issuers.plan.mappers] == ["https://issuer.example.com"]
    assert issuers.plan.algorithms == set(ALGORITHMS)
    assert (issuers.plan.file, issuers.plan.content) == (file, file.read_bytes())
    assert issuers.plan.disallowed == (OURS,)
    assert issuers.anonymous is None


def test_the_file_configures_anonymous_requests(file: Path, tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    pki.ensure(serving_names(addresses=[], external_hostname=None))

    def admits(path: str, **more: str) -> bool:
        return authentication.authentication_plan(load({**flags, **more}), [pki.ca_file]).anonymous.admits(path)

    anonymous = {"enabled": True, "conditions": [{"path": "/livez"}]}
    flags = {"authentication-config": write(file, anonymous=anonymous)}
    assert jwt_settings(**flags).anonymous == AnonymousAuthConfig(
        enabled=True, conditions=(AnonymousAuthCondition(path="/livez"),)
    )
    with pytest.raises(OperatorError, match="--anonymous-auth flag cannot be set when anonymous field is configured"):
        authentication.check(load({**flags, "anonymous-auth": "true"}))
    assert admits("/livez")
    assert not admits("/readyz")
    write(file, anonymous={"enabled": False})
    assert not admits("/livez")
    write(file, JWT)
    assert admits("/livez")
    assert not admits("/livez", **{"anonymous-auth": "false"})


def test_flags_and_file_exclude_each_other(file: Path) -> None:
    with pytest.raises(OperatorError, match=r"authentication-config file and oidc-\* flags are mutually exclusive"):
        jwt_settings(authentication_config=write(file, JWT), **REQUIRED)
    with pytest.raises(OperatorError, match="mutually exclusive"):
        jwt_settings(authentication_config=write(file), oidc_groups_claim="groups")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"jwt": [{**JWT, "isuer": {}}]}, 'strict decoding error: unknown field "jwt[0].isuer"'),
        ({"jwt": [JWT, JWT]}, 'jwt[1].issuer.url: Duplicate value: "https://issuer.example.com"'),
        ({"jwt": [{**JWT, "issuer": {"url": OURS, "audiences": ["a"]}}]}, "must not overlap with disallowed issuers"),
        ({"jwt": [{**JWT, "userValidationRules": [{"expression": "user.x"}]}]}, "undefined field 'x'"),
        ({"apiVersion": "v1"}, 'no kind "AuthenticationConfiguration" is registered for version "v1"'),
        ({"anonymous": {"enabled": False, "conditions": [{"path": "/"}]}}, "enabled should be set to true"),
    ],
)
def test_mistakes_in_the_file(file: Path, fields: dict[str, Any], why: str) -> None:
    file.write_text(yaml.safe_dump({**HEAD, **fields}))
    with pytest.raises(OperatorError) as caught:
        jwt_settings(authentication_config=str(file))
    assert why in str(caught.value)
    assert str(caught.value).startswith("--authentication-config: ")
    assert "\n" not in str(caught.value)


def test_the_command_line(file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rules = [{"expression": "claims.hd == 'x'"}, {"expression": "nonsense.hd == 'x'"}]
    write(file, {**JWT, "claimValidationRules": rules})
    data = ["--data-dir", str(tmp_path / "data"), "--secure-port", "0"]
    assert cli.main(["serve", *data, "--authentication-config", str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "jwt[0].claimValidationRules[1].expression: Invalid value" in line
    assert "undeclared reference to 'nonsense'" in line
    assert cli.main(["serve", *data, "--oidc-required-claim", "a=b,c", "--oidc-required-claim", "d=e"]) == 2
    assert "must be specified together" in capsys.readouterr().err
