"""What the commands print: text with colours, JSON, YAML, and how far they are."""

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
# Seconds between two looks of the progress bar.
BEAT: Final = 0.1
WIDTH: Final = 28


def add_flags(parser: argparse.ArgumentParser, *, formats: tuple[str, ...] = ("text", "json", "yaml")) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("-o", "--output", choices=formats, default=formats[0], help=f"by default {formats[0]}")
    group.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="auto: on a terminal, unless NO_COLOR is set",
    )


class Screen:
    """Where a command prints to."""

    def __init__(self, given: argparse.Namespace, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stdout
        self.format: str = given.output
        wanted = getattr(given, "color", "auto")
        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        self.colours = wanted == "always" or (wanted == "auto" and self.stream.isatty() and not plain)

    def paint(self, text: str, colour: str) -> str:
        return f"\033[{COLOURS[colour]}m{text}\033[0m" if self.colours and text else text

    def line(self, text: str = "") -> None:
        self.stream.write(f"{text}\n")

    def note(self, text: str) -> None:
        """Beside the answer: on stderr."""
        self.stream.flush()
        print(text, file=sys.stderr)

    def document(self, value: Any) -> None:
        """The answer, if it is wanted as JSON or YAML."""
        if self.format == "json":
            self.line(json_text(value))
        else:
            self.stream.write(yaml_text(value))

    def documents(self, values: Iterable[Any]) -> None:
        """One after the other, as they come: lines of JSON, or YAML documents."""
        for value in values:
            if self.format == "json":
                self.line(orjson.dumps(value).decode())
            else:
                self.stream.write(f"---\n{yaml_text(value)}")
            self.stream.flush()


def json_text(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def yaml_text(value: Any) -> str:
    """As kubectl prints it: names in order, and nothing that another parser might take for something else."""
    return yaml_writer.write(value)


def shown_time(text: str) -> str:
    """To the second, in UTC: 2026-11-21 15:04:05Z."""
    return f"{text[:19].replace('T', ' ')}Z" if text else ""


def ago(text: str, now: datetime) -> str:
    """How long since, in one or two units: 12m ago."""
    try:
        then = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return ""
    return f"{span(max(now - then, timedelta(0)))} ago"


def span(length: timedelta) -> str:
    """Go's way, cut short: 45s, 12m, 3h5m, 2d4h."""
    seconds = int(length.total_seconds())
    for unit, size, below in (("d", 86400, ("h", 3600)), ("h", 3600, ("m", 60)), ("m", 60, ("s", 1))):
        if seconds >= size:
            rest = seconds % size // below[1] if seconds < 10 * size else 0
            return f"{seconds // size}{unit}" + (f"{rest}{below[0]}" if rest else "")
    return f"{seconds}s"


def utc_now() -> datetime:
    return datetime.now(UTC)


class Progress:
    """How far something is, on stderr and only on a terminal: ``restoring  [####      ] 12/40  deployment/web``."""

    def __init__(self, what: str, total: int = 0) -> None:
        self._what, self._total, self._done = what, total, 0
        self._shown = 0.0
        self._on = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._on and self._shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def step(self, what: str = "", *, by: int = 1) -> None:
        self._done += by
        now = time.monotonic()
        if not self._on or now - self._shown < BEAT:
            return
        self._shown = now
        if self._total:
            filled = min(WIDTH, WIDTH * self._done // self._total)
            bar = f"[{'#' * filled}{' ' * (WIDTH - filled)}] {self._done}/{self._total}"
        else:
            bar = f"{self._done}"
        sys.stderr.write(f"\r\033[K{self._what}  {bar}  {what[:60]}")
        sys.stderr.flush()


def cell(value: Any) -> str:
    """A cell of the server's tables."""
    return "<none>" if value is None or value == "" else str(value).partition("\n")[0]
