"""Output of the commands: text with colours, JSON, YAML, and a progress bar."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TextIO

import orjson

from kubechronicle.api.codecs import yaml_writer

COLOURS: Final[Mapping[str, str]] = {
    "revision": "33", "old": "31", "new": "32", "who": "36", "dim": "2", "strong": "1", "warning": "35",
}  # fmt: skip
# Seconds between two updates of the progress bar, and its width.
REFRESH_INTERVAL: Final = 0.1
BAR_WIDTH: Final = 28


def add_flags(parser: argparse.ArgumentParser, *, formats: tuple[str, ...] = ("text", "json", "yaml")) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("-o", "--output", choices=formats, default=formats[0], help=f"the format (default {formats[0]})")
    group.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="auto: on a terminal, unless NO_COLOR is set",
    )


class Screen:
    """The output stream of a command, in the format of its flags."""

    def __init__(self, arguments: argparse.Namespace, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stdout
        self.format: str = arguments.output
        color = getattr(arguments, "color", "auto")
        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        self.colours = color == "always" or (color == "auto" and self.stream.isatty() and not plain)

    def paint(self, text: str, colour: str) -> str:
        return f"\033[{COLOURS[colour]}m{text}\033[0m" if self.colours and text else text

    def line(self, text: str = "") -> None:
        self.stream.write(f"{text}\n")

    def note(self, text: str) -> None:
        """Print a remark about the output on stderr."""
        self.stream.flush()
        print(text, file=sys.stderr)

    def document(self, value: Any) -> None:
        """Print the whole output as JSON or YAML."""
        if self.format == "json":
            self.line(json_text(value))
        else:
            self.stream.write(yaml_text(value))

    def documents(self, values: Iterable[Any]) -> None:
        """Print values as they arrive: lines of JSON, or YAML documents."""
        for value in values:
            if self.format == "json":
                self.line(orjson.dumps(value).decode())
            else:
                self.stream.write(f"---\n{yaml_text(value)}")
            self.stream.flush()


def json_text(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def yaml_text(value: Any) -> str:
    """Return YAML as kubectl prints it: keys sorted, ambiguous strings quoted."""
    return yaml_writer.write(value)


def format_time(text: str) -> str:
    """Return a timestamp to the second, in UTC: ``2026-11-21 15:04:05Z``."""
    return f"{text[:19].replace('T', ' ')}Z" if text else ""


def ago(text: str, now: datetime) -> str:
    """Return the time since a timestamp in one or two units: ``12m ago``."""
    try:
        then = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return ""
    return f"{format_duration(max(now - then, timedelta(0)))} ago"


def format_duration(duration: timedelta) -> str:
    """Return a duration in one or two units, rounded down: ``45s``, ``12m``, ``3h5m``, ``2d4h``."""
    seconds = int(duration.total_seconds())
    for unit, size, small_unit, small_size in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= size:
            rest = seconds % size // small_size if seconds < 10 * size else 0
            return f"{seconds // size}{unit}" + (f"{rest}{small_unit}" if rest else "")
    return f"{seconds}s"


def utc_now() -> datetime:
    return datetime.now(UTC)


class Progress:
    """A progress bar on stderr, only on a terminal: ``restoring  [####      ] 12/40  deployment/web``."""

    def __init__(self, label: str, total: int = 0) -> None:
        self._label, self._total, self._done = label, total, 0
        self._updated_at = 0.0
        self._on = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._on and self._updated_at:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def step(self, detail: str = "") -> None:
        self._done += 1
        now = time.monotonic()
        if not self._on or now - self._updated_at < REFRESH_INTERVAL:
            return
        self._updated_at = now
        if self._total:
            filled = min(BAR_WIDTH, BAR_WIDTH * self._done // self._total)
            bar = f"[{'#' * filled}{' ' * (BAR_WIDTH - filled)}] {self._done}/{self._total}"
        else:
            bar = f"{self._done}"
        sys.stderr.write(f"\r\033[K{self._label}  {bar}  {detail[:60]}")
        sys.stderr.flush()


def format_cell(value: Any) -> str:
    """Return a cell of the server's tables as one line."""
    return "<none>" if value is None or value == "" else str(value).partition("\n")[0]
