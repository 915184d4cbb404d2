"""The address that a server advertises to the cluster."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from kubechronicle.ops import addresses


@pytest.mark.parametrize(
    ("bound", "routes", "advertised"),
    [
        ("10.1.2.3", {4: "10.9.9.9"}, "10.1.2.3"),
        ("127.0.0.1", {4: "10.9.9.9"}, "10.9.9.9"),
        ("0.0.0.0", {4: "10.9.9.9"}, "10.9.9.9"),
        ("::1", {4: "10.9.9.9", 6: "fd00::9"}, "fd00::9"),
        ("127.0.0.1", {6: "fd00::9"}, "fd00::9"),
        ("127.0.0.1", {4: "169.254.1.1", 6: "fe80::1"}, "127.0.0.1"),
        ("127.0.0.5", {}, "127.0.0.5"),
        ("::", {}, "::1"),
    ],
)
def test_advertised_address(
    monkeypatch: pytest.MonkeyPatch, bound: str, routes: dict[int, str], advertised: str
) -> None:
    found = {version: ip_address(text) for version, text in routes.items()}
    monkeypatch.setattr(addresses, "_address_of_default_route", found.get)
    assert addresses._advertised(ip_address(bound)) == ip_address(advertised)
