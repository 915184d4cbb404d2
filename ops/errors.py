"""Errors that an operator can fix: reported in one line on stderr with exit code 2, never with a traceback."""

from __future__ import annotations

from kubechronicle.ops import terminal
from kubechronicle.ops.exit_codes import MISTAKE


class OperatorError(Exception):
    """Error with a message of one line: the problem, and how to fix it."""


class PostgresFailed(OperatorError):
    """The embedded Postgres did not start or stop; the message names its log file."""


class WorkerFailed(Exception):
    """A worker process ended before it was ready. Unless it was killed, it has reported the reason in one line."""

    def __init__(self, number: int, status: int) -> None:
        self.how = f"it did not start: {describe_status(status)}"
        super().__init__(f"worker {number} did not start: {describe_status(status)}")
        self.status = status
        """The exit status as subprocess reports it; negative: killed by that signal."""


def report_mistake(error: BaseException) -> int:
    """Print an error that an operator can fix, and return the exit code."""
    terminal.stderr().line(f"kubechronicle: {one_line(error)}")
    return MISTAKE


def one_line(error: BaseException) -> str:
    """Return the message of an error on one line."""
    return " ".join(str(error).split())


def describe_status(status: int) -> str:
    """Return a process' exit status, as subprocess reports it, in words."""
    import signal  # commands start sooner without it

    return f"exit status {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"
