"""The table of docs/security.md: rows by attack, read from the page, replaced by new measurements, and written back.

A measurement of some attacks, or without a kube-apiserver, leaves the other rows and cells as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kubechronicle.ops.development.hostile.light_client import Silence

BEGIN: Final = "<!-- attacks: written by `make hostile` -->"
END: Final = "<!-- end of attacks -->"
_HEADER: Final = (
    "| attack | by | CPU, event loop | CPU, process | silence | of kube-apiserver | answers | of kube-apiserver |",
    "|---|---|---|---|---|---|---|---|",
)


@dataclass(frozen=True, slots=True)
class Measured:
    """The silence of one server under an attack, and its answers. ``ended``: True if the attack ended the server."""

    silence: Silence
    answers: str
    ended: bool = False

    def cpu(self) -> float:
        """Return the most CPU of a gap, of the main thread or of all."""
        return math.inf if self.ended else max(self.silence.main, self.silence.process)

    def above(self, most: float) -> bool:
        return self.cpu() > most


@dataclass(slots=True)
class Row:
    """The cells of an attack, as text."""

    name: str
    by: str
    cpu: str = ""
    process: str = ""
    wall: str = ""
    their_wall: str = ""
    answers: str = ""
    their_answers: str = ""

    def take(self, ours: Measured | None, theirs: Measured | None) -> None:
        if ours is not None:
            self.cpu, self.process, self.wall = map(
                milliseconds, (ours.silence.main, ours.silence.process, ours.silence.wall)
            )
            self.answers = ours.answers
        if theirs is not None:
            self.their_wall, self.their_answers = milliseconds(theirs.silence.wall), theirs.answers

    def line(self) -> str:
        cells = (
            self.name, self.by, self.cpu, self.process, self.wall, self.their_wall, self.answers, self.their_answers
        )  # fmt: skip
        return f"| {' | '.join(cells)} |"


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"


def rows_of(page: str) -> dict[str, Row]:
    """Return the rows between the marks of a page, by attack. ValueError: it has no marks."""
    between = page[page.index(BEGIN) : page.index(END)]
    lines = [line for line in between.splitlines() if line.startswith("| ")][1:]
    rows = [Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in lines]
    return {row.name: row for row in rows}


def text_of(rows: Iterable[Row]) -> str:
    return "\n".join([*_HEADER, *(row.line() for row in rows)])


def write(path: Path, rows: Mapping[str, Row], order: Iterable[str]) -> None:
    """Replace the rows of a page; attacks that are no longer in ``order`` go."""
    page = path.read_text()
    text = text_of(rows[name] for name in order if name in rows)
    path.write_text(f"{page[: page.index(BEGIN)]}{BEGIN}\n\n{text}\n\n{page[page.index(END) :]}")
