"""What an operator can mend: said in one line on stderr, exit code 2, never a traceback."""

from __future__ import annotations


class OperatorError(Exception):
    """The message says what is wrong and how to mend it, in one line."""


class PostgresFailed(OperatorError):
    """The embedded Postgres did not start or stop; the message names its log file."""
