"""Messages of Postgres' errors: without the contents of a rejected row."""

from __future__ import annotations

import traceback

import asyncpg
import pytest

from kubechronicle.eventlog.errors import LogError, LogUnavailable, SetupError
from kubechronicle.eventlog.postgres.connection import _translated, open_session
from kubechronicle.eventlog.postgres.session import ConnectionLost, ConnectionUnusable


@pytest.mark.parametrize(
    ("kind", "sqlstate"),
    [(asyncpg.CheckViolationError, "23514"), (asyncpg.UniqueViolationError, "23505"), (asyncpg.DataError, "22000")],
)
def test_a_rejected_row_is_not_shown(kind: type[asyncpg.PostgresError], sqlstate: str) -> None:
    error = kind("new row violates a constraint")
    error.sqlstate, error.detail = sqlstate, 'Failing row contains (1, {"data":{"password":"s3cret"}})'
    assert "s3cret" in str(error)
    with pytest.raises(LogError, match="new row violates a constraint") as raised:
        raise _translated(error) from error
    assert "s3cret" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [
        ("08006", ConnectionLost),
        ("08P01", ConnectionLost),
        ("57P01", ConnectionLost),
        ("57P02", ConnectionLost),
        ("57P03", ConnectionLost),
        ("57P05", ConnectionLost),
        ("25P03", ConnectionLost),
        ("XX000", ConnectionLost),
        ("40003", ConnectionLost),
        ("53100", LogUnavailable),
        ("53200", LogUnavailable),
        ("53300", LogUnavailable),
        ("57014", LogUnavailable),
        ("40001", LogUnavailable),
        ("40P01", LogUnavailable),
        ("55P03", LogUnavailable),
        ("55006", LogUnavailable),
        ("58030", LogUnavailable),
        ("25006", ConnectionUnusable),
        ("26000", ConnectionUnusable),
        ("42P05", ConnectionUnusable),
        ("28P01", SetupError),
        ("28000", SetupError),
        ("42501", SetupError),
    ],
)
def test_errors_that_time_a_new_connection_or_the_operator_mends(sqlstate: str, kind: type[LogError]) -> None:
    error = asyncpg.PostgresError("message")
    error.sqlstate = sqlstate
    translated = _translated(error)
    assert isinstance(translated, kind)
    assert isinstance(translated, LogUnavailable | SetupError)  # a server waits for both
    assert isinstance(translated, ConnectionLost) is (kind is ConnectionLost)


def test_other_details_are_shown() -> None:
    error = asyncpg.InvalidAuthorizationSpecificationError("no")
    error.sqlstate, error.detail = "28000", "Connection matched line 3 of pg_hba.conf"
    assert "line 3" in str(_translated(error))


@pytest.mark.parametrize(
    "url",
    [
        "postgres://u:p@SECRET:SECRET@127.0.0.1:1/db",
        "postgres://u:SECRET:SECRET/word@127.0.0.1/db",
        "postgres://u:SECRET#x@127.0.0.1:1/db",
        "postgres://u:x?SECRET@h:1/db",
        "postgres://u:SECRET@127.0.0.1:99999/db",
        "postgres://u:SECRET@[::1/db",
        "postgres://u:SECRET@127.0.0.1:1/db?sslmode=wrong",
    ],
)
async def test_a_wrong_url_is_reported_without_the_password(url: str) -> None:
    with pytest.raises(SetupError) as failed:
        async with open_session(url):
            raise AssertionError("connected")
    text = "".join(traceback.format_exception(failed.value))
    assert "SECRET" not in text
    assert "the database URL is wrong" in str(failed.value)
