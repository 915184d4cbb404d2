"""The parts of a documentation page that a reader copies or follows: blocks of code, and numbered lists of steps.

A comment of HTML just before a part says what runs it; readers of the page do not see it:

    <!-- test: FILE::FUNCTION, FILE -->   tests that run the same procedure
    <!-- not run: REASON -->              nothing here runs it
    <!-- no procedure -->                 the list describes; nothing is to be done
    <!-- file: NAME -->                   the sessions write the block to this file
    <!-- background -->                   the command goes on; its output so far must be as shown
    <!-- terminal: TEXT -->               the command runs in a terminal, in which TEXT and Enter are typed
    <!-- before                           commands of bash that the sessions run at this place, unseen
    COMMAND
    -->

A block ```console without `test` and `not run` is run by tests/clients/documents, and its output compared. Its commands
follow `$ `. All other parts need a comment; only ```text, which nobody types, needs none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
_FENCE = re.compile(r"(?P<indent> *)```(?P<language>\w*)$")
_COMMENT = re.compile(
    r" *<!-- *(?P<kind>test|not run|no procedure|file|background|terminal|before)(?:[:\n] *(?P<text>.*?))? *-->", re.S
)
_ITEM = re.compile(r"\d+\. |- ")


@dataclass(frozen=True)
class Command:
    """A command of a console block with its shown output. ``first`` and ``output_at``: the indexes of the first line of
    the command and of its output in the page."""

    text: str
    output: tuple[str, ...]
    first: int
    output_at: int


@dataclass(frozen=True)
class Part:
    """A part of a page. ``kind``: the block's language, `list` for numbered steps, `before` for unseen commands, and
    `indented` for a block without a fence. ``line``: its first line, from 1. ``markers``: the comments before it."""

    page: Path
    line: int
    kind: str
    lines: tuple[str, ...]
    indent: int
    markers: dict[str, str]

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT).as_posix()}:{self.line}"

    @property
    def is_run(self) -> bool:
        """True if the sessions run its commands."""
        return self.kind == "console" and not self.markers.keys() & {"test", "not run"}

    def commands(self) -> Iterator[Command]:
        """Yield the commands of a console block in order."""
        start = 0
        while start < len(self.lines):
            assert self.lines[start].startswith("$ "), f"{self.place}: a console block begins with a command"
            after = start + 1
            while self.lines[after - 1].endswith("\\"):
                after += 1
            end = after
            while end < len(self.lines) and not self.lines[end].startswith("$ "):
                end += 1
            text = "\n".join((self.lines[start][2:], *self.lines[start + 1 : after]))
            yield Command(text, self.lines[after:end], self.line + start, self.line + after)
            start = end


def _comment(lines: list[str], start: int) -> tuple[int, str, str] | None:
    """Return the index after a comment for the sessions, its kind and its text; None at any other line."""
    if not lines[start].lstrip().startswith("<!--"):
        return None
    end = start
    while "-->" not in lines[end]:
        end += 1
    found = _COMMENT.fullmatch("\n".join(lines[start : end + 1]))
    return (end + 1, found["kind"], found["text"] or "") if found else None


def _fenced(lines: list[str], start: int, indent: int) -> int:
    """Return the index of the fence that ends the block."""
    return next(at for at in range(start + 1, len(lines)) if lines[at] == " " * indent + "```")


def parts(page: Path) -> list[Part]:
    """Return the parts of a page in order."""
    lines = page.read_text().split("\n")
    found: list[Part] = []
    markers: dict[str, str] = {}
    at = inside = 0  # ``inside``: the columns by which the text of the present list is indented
    while at < len(lines):
        line = lines[at]
        if comment := _comment(lines, at):
            after, kind, text = comment
            if kind == "before":
                found.append(Part(page, at + 1, kind, tuple(text.split("\n")), 0, {}))
            else:
                markers[kind] = text
            at = after
            continue
        if fence := _FENCE.fullmatch(line):
            indent = len(fence["indent"])
            end = _fenced(lines, at, indent)
            body = tuple(each[indent:] for each in lines[at + 1 : end])
            # The line of a block is the one of its fence, so that line + n is the index of its nth line.
            found.append(Part(page, at + 1, fence["language"] or "text", body, indent, markers))
            markers, at = {}, end + 1
            continue
        if line and not line.startswith(" "):
            item = _ITEM.match(line)
            inside = len(item[0]) if item else 0
            if item and item[0] == "1. ":
                found.append(Part(page, at + 1, "list", (line,), 0, markers))
        elif line.startswith(" " * (inside + 4)) and not lines[at - 1].strip():
            found.append(Part(page, at + 1, "indented", (line,), inside + 4, markers))
        if line.strip():
            markers = {}
        at += 1
    return found
