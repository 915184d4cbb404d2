"""Who is let in, as the flags say it: mistakes told before anything starts, and what they come to."""

from __future__ import annotations

from pathlib import Path

import pytest
from certificates import CA

from kubechronicle.http.authentication.request_header import AuthenticatingProxy
from kubechronicle.http.authentication.x509 import ClientCertificates
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.server import authentication
from kubechronicle.ops.settings.settings import Settings, load

CLIENTS, PROXIES = CA("clients"), CA("proxies")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    found = {"clients": tmp_path / "clients.crt", "proxies": tmp_path / "proxies.crt", "bad": tmp_path / "bad.crt"}
    found["clients"].write_bytes(CLIENTS.pem)
    found["proxies"].write_bytes(PROXIES.pem)
    found["bad"].write_text("-----BEGIN CERTIFICATE-----\n")
    return found


def settings(**flags: object) -> Settings:
    return load({name.replace("_", "-"): str(value) for name, value in flags.items()}, environment={})


def test_without_flags_client_certificates_are_believed_and_nobody_may_come(files: dict[str, Path]) -> None:
    found = authentication.authentication_plan(settings(), [files["clients"]])
    assert [type(each) for each in found.authenticators] == [ClientCertificates]
    assert found.anonymous.admits("/healthz")
    assert found.trust.data({}) == {"client-ca-file": CLIENTS.pem.decode()}
    assert found.files == (files["clients"],)


def test_a_proxy_has_authorities_of_its_own(files: dict[str, Path]) -> None:
    given = settings(
        requestheader_client_ca_file=files["proxies"],
        requestheader_allowed_names="front,second",
        requestheader_username_headers="X-Remote-User, X-Forwarded-User",
        requestheader_uid_headers="X-Remote-Uid",
        requestheader_group_headers="X-Remote-Group",
        requestheader_extra_headers_prefix="X-Remote-Extra-",
    )
    authentication.check(given)
    found = authentication.authentication_plan(given, [files["clients"]])
    assert [type(each) for each in found.authenticators] == [AuthenticatingProxy, ClientCertificates]
    assert found.proxy_headers.username == ("x-remote-user", "x-forwarded-user")
    assert found.files == (files["clients"], files["proxies"])
    assert found.trust.data({}) == {
        "client-ca-file": CLIENTS.pem.decode(),
        "requestheader-client-ca-file": PROXIES.pem.decode(),
        "requestheader-allowed-names": '["front","second"]',
        "requestheader-username-headers": '["X-Remote-User","X-Forwarded-User"]',
        "requestheader-uid-headers": '["X-Remote-Uid"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }


@pytest.mark.parametrize(("flag", "admits"), [("true", True), ("false", False)])
def test_nobody_in_particular(files: dict[str, Path], flag: str, admits: bool) -> None:
    found = authentication.authentication_plan(settings(anonymous_auth=flag), [files["clients"]])
    assert found.anonymous.admits("/healthz") is admits


@pytest.mark.parametrize("flag", ["client_ca_file", "requestheader_client_ca_file", "root_ca_file"])
def test_files_without_certificates_are_told(files: dict[str, Path], flag: str) -> None:
    with pytest.raises(OperatorError, match=f"--{flag.replace('_', '-')}: .*bad.crt holds no certificates"):
        authentication.check(settings(**{flag: files["bad"]}))
    with pytest.raises(OperatorError, match="cannot use"):
        authentication.authentication_plan(settings(), [files["bad"]])


def test_uids_come_in_the_field_everybody_knows() -> None:
    with pytest.raises(OperatorError, match="--requestheader-uid-headers: X-Remote-Uid must be among them"):
        authentication.check(settings(requestheader_uid_headers="X-Uid"))
    authentication.check(settings(requestheader_uid_headers="X-Uid,x-remote-uid"))
