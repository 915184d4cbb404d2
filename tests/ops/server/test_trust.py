"""Servers on one database that reject each other's credentials say so at their start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kubechronicle.ops.pki import Pki, serving_names
from kubechronicle.ops.server import service_account_keys, trust
from kubechronicle.ops.settings.settings import load


def server(directory: Path, **changes: str) -> dict[str, Any]:
    """Return the trust of a server with a data directory of its own."""
    flags = {"data-dir": str(directory)} | {name.replace("_", "-"): value for name, value in changes.items()}
    settings = load(flags, environment={})
    pki = Pki(directory)
    pki.ensure(serving_names(addresses=[], external_hostname=None))
    return trust.trust_of(settings, pki, service_account_keys.issuer_of(settings, pki.directory))


def test_a_server_agrees_with_itself(tmp_path: Path) -> None:
    assert trust.differences(server(tmp_path), server(tmp_path)) == []


def test_servers_with_keys_of_their_own_differ(tmp_path: Path) -> None:
    one, two = server(tmp_path / "one"), server(tmp_path / "two")
    assert trust.differences(one, two) == [trust.TOKENS, trust.CLIENTS]
    assert trust.differences(two, one) == [trust.TOKENS, trust.CLIENTS]


def test_a_shared_key_and_issuer_are_enough_for_tokens(tmp_path: Path) -> None:
    server(tmp_path / "one")
    key = tmp_path / "one" / "pki" / "sa.key"
    one = server(tmp_path / "one")
    two = server(tmp_path / "two", service_account_signing_key_file=str(key))
    assert trust.differences(one, two) == [trust.CLIENTS]
    three = server(tmp_path / "three", service_account_signing_key_file=str(key), service_account_issuer="other")
    assert trust.differences(one, three) == [trust.ISSUERS, trust.CLIENTS]
