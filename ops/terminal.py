"""Output of every command: the one place that writes to standard output and standard error.

    out = terminal.stdout()
    out.line(Painted("revision 5", "yellow"), "  by ", user)

Others choose most of the texts: names, users, values, a server's messages. So a line is made of parts, and each part is
escaped here: a line stays one line, and only the program's own colours act on the terminal. JSON and YAML keep their
values, with the escapes of their syntax. The server's log has the same rule (klog.py).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, TextIO, TypeAlias

from kubechronicle.api.values.printable import printable, printable_json, printable_lines

COLOURS: Final[Mapping[str, str]] = {
    "revision": "33", "old": "31", "new": "32", "who": "36", "dim": "2", "strong": "1", "warning": "35",
}  # fmt: skip
ERASE_LINE: Final = "\r\033[K"
CLEAR: Final = "\x1b[H\x1b[J"


class Painted(NamedTuple):
    """A part of a line in a colour of COLOURS."""

    text: str
    colour: str


Part: TypeAlias = str | Painted


class Output:
    """A stream of text. ``colours``: whether painted parts get their colours."""

    def __init__(self, stream: TextIO, *, colours: bool = False) -> None:
        self._stream = stream
        self.colours = colours

    @property
    def is_terminal(self) -> bool:
        return self._stream.isatty()

    def line(self, *parts: Part) -> None:
        self._stream.write(f"{self._shown(parts)}\n")

    def lines(self, text: str) -> None:
        """Print a text of several lines, which must end with a line break."""
        self._stream.write(printable_lines(text))

    def json(self, value: Any, *, indented: bool = False, zulu: bool = False) -> None:
        self._stream.write(f"{json_text(value, indented=indented, zulu=zulu)}\n")

    def yaml(self, value: Any) -> None:
        self._stream.write(yaml_text(value))

    def document(self, value: Any) -> None:
        """Print one YAML document of several."""
        self._stream.write(f"---\n{yaml_text(value)}")

    def question(self, text: str) -> None:
        """Print a question and leave the cursor behind it."""
        self._stream.write(f"{printable(text)} ")
        self.flush()

    def overwrite(self, text: str) -> None:
        """Replace the line on a terminal, without a line break."""
        self._stream.write(f"{ERASE_LINE}{printable(text)}")
        self.flush()

    def screen(self, lines: Sequence[str]) -> None:
        """Replace all that a terminal shows by these lines."""
        self._stream.write(CLEAR + "\n".join(printable(line) for line in lines))
        self.flush()

    def bytes(self, data: bytes) -> None:
        """Write a document for programs, which another module has encoded."""
        self._stream.flush()
        self._stream.buffer.write(data)
        self._stream.buffer.flush()

    def flush(self) -> None:
        self._stream.flush()

    def discard(self) -> None:
        """Send all further output nowhere: the reader of the pipe has ended, as `head` does."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def _shown(self, parts: tuple[Part, ...]) -> str:
        return "".join(printable(each) if isinstance(each, str) else self._painted(each) for each in parts)

    def _painted(self, part: Painted) -> str:
        text = printable(part.text)
        return f"\033[{COLOURS[part.colour]}m{text}\033[0m" if self.colours and text else text


def stdout(*, color: str = "never") -> Output:
    """Return standard output. ``color``: always, never, or auto for colours on a terminal without NO_COLOR."""
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return Output(sys.stdout, colours=color == "always" or (color == "auto" and sys.stdout.isatty() and not plain))


def stderr() -> Output:
    return Output(sys.stderr)


def flush() -> None:
    """Write all output that is pending. OSError."""
    sys.stdout.flush()
    sys.stderr.flush()


def width() -> int:
    """Return the columns of the terminal, or of COLUMNS; 80 without either. As shutil.get_terminal_size."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):  # no standard output, or none that is a terminal
        return 80


def show_traceback(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
    """Print the traceback of a bug: sys.excepthook. Its messages may be texts of others."""
    import traceback

    for text in traceback.format_exception(kind, error, where):
        stderr().lines(text)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is one."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def json_text(value: Any, *, indented: bool = True, zulu: bool = False) -> str:
    """Return JSON, with unprintable characters as escapes. ``zulu``: times in UTC end with Z."""
    import orjson  # most commands print text, and start sooner without it

    options = (orjson.OPT_INDENT_2 if indented else 0) | (orjson.OPT_UTC_Z if zulu else 0)
    return printable_json(orjson.dumps(value, option=options).decode())


def yaml_text(value: Any) -> str:
    """Return YAML as kubectl prints it: keys sorted, ambiguous strings quoted, unprintable characters as escapes."""
    from kubechronicle.api.codecs import yaml_writer  # most commands print none, and start sooner without it

    return yaml_writer.write(value)
