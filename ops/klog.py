"""Structured logs on stderr in the format of klog, from the calls of Python's logging module.

    I1121 02:18:00.123456   12345 embedded_postgres.py:171] "Postgres is running" version="15.18" pid=4711

A line has severity, date and time, process, file and line, message, then the values of ``extra``. All other modules
call ``logging.getLogger(__name__)`` and do not import this one.

``--v N`` shows records of level ``logging.INFO - n`` for n up to N: klog's V(4) is level 16, V(10) is
``logging.DEBUG``. A call below the current level costs one comparison, because Logger.isEnabledFor caches it.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TextIO

from kubechronicle.api.values.printable import printable_json, printable_lines

_SEVERITY = ((logging.CRITICAL, "F"), (logging.ERROR, "E"), (logging.WARNING, "W"))
# Attributes of every record; all others come from ``extra``.
UNQUOTED = "unquoted"
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", UNQUOTED}
# Libraries that log details at INFO; shown from --v 4 on.
QUIET_LIBRARIES = ("asyncio", "hypercorn", "trio", "urllib3")
LIBRARY_VERBOSITY = 4
INDENTATION = "    "
# Libraries that log header fields, tokens included, as details: shown from WARNING on, at every --v.
SILENT_LIBRARIES = ("h2", "hpack", "httpcore", "httpx", "wsproto")


def set_up(
    *,
    verbosity: int,
    stream: TextIO | None = None,
    json_format: bool = False,
    modules: Sequence[tuple[str, str]] = (),
) -> None:
    """Make the root logger write klog lines, or JSON. Called once per process.

    ``modules``: pairs of a pattern and a verbosity, for files whose name without suffix matches (--vmodule).
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if json_format else KlogFormatter())
    _set_up_modules(modules)
    logging.raiseExceptions = False  # a closed stderr must not end the server
    logging.captureWarnings(True)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(logging.INFO - verbosity, logging.DEBUG))
    for name in QUIET_LIBRARIES:
        logging.getLogger(name).setLevel(logging.INFO if verbosity >= LIBRARY_VERBOSITY else logging.WARNING)
    for name in SILENT_LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)


def _set_up_modules(modules: Sequence[tuple[str, str]]) -> None:
    """Give loggers of matching files a level of their own, now or when their module is imported."""
    if not modules:
        return

    class Logger(logging.Logger):
        def __init__(self, name: str, level: int = logging.NOTSET) -> None:
            super().__init__(name, level)
            _set_level(self, modules)

    logging.setLoggerClass(Logger)
    for logger in list(logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            _set_level(logger, modules)


def _set_level(logger: logging.Logger, modules: Sequence[tuple[str, str]]) -> None:
    for pattern, verbosity in modules:
        if fnmatchcase(logger.name.rpartition(".")[2], pattern):
            logger.setLevel(max(logging.INFO - int(verbosity), logging.DEBUG))
            return


class JsonFormatter(logging.Formatter):
    """Formatter of one JSON object per record, with the keys of kube-apiserver's JSON format: ts (milliseconds since
    the epoch), caller, msg, v (for information) or err, and the values of the call."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "ts": round(record.created * 1000, 3),
            "caller": f"{record.module}/{record.filename}:{record.lineno}",
            "msg": record.getMessage(),
        }
        if record.levelno < logging.WARNING:
            line["v"] = max(logging.INFO - record.levelno, 0)
        line |= {key: _plain(value) for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            line["stacktrace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _plain(value: object) -> object:
    return value if isinstance(value, bool | int | float) else str(value)


class KlogFormatter(logging.Formatter):
    """Formatter of one line per record. A traceback follows on lines of its own, indented: its messages have texts of
    clients, and no line of them may look like a record. ``unquoted`` among the values of a call: the message has its
    own lines, each of which begins with a word of the server.
    """

    def format(self, record: logging.LogRecord) -> str:
        severity = next((letter for level, letter in _SEVERITY if record.levelno >= level), "I")
        moment = time.strftime("%m%d %H:%M:%S", time.localtime(record.created))
        micros = int(record.created % 1 * 1_000_000)
        extra = "".join(f" {key}={_value(value)}" for key, value in vars(record).items() if key not in _STANDARD)
        message = printable_lines(record.getMessage()) if UNQUOTED in vars(record) else _quoted(record.getMessage())
        line = (
            f"{severity}{moment}.{micros:06d} {record.process or 0:7d} {record.filename}:{record.lineno}] "
            f"{message}{extra}"
        )
        if record.exc_info:
            line += _indented(self.formatException(record.exc_info))
        if record.stack_info:
            line += _indented(record.stack_info)
        return line


def _indented(text: str) -> str:
    return "".join(f"\n{INDENTATION}{line}" for line in printable_lines(text).split("\n"))


def _quoted(text: str) -> str:
    return printable_json(json.dumps(text, ensure_ascii=False))


def _value(value: object) -> str:
    """Return a number or boolean bare and any other value quoted, as klog's structured calls do."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    return _quoted(str(value))
