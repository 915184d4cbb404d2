"""Structured logs on stderr in klog's form, at Python's own logging calls.

    I1121 02:18:00.123456   12345 embedded_postgres.py:171] "Postgres is running" version="15.18" pid=4711

Severity, date and time, process, file and line, message, then what was given as ``extra``. The rest of kubechronicle
knows nothing of this file: it calls ``logging.getLogger(__name__)``. ``--v N`` shows what was logged at
``logging.INFO - n`` for n up to N, so klog's V(4) is level 16; ``logging.DEBUG`` is V(10). A call below the
level in force costs one comparison (Logger.isEnabledFor caches it).
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import TextIO

_SEVERITY = ((logging.CRITICAL, "F"), (logging.ERROR, "E"), (logging.WARNING, "W"))
# What every record has; all else came as ``extra``.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# Libraries that tell at INFO what is a detail to an operator; they are heard from --v 4 on.
QUIET_LIBRARIES = ("asyncio", "hypercorn", "trio", "urllib3")
LIBRARY_VERBOSITY = 4
# Libraries that tell header fields, tokens among them, as details: never heard below a warning, whatever --v says.
SILENT_LIBRARIES = ("h2", "hpack", "httpcore", "httpx", "wsproto")


def set_up(*, verbosity: int, stream: TextIO | None = None) -> None:
    """Make the root logger write klog lines. Called once, by the command line."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(KlogFormatter())
    logging.raiseExceptions = False  # a closed stderr must not end the server
    logging.captureWarnings(True)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(logging.INFO - verbosity, logging.DEBUG))
    for name in QUIET_LIBRARIES:
        logging.getLogger(name).setLevel(logging.INFO if verbosity >= LIBRARY_VERBOSITY else logging.WARNING)
    for name in SILENT_LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)


class KlogFormatter(logging.Formatter):
    """One line a record, except for tracebacks, which follow it indented as Python writes them."""

    def format(self, record: logging.LogRecord) -> str:
        severity = next((letter for level, letter in _SEVERITY if record.levelno >= level), "I")
        moment = time.strftime("%m%d %H:%M:%S", time.localtime(record.created))
        micros = int(record.created % 1 * 1_000_000)
        extra = "".join(f" {key}={_value(value)}" for key, value in vars(record).items() if key not in _STANDARD)
        line = (
            f"{severity}{moment}.{micros:06d} {record.process or 0:7d} {record.filename}:{record.lineno}] "
            f"{json.dumps(record.getMessage(), ensure_ascii=False)}{extra}"
        )
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        if record.stack_info:
            line += "\n" + record.stack_info
        return line


def _value(value: object) -> str:
    """Numbers and booleans bare, all else quoted, as klog's structured calls write them."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    return json.dumps(str(value), ensure_ascii=False)
