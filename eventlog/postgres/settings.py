"""The settings of Postgres that the log's SQL rests on. An administrator may set others for the role or the database.

    directly, and through a pooler in session mode    each is set (PINNED) when a connection is opened
    through a pooler in transaction mode              none would stay: those that statements there rest on (REQUIRED)
                                                      are compared on each new connection, and a wrong one is refused
                                                      in one line that names the command to mend it

Settings that only a superuser may set (session_replication_role) are compared on direct connections, too. Settings that
an administrator has a right to are left alone: default_transaction_read_only, default_tablespace, work_mem, …
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from kubechronicle.eventlog.errors import LogError, SetupError
from kubechronicle.eventlog.postgres.session import ConnectionUnusable, PostgresSession

STATEMENT_SECONDS: Final = 30
"""A statement ends after so long: an append may wait for a transaction stalled elsewhere, but not for ever."""

PINNED: Final[Mapping[str, str]] = {
    "standard_conforming_strings": "on",
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    "client_encoding": "UTF8",
    "search_path": "pg_catalog, pg_temp",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "quote_all_identifiers": "off",
    "array_nulls": "on",
    "transform_null_equals": "off",
    "backslash_quote": "safe_encoding",
    "xmlbinary": "base64",
    "check_function_bodies": "on",
    "row_security": "on",
    "exit_on_error": "off",
    "client_min_messages": "notice",
    "statement_timeout": f"{STATEMENT_SECONDS}s",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    # Plans are generic and made once, since planning for dozens of partitions takes milliseconds; and without
    # sequential scans, since a plan made for an empty partition would scan it.
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_indexscan": "on",
    "enable_indexonlyscan": "on",
    "enable_bitmapscan": "on",
    "enable_nestloop": "on",
    "enable_sort": "on",
    "enable_partition_pruning": "on",
    "constraint_exclusion": "partition",
    # Postgres must not hold the head row for a client that is long gone.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "20s",
}

_FROM_17: Final = frozenset({"transaction_timeout"})

# As one script: pg_settings, which knows what this version has, takes milliseconds. An answer means durable, so
# synchronous_commit = off is overruled; its other values are stronger.
PIN: Final = (
    "".join(f"set {name} = {value if ',' in value else repr(value)};\n" for name, value in PINNED.items())
    + "".join(
        f"select set_config('{name}', '0', false) where current_setting('server_version_num')::int >= 170000;\n"
        for name in sorted(_FROM_17)
    )
    + """select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off';
set plpgsql.extra_errors = 'none'; set plpgsql.extra_warnings = 'none'
"""
)
# Ends a statement whose client has gone; not supported on every platform.
CHECK_CLIENT: Final = "set client_connection_check_interval = '2s'"

_REQUIRED_ALWAYS: Final[Mapping[str, str]] = {"session_replication_role": "origin"}
_REQUIRED_POOLED: Final[Mapping[str, str]] = {
    **_REQUIRED_ALWAYS,
    **{
        name: PINNED[name]
        for name in (
            "standard_conforming_strings",
            "default_transaction_isolation",
            "array_nulls",
            "transform_null_equals",
            "exit_on_error",
        )
    },
}

_FIRST: Final = (
    "(select s.name from unnest(current_schemas(true)) s (name) where s.name not like 'pg~_temp~_%' escape '~' limit 1)"
)


def current(*, pooled: bool) -> str:
    """Return the statement for the present values: one row, in the order of ``required``, then the first schema."""
    values = [f"current_setting('{name}')" for name in required(pooled=pooled)]
    return f"select {', '.join(values)}, {_FIRST}"


# $1 name. Why a setting has its value.
SOURCE: Final = """
select source, current_user::text as role, current_database()::text as database from pg_settings where name = $1
"""
_FIRST_SCHEMA: Final = "pg_catalog"


def required(*, pooled: bool) -> Mapping[str, str]:
    """Return the values that settings need to have on a connection, by name."""
    return _REQUIRED_POOLED if pooled else _REQUIRED_ALWAYS


def wrong_setting(row: Sequence[str], *, pooled: bool) -> tuple[str, str, str] | None:
    """Return a setting with which the log's SQL is wrong: its name, its value, and the needed one. ``row``: of
    ``current``."""
    wanted = {**required(pooled=pooled), "search_path": _FIRST_SCHEMA}
    return next(
        ((name, value, needed) for (name, needed), value in zip(wanted.items(), row, strict=True) if value != needed),
        None,
    )


def refusal(name: str, value: str, needed: str, source: Mapping[str, str], *, pooled: bool) -> SetupError:
    """Return the error about a wrong setting, with the command that mends it. ``source``: a row of SOURCE."""
    why = ", and a pooler in transaction mode keeps no setting of the server" if pooled else ""
    role, database = (f'"{source[key]}"' for key in ("role", "database"))
    mend = {
        "database": f"ALTER DATABASE {database} RESET {name}",
        "user": f"ALTER ROLE {role} RESET {name}",
        "database user": f"ALTER ROLE {role} IN DATABASE {database} RESET {name}",
        "global": f"ALTER ROLE ALL RESET {name}",
    }.get(source["source"], f"ALTER ROLE {role} SET {name} = '{needed}'")
    return SetupError(f"Postgres has {name} = '{value}', but the log needs '{needed}'{why}: run {mend}")


# -- poolers -----------------------------------------------------------------------------------------------------------
#
# Connection poolers between the server and Postgres (PgBouncer and the like).
#
# A pooler in session mode is like Postgres itself. One in transaction mode gives each transaction any connection to
# Postgres, so nothing may outlast a transaction: no prepared statement, no setting, no LISTEN. Reads and appends get
# along with that: each is one statement, and the appending functions bring their settings. Migrations, retention and
# LISTEN do not. So such a server has two addresses, that of the pooler and the direct one of the database.
#
# A pooler is recognised by the process id that it reports, which is not that of the process in Postgres. In transaction
# mode, a second client gets the connection to Postgres that the first one has just used.


ATTEMPTS = 3  # other clients of the pooler may use the connection in between
_PROCESS = "select pg_backend_pid()"
REFUSAL = (
    "--database-url leads to a connection pooler in transaction mode: give the address of the database itself too, by "
    "--database-direct-url, or use the pooler in session mode"
)


async def refuse_transaction_mode(session: PostgresSession) -> None:
    """SetupError: a pooler in transaction mode is between. LogUnavailable."""
    try:
        if await _is_pooled_by_transaction(session):
            raise SetupError(REFUSAL)
    except ConnectionUnusable:  # a prepared statement was lost
        raise SetupError(REFUSAL) from None


async def _is_pooled_by_transaction(session: PostgresSession) -> bool:
    process = (await session.fetch(_PROCESS))[0][0]
    if process == session.backend_pid:
        return False
    for _ in range(ATTEMPTS):
        second = await session.sibling()
        try:
            await second.execute("begin")
            if (await second.fetch(_PROCESS))[0][0] == process or (await session.fetch(_PROCESS))[0][0] != process:
                return True
        finally:
            with suppress(LogError):
                await second.execute("rollback")
            await second.close()
    return False
