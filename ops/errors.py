"""What an operator can mend: said in one line on stderr, exit code 2, never a traceback."""

from __future__ import annotations

import signal


class OperatorError(Exception):
    """The message says what is wrong and how to mend it, in one line."""


class PostgresFailed(OperatorError):
    """The embedded Postgres did not start or stop; the message names its log file."""


class WorkerFailed(Exception):
    """One of several processes ended before it was ready; ``status`` as subprocess tells it. Unless it was killed, it
    has said why in one line already."""

    def __init__(self, number: int, status: int) -> None:
        super().__init__(f"worker {number} did not start: {how_it_ended(status)}")
        self.status = status


def how_it_ended(status: int) -> str:
    """A process' status, as subprocess tells it, in words."""
    return f"exit status {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"
