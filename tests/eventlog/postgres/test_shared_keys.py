"""Servers on one database share their authorities and the key of tokens, encrypted with the operator's key."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trio

from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.ops import shared_keys
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.pki import Pki, serving_names
from kubechronicle.ops.server import service_account_keys, trust
from kubechronicle.ops.settings.settings import load

KEY, OTHER = bytes(range(32)), bytes(32)
LOG = UUID(int=1)
NAMES = serving_names(addresses=[])


async def start(database: str, directory: Path, key: bytes = KEY) -> list[str]:
    """Share keys as a server does at its start; return the names of those that it took."""
    pki = Pki(directory)
    settings = load({"data-dir": str(directory)}, environment={})

    async def make() -> None:
        pki.ensure(NAMES)
        await service_account_keys.make_issuer(settings, pki.directory)

    return await shared_keys.share_keys(database, key, pki.directory, make)


def trust_of(directory: Path) -> dict[str, Any]:
    settings, pki = load({"data-dir": str(directory)}, environment={}), Pki(directory)
    return trust.trust_of(settings, pki, service_account_keys.issuer_of(settings, pki.directory))


async def test_a_second_server_takes_the_keys_of_the_first(database: str, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    assert await start(database, one) == []
    assert sorted(await start(database, two)) == ["ca", "front-proxy-ca", "sa"]
    assert trust.differences(trust_of(one), trust_of(two)) == []
    assert (two / "pki" / "sa.key").stat().st_mode & 0o777 == 0o600
    assert await start(database, one) == await start(database, two) == []  # again: nothing is taken
    async with open_session(database) as session:
        stored = b"".join(bytes(row[0]) for row in await session.fetch("select sealed from kubechronicle.shared_keys"))
    assert b"PRIVATE KEY" not in stored


async def test_servers_that_start_together_have_the_same_keys(database: str, tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        for name in "abc":
            nursery.start_soon(start, database, tmp_path / name)
    first, *others = (trust_of(tmp_path / name) for name in "abc")
    assert all(trust.differences(first, other) == [] for other in others)


async def test_a_server_with_other_keys_or_another_file_is_refused(database: str, tmp_path: Path) -> None:
    await start(database, tmp_path / "one")
    with pytest.raises(OperatorError, match="encrypted with another key"):
        await start(database, tmp_path / "two", OTHER)
    assert not (tmp_path / "two" / "pki").exists()
    Pki(tmp_path / "three").ensure(NAMES)
    with pytest.raises(OperatorError, match=r"ca\.key is not the one that the servers on this database share; move"):
        await start(database, tmp_path / "three")


async def test_keys_that_are_not_made_are_not_shared(database: str, tmp_path: Path) -> None:
    async def fail() -> None:
        Pki(tmp_path).ensure(NAMES)
        raise OperatorError("no space")

    with pytest.raises(OperatorError, match="no space"):
        await shared_keys.share_keys(database, KEY, tmp_path / "pki", fail)
    async with open_session(database) as session:
        assert await session.fetch("select 1 from kubechronicle.shared_keys") == []


def test_a_ciphertext_is_of_its_name_and_log() -> None:
    value = shared_keys.sealed(KEY, "ca", LOG, {"ca.key": "x"})
    assert shared_keys.unsealed(KEY, "ca", LOG, value) == {"ca.key": "x"}
    for key, name, log_id, changed in (
        (OTHER, "ca", LOG, value),
        (KEY, "sa", LOG, value),
        (KEY, "ca", UUID(int=2), value),
        (KEY, "ca", LOG, value[:-1]),
        (KEY, "ca", LOG, b""),
    ):
        with pytest.raises(OperatorError):
            shared_keys.unsealed(key, name, log_id, changed)


@pytest.mark.parametrize("text", ["", "short", base64.b64encode(bytes(16)).decode()])
def test_a_file_without_a_key_is_refused_with_the_command_that_makes_one(tmp_path: Path, text: str) -> None:
    file = tmp_path / "key"
    file.write_text(text)
    with pytest.raises(OperatorError, match=r"32 bytes in base64; make it with: head -c 32 /dev/urandom"):
        shared_keys.encryption_key(file)
    file.write_text(base64.b64encode(KEY).decode() + "\n")
    assert shared_keys.encryption_key(file) == KEY
