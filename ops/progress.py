"""Progress of a long command: one line on a terminal, which changes; nothing where the output is read by a program."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Final

from kubechronicle.ops import terminal

INTERVAL: Final = 0.2  # seconds between two lines
WIDTH: Final = 30
"""Characters of the bar."""


class ProgressLine:
    """``with Progress("restoring") as progress: progress(done, total)``. The line is erased at the end.

    ``interval``: seconds between two lines; 0 where a single step may take long.
    """

    def __init__(self, work: str, unit: str = "revisions", *, interval: float | None = None) -> None:
        self._work, self._unit = work, unit
        self._interval = INTERVAL if interval is None else interval
        self._output = terminal.stderr()
        self._shown = self.is_shown = self._output.is_terminal
        self._started = self._last = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        """Show the progress. ``total`` 0: it is unknown."""
        now = time.monotonic()
        if not self._shown or now - self._last < self._interval:
            return
        self._last = now
        self._output.overwrite(line(self._work, self._unit, done, total, now - self._started))

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._shown:
            self._output.overwrite("")


def line(work: str, unit: str, done: int, total: int, seconds: float) -> str:
    """Return the text of the line, with the time that the rest takes at the speed so far."""
    if not total or done > total:
        return f"{work}: {done} {unit}"
    part = done / total
    bar = ("█" * round(part * WIDTH)).ljust(WIDTH, "░")
    rest = f", {seconds * (1 - part) / part:.0f} s left" if part > 0.01 else ""
    return f"{work} {bar} {done} of {total} {unit}{rest}"
