"""The settings of TLS become those of the listener, or one line that names the mistake."""

from __future__ import annotations

import pytest

from kubechronicle.http.wire import openssl
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.server.listening import tls_options
from kubechronicle.ops.settings.settings import load as load_settings


def test_groups_are_named_by_the_numbers_of_go() -> None:
    settings = load_settings({"tls-curve-preferences": "29,23"})
    assert tls_options(settings).groups == ("X25519", "P-256")
    assert tls_options(load_settings({})).groups == ()


@pytest.mark.parametrize(("given", "problem"), [("29,7", "7 is none of 23 (P-256), 24"), ("P-256", "P-256 is none of")])
def test_an_unknown_group_is_one_line(given: str, problem: str) -> None:
    with pytest.raises(OperatorError, match="--tls-curve-preferences: ") as refused:
        tls_options(load_settings({"tls-curve-preferences": given}))
    assert problem in str(refused.value)


def test_groups_that_this_openssl_cannot_choose_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openssl, "_library", lambda: None)
    with pytest.raises(OperatorError, match="--tls-curve-preferences: this Python has OpenSSL built in"):
        tls_options(load_settings({"tls-curve-preferences": "29"}))
