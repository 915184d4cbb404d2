"""Output of the commands: text with colours, JSON, YAML, and a progress bar."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kubechronicle.api.values.printable import printable
from kubechronicle.ops import terminal
from kubechronicle.ops.terminal import Part

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
    """The output of a command, in the format of its flags."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.out = terminal.stdout(color=getattr(arguments, "color", "auto"))
        self.format: str = arguments.output

    def line(self, *parts: Part) -> None:
        self.out.line(*parts)

    def text(self, text: str) -> None:
        """Print a whole text of several lines, such as an HTML file."""
        self.out.lines(text)

    def note(self, text: str) -> None:
        """Print a remark about the output on stderr."""
        self.out.flush()
        terminal.stderr().line(text)

    def document(self, value: Any) -> None:
        """Print the whole output as JSON or YAML."""
        if self.format == "json":
            self.out.json(value, indented=True)
        else:
            self.out.yaml(value)

    def documents(self, values: Iterable[Any]) -> None:
        """Print values as they arrive: lines of JSON, or YAML documents."""
        for value in values:
            if self.format == "json":
                self.out.json(value)
            else:
                self.out.document(value)
            self.out.flush()

    def items(self, api_version: str, kind: str, values: Iterable[Any]) -> None:
        """Print a list as ``document`` prints it, item by item as they arrive."""
        if self.format == "json":
            self._json_items(api_version, kind, values)
        else:
            self._yaml_items(api_version, kind, values)

    def _json_items(self, api_version: str, kind: str, values: Iterable[Any]) -> None:
        self.line("{")
        self.line(f'  "apiVersion": "{api_version}",')
        self.line(f'  "kind": "{kind}",')
        pending, count = '  "items": [', 0
        for count, value in enumerate(values, 1):
            self.line(pending, "," if count > 1 else "")
            *lines, pending = (f"    {each}" for each in terminal.json_text(value).split("\n"))
            for line in lines:
                self.line(line)
        if count:
            self.line(pending)
            self.line("  ]")
        else:
            self.line(pending, "]")
        self.line("}")

    def _yaml_items(self, api_version: str, kind: str, values: Iterable[Any]) -> None:
        empty = True
        self.line(f"apiVersion: {api_version}")
        for value in values:
            if empty:
                self.line("items:")
            empty = False
            self.out.yaml([value])
        if empty:
            self.line("items: []")
        self.line(f"kind: {kind}")


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
        self._out = terminal.stderr()
        self._on = self._out.is_terminal

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._on and self._updated_at:
            self._out.overwrite("")

    def step(self, detail: str = "") -> None:
        self.reach(self._done + 1, detail)

    def reach(self, done: int, detail: str = "") -> None:
        """Show that so many of the steps are done."""
        self._done = done
        now = time.monotonic()
        if not self._on or now - self._updated_at < REFRESH_INTERVAL:
            return
        self._updated_at = now
        if self._total:
            filled = min(BAR_WIDTH, BAR_WIDTH * self._done // self._total)
            bar = f"[{'#' * filled}{' ' * (BAR_WIDTH - filled)}] {self._done}/{self._total}"
        else:
            bar = f"{self._done}"
        self._out.overwrite(f"{self._label}  {bar}  {printable(detail)[:60]}")


def format_cell(value: Any) -> str:
    """Return a cell of the server's tables as one printable line."""
    return "<none>" if value is None or value == "" else printable(str(value).partition("\n")[0])
