"""SQLSTATEs: the LogError for an error that Postgres, or a pooler before it, has reported.

    ConnectionLost       the connection is gone; a batch that was under way has an unknown outcome
    ConnectionUnusable   the statement had no effect, and another connection may serve it; this one is dropped
    LogUnavailable       the statement had no effect, and may succeed later, on the same connection
    SetupError           the operator has to mend something; a running server waits for that

All other errors are a LogError with the message of Postgres. No error of Postgres is ever reported as a failed
expectation.
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

KINDS: Final[Mapping[str, type[LogError]]] = {
    "08": ConnectionLost,
    "57P": ConnectionLost,  # shut down, crashed, starting up, database dropped, idle too long
    "57014": LogUnavailable,  # statement timeout
    "23505": UniqueViolation,
    "25006": ReadOnlyServer,  # a standby, a demoted primary, or a managed database whose disk is full
    "25P03": ConnectionLost,  # idle in a transaction for too long: Postgres has closed the connection
    "25P04": ConnectionLost,  # the transaction took too long: as above
    "25P02": ConnectionUnusable,  # in a failed transaction, which a pooler may have left behind
    "26000": ConnectionUnusable,  # no such prepared statement: a pooler has changed the server's connection
    "42P05": ConnectionUnusable,  # the prepared statement exists already: as above
    "40003": ConnectionLost,  # it is unknown whether the statement is complete
    "40": LogUnavailable,  # deadlock, serialization failure
    "53": LogUnavailable,  # too many connections, disk full, out of memory
    "55P03": LockTimeout,
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
    "25006": "is it a standby, or does default_transaction_read_only say so?",
    "28": "check user and password in --database-url, and pg_hba.conf",
    "3D000": "create the database or correct its name in --database-url",
    "42P01": "run `kubechronicle migrate`",
    "42883": "run `kubechronicle migrate`",
    "3F000": "run `kubechronicle migrate`",
    "42501": "give the user of --database-url the right to it",
    "KC001": "give that one --workers N, or this one a --database-url of its own",
}

ROW_ERRORS: Final = ("22", "23")
"""Classes of errors whose detail quotes the row: it may be a Secret, and errors are logged."""


def error_of(sqlstate: str, text: str) -> LogError:
    """Return the error for a SQLSTATE. ``text``: the message of Postgres."""
    kind = _longest_match(KINDS, sqlstate) or LogError
    remedy = _longest_match(REMEDIES, sqlstate)
    return kind(f"Postgres: {text} ({sqlstate})" + (f"; {remedy}" if remedy else ""))


def _longest_match(table: Mapping[str, T], sqlstate: str) -> T | None:
    return next((table[sqlstate[:length]] for length in (5, 3, 2) if sqlstate[:length] in table), None)
