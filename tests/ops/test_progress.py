"""The line that shows the progress of a long command."""

from __future__ import annotations

import io

import pytest

from kubechronicle.ops import progress, terminal
from kubechronicle.ops.progress import ProgressLine, line


@pytest.mark.parametrize(
    ("done", "total", "seconds", "shown"),
    [
        (0, 0, 1, "saving: 0 revisions"),
        (7, 0, 1, "saving: 7 revisions"),
        (0, 10, 1, "saving ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░ 0 of 10 revisions"),
        (5, 10, 3, "saving ███████████████░░░░░░░░░░░░░░░ 5 of 10 revisions, 3 s left"),
        (10, 10, 3, "saving ██████████████████████████████ 10 of 10 revisions, 0 s left"),
    ],
)
def test_a_line_tells_the_part_and_the_rest(done: int, total: int, seconds: float, shown: str) -> None:
    assert line("saving", "revisions", done, total, seconds) == shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "shows"), [(Terminal(), True), (io.StringIO(), False)])
def test_only_a_terminal_shows_it(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, shows: bool) -> None:
    monkeypatch.setattr(terminal, "stderr", lambda: terminal.Output(stream))
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    with ProgressLine("saving") as shown:
        shown(1, 2)
    assert ("1 of 2 revisions" in stream.getvalue()) is shows
    assert stream.getvalue().endswith(terminal.ERASE_LINE) is shows
