"""SQLSTATEs: the LogError for an error that Postgres, or a pooler before it, has reported.

    ConnectionLost       the connection is gone; a batch that was under way has an unknown outcome
    ConnectionUnusable   the statement had no effect, and another connection may serve it; this one is dropped
    LogUnavailable       the statement had no effect, and may succeed later, on the same connection
    SetupError           the operator has to mend something; a running server waits for that

All other errors are a LogError with the message of Postgres: the statement had no effect. No error of Postgres is ever
reported as a failed expectation. The SQLSTATE alone does not say whether a single change is refused or all of them, as
a trigger may raise any one: see trials.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from kubechronicle.eventlog.errors import LogError, LogUnavailable, NotSoleAppender, SetupError
from kubechronicle.eventlog.postgres.session import (
    ConnectionLost,
    ConnectionUnusable,
    LockTimeout,
    ReadOnlyServer,
    UniqueViolation,
)

T = TypeVar("T")

STATEMENT_TIMEOUT: Final = "57014"
LOCK_TIMEOUT: Final = "55P03"
READ_ONLY: Final = "25006"

KINDS: Final[Mapping[str, type[LogError]]] = {
    "08": ConnectionLost,
    "57P": ConnectionLost,  # shut down, crashed, starting up, database dropped, idle too long
    STATEMENT_TIMEOUT: LogUnavailable,
    "23505": UniqueViolation,
    READ_ONLY: ReadOnlyServer,  # a standby, a demoted primary, or a managed database whose disk is full
    "25P03": ConnectionLost,  # idle in a transaction for too long: Postgres has closed the connection
    "25P04": ConnectionLost,  # the transaction took too long: as above
    "25P02": ConnectionUnusable,  # in a failed transaction, which a pooler may have left behind
    "26000": ConnectionUnusable,  # no such prepared statement: a pooler has changed the server's connection
    "42P05": ConnectionUnusable,  # the prepared statement exists already: as above
    "40003": ConnectionLost,  # it is unknown whether the statement is complete
    "40": LogUnavailable,  # deadlock, serialization failure
    "53": LogUnavailable,  # too many connections, disk full, out of memory
    LOCK_TIMEOUT: LockTimeout,
    "55": LogUnavailable,  # object in use
    "58": LogUnavailable,  # I/O error
    "XX000": ConnectionLost,  # internal error, of Postgres or a pooler
    "28": SetupError,  # wrong password, pg_hba
    "3D000": SetupError,  # no such database
    "42P01": SetupError,  # no such table: not migrated
    "42883": SetupError,  # no such function: not migrated
    "42501": SetupError,  # no permission
    "3F000": SetupError,  # no such schema: not migrated
    "KC001": NotSoleAppender,  # ours (0010_sole_appender.sql)
}
"""The type of error by the SQLSTATE or its first characters; the longest match counts."""

REMEDIES: Final[Mapping[str, str]] = {
    READ_ONLY: "is it a standby, or does default_transaction_read_only say so?",
    "25001": "reset default_transaction_isolation, as by ALTER ROLE … RESET default_transaction_isolation",
    "28": "check user and password in --database-url, and pg_hba.conf",
    "3D000": "create the database or correct its name in --database-url",
    "42P01": "run `kubechronicle migrate`",
    "42883": "run `kubechronicle migrate`",
    "3F000": "run `kubechronicle migrate`",
    "42501": "give the user of --database-url the right to it",
    "53100": "free space on the disk of Postgres",
    "XX001": "a page is damaged: stop Postgres, copy its files, and restore a backup or a standby",
    "XX002": "an index is damaged: REINDEX it",
    "KC001": "give that one --workers N, or this one a --database-url of its own",
}

WORDS: Final[Mapping[str, str]] = {
    "08": "no connection",
    "0A": "feature not supported",
    "20": "case not found",
    "21": "cardinality violation",
    "22": "invalid data",
    "23": "constraint violation",
    "25": "wrong state of the transaction",
    "25001": "the isolation level is not read committed",
    READ_ONLY: "read-only",
    "28": "login refused",
    "3D": "no such database",
    "3F": "no such schema",
    "40": "conflict of transactions",
    "42": "an object is missing or has changed",
    "42501": "permission denied",
    "53": "out of resources",
    "53100": "no space left",
    "53200": "out of memory",
    "53300": "too many connections",
    "54": "limit of Postgres exceeded",
    "55": "an object is in use",
    LOCK_TIMEOUT: "a lock was not available in time",
    "57": "ended by an operator",
    STATEMENT_TIMEOUT: "it took too long",
    "58": "I/O error",
    "72": "snapshot too old",
    "F0": "broken configuration file",
    "HV": "error of a foreign table",
    "KC001": "another server alone appends to it",
    "P0": "an error raised by a trigger",
    "XX": "internal error",
    "XX001": "a page is damaged",
    "XX002": "an index is damaged",
}
"""What every client may read about a SQLSTATE, by its first characters."""

ROW_ERRORS: Final = ("22", "23")
"""Classes of errors whose detail quotes the row: it may be a Secret, and errors are logged."""


def error_of(sqlstate: str, text: str) -> LogError:
    """Return the error for a SQLSTATE. ``text``: the message of Postgres."""
    kind = _longest_match(KINDS, sqlstate) or LogError
    remedy = _longest_match(REMEDIES, sqlstate)
    error = kind(f"Postgres: {text} ({sqlstate})" + (f"; {remedy}" if remedy else ""))
    error.sqlstate = sqlstate
    error.public = ", ".join(filter(None, (sqlstate, _longest_match(WORDS, sqlstate))))
    return error


def _longest_match(table: Mapping[str, T], sqlstate: str) -> T | None:
    return next((table[sqlstate[:length]] for length in (5, 3, 2) if sqlstate[:length] in table), None)
