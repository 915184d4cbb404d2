"""Engines that speak Postgres' protocol without being Postgres: refused in one line."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.eventlog.errors import SetupError
from kubechronicle.eventlog.postgres.migrate import check_version, other_engine


@pytest.mark.parametrize(
    ("version", "engine"),
    [
        ("PostgreSQL 18.4 on x86_64-pc-linux-gnu, compiled by gcc", ""),
        ("PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64-pc-linux-gnu", ""),
        ("CockroachDB CCL v25.2.1 (x86_64-pc-linux-gnu, built 2025/05/28)", "CockroachDB"),
        ("PostgreSQL 15.2-YB-2025.1.0.0-b0 on x86_64-pc-linux-gnu", "YugabyteDB"),
        ("PostgreSQL 8.0.2 on i686-pc-linux-gnu, Redshift 1.0.12103", "Redshift"),
        ("", "unknown"),
    ],
)
def test_engines_by_their_version(version: str, engine: str) -> None:
    assert other_engine(version) == engine


async def test_another_engine_is_refused() -> None:
    class Session:
        async def fetch(self, statement: str) -> list[Any]:
            assert statement == "select version()"
            return [["CockroachDB CCL v25.2.1"]]

    with pytest.raises(SetupError, match=r"^the database is CockroachDB; the log needs Postgres itself"):
        await check_version(Session())  # type: ignore[arg-type]
