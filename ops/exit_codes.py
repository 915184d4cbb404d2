"""Exit codes, and the conversion of an error into one: shared by the command line and the worker processes.

0  done, or stopped by a signal
1  failed; or a check found a problem, such as edited history
2  an operator can fix it; one line on stderr says how
"""

from __future__ import annotations

import logging

from kubechronicle.actors.errors import SupervisorGaveUp
from kubechronicle.eventlog.errors import LogError, LogUnavailable, SetupError
from kubechronicle.ops import terminal
from kubechronicle.ops.errors import OperatorError, WorkerFailed

log = logging.getLogger(__name__)

OK, FAILED, MISTAKE = 0, 1, 2
# Errors that an operator can fix, or has to wait for.
OPERATOR_ERRORS = (OperatorError, SetupError, LogUnavailable)
REPORTED_ERRORS = (*OPERATOR_ERRORS, SupervisorGaveUp, LogError, BaseExceptionGroup)
"""Errors to catch around a command and pass to `report_error`."""


def report_error(error: BaseException) -> int:
    """Print an operator error in one line, log a failure, and return the exit code. Reraise a bug."""
    leaves = _leaves(error)
    for leaf in leaves:
        if isinstance(leaf, OPERATOR_ERRORS):
            terminal.stderr().line(f"kubechronicle: {_one_line(leaf)}")
            return MISTAKE
    for leaf in leaves:
        if isinstance(leaf, WorkerFailed) and leaf.status in (FAILED, MISTAKE):
            return leaf.status  # the worker has reported the error
        if isinstance(leaf, SupervisorGaveUp | LogError | WorkerFailed):
            log.critical("The server cannot go on", exc_info=error, extra={"err": _one_line(leaf)})
            return FAILED
    raise error


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [error]


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
