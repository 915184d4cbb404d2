"""Authentication flags: mistakes are reported before anything starts, and the flags make authenticators."""

from __future__ import annotations

from pathlib import Path

import pytest
from certificates import CA

from kubechronicle.http.authentication.credentials import AuthenticatingProxy, ClientCertificates
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.server import authentication
from kubechronicle.ops.settings.settings import Settings, load

CLIENTS, PROXIES = CA("clients"), CA("proxies")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    paths = {"clients": tmp_path / "clients.crt", "proxies": tmp_path / "proxies.crt", "bad": tmp_path / "bad.crt"}
    paths["clients"].write_bytes(CLIENTS.pem)
    paths["proxies"].write_bytes(PROXIES.pem)
    paths["bad"].write_text("-----BEGIN CERTIFICATE-----\n")
    return paths


def settings(**flags: object) -> Settings:
    return load({name.replace("_", "-"): str(value) for name, value in flags.items()}, environment={})


def test_without_flags_client_certificates_and_anonymous_requests_are_accepted(files: dict[str, Path]) -> None:
    plan = authentication.authentication_plan(settings(), [files["clients"]])
    assert [type(each) for each in plan.authenticators] == [ClientCertificates]
    assert plan.anonymous.admits("/healthz")
    assert plan.trust.data({}) == {"client-ca-file": CLIENTS.pem.decode()}
    assert plan.files == (files["clients"],)


def test_a_proxy_has_its_own_authorities(files: dict[str, Path]) -> None:
    flags = settings(
        requestheader_client_ca_file=files["proxies"],
        requestheader_allowed_names="front,second",
        requestheader_username_headers="X-Remote-User, X-Forwarded-User",
        requestheader_uid_headers="X-Remote-Uid",
        requestheader_group_headers="X-Remote-Group",
        requestheader_extra_headers_prefix="X-Remote-Extra-",
    )
    authentication.check(flags)
    plan = authentication.authentication_plan(flags, [files["clients"]])
    assert [type(each) for each in plan.authenticators] == [AuthenticatingProxy, ClientCertificates]
    assert plan.proxy_headers.username == ("x-remote-user", "x-forwarded-user")
    assert plan.files == (files["clients"], files["proxies"])
    assert plan.trust.data({}) == {
        "client-ca-file": CLIENTS.pem.decode(),
        "requestheader-client-ca-file": PROXIES.pem.decode(),
        "requestheader-allowed-names": '["front","second"]',
        "requestheader-username-headers": '["X-Remote-User","X-Forwarded-User"]',
        "requestheader-uid-headers": '["X-Remote-Uid"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }


@pytest.mark.parametrize(("flag", "admits"), [("true", True), ("false", False)])
def test_anonymous_auth(files: dict[str, Path], flag: str, admits: bool) -> None:
    plan = authentication.authentication_plan(settings(anonymous_auth=flag), [files["clients"]])
    assert plan.anonymous.admits("/healthz") is admits


@pytest.mark.parametrize(("modes", "admits"), [("AlwaysAllow", False), ("RBAC,AlwaysAllow", False), ("RBAC", True)])
def test_always_allow_excludes_anonymous_requests(files: dict[str, Path], modes: str, admits: bool) -> None:
    plan = authentication.authentication_plan(settings(authorization_mode=modes), [files["clients"]])
    assert plan.anonymous.admits("/api/v1/secrets") is admits


@pytest.mark.parametrize("flag", ["client_ca_file", "requestheader_client_ca_file", "root_ca_file"])
def test_files_without_certificates_are_reported(files: dict[str, Path], flag: str) -> None:
    with pytest.raises(OperatorError, match=f"--{flag.replace('_', '-')}: .*bad.crt holds no certificates"):
        authentication.check(settings(**{flag: files["bad"]}))
    with pytest.raises(OperatorError, match="cannot use"):
        authentication.authentication_plan(settings(), [files["bad"]])


def test_uids_need_the_standard_header_field() -> None:
    with pytest.raises(OperatorError, match="--requestheader-uid-headers: X-Remote-Uid must be among them"):
        authentication.check(settings(requestheader_uid_headers="X-Uid"))
    authentication.check(settings(requestheader_uid_headers="X-Uid,x-remote-uid"))


def test_a_gate_refuses_proxies_that_name_a_uid(files: dict[str, Path]) -> None:
    off = settings(feature_gates="RemoteRequestHeaderUID=false", requestheader_uid_headers="X-Remote-Uid")
    with pytest.raises(OperatorError, match='requires the "RemoteRequestHeaderUID" feature to be enabled'):
        authentication.proxy_headers(off)
    off = settings(feature_gates="RemoteRequestHeaderUID=false")
    plan = authentication.authentication_plan(off, [files["clients"]], files["proxies"])
    assert plan.proxy_headers is not None
    assert plan.proxy_headers.uid == ()
    assert "requestheader-uid-headers" not in plan.trust.proxy_lists
