"""Reports of the errors that end a process, and their exit codes: for the command line and the worker processes."""

from __future__ import annotations

import logging

from kubechronicle.actors.errors import SupervisorGaveUp
from kubechronicle.eventlog.errors import LogError, LogUnavailable, SetupError
from kubechronicle.ops.errors import OperatorError, WorkerFailed, one_line, report_mistake
from kubechronicle.ops.exit_codes import FAILED, MISTAKE

log = logging.getLogger(__name__)

# Errors that an operator can fix, or has to wait for.
OPERATOR_ERRORS = (OperatorError, SetupError, LogUnavailable)
REPORTED_ERRORS = (*OPERATOR_ERRORS, SupervisorGaveUp, LogError, BaseExceptionGroup)
"""Errors to catch around a command and pass to `report_error`."""


def report_error(error: BaseException) -> int:
    """Print an operator error in one line, log a failure, and return the exit code. Reraise a bug."""
    leaves = _leaves(error)
    for leaf in leaves:
        if isinstance(leaf, OPERATOR_ERRORS) or (isinstance(leaf, LogError) and leaf.sqlstate):
            return report_mistake(leaf)
    for leaf in leaves:
        if isinstance(leaf, WorkerFailed) and leaf.status in (FAILED, MISTAKE):
            return leaf.status  # the worker has reported the error
        if isinstance(leaf, SupervisorGaveUp | LogError | WorkerFailed):
            log.critical("The server cannot go on", exc_info=error, extra={"err": one_line(leaf)})
            return FAILED
    raise error


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [error]
