"""docs/pictures/session.svg: the first session of the README as a moving picture of a terminal.

    python -m kubechronicle.ops.development.recording

Commands and output are those of the README, which the tests run. The picture needs no script: each line appears at its
moment by an animation of CSS. Readers who want no movement see all lines at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
PICTURE: Final = ROOT / "docs" / "pictures" / "session.svg"
COLUMNS: Final = 112
LINE, CHARACTER, MARGIN = 18, 7.25, 16
"""Pixels: height of a line, width of a character of 12 pixels, and the space around."""
BEFORE_COMMAND, BEFORE_OUTPUT, BETWEEN_LINES = 1.5, 0.6, 0.06
"""Seconds before a line appears."""
LEFT_OUT: Final = ("export KUBECONFIG", "PATH=")
"""Beginnings of commands that only prepare others."""
STYLE: Final = """
  text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #c9d1d9; white-space: pre }
  .command { fill: #7ee787 } .found { fill: #ffd866 }
  .line { opacity: 0; animation: appear 0.05s linear forwards }
  @keyframes appear { to { opacity: 1 } }
  @media (prefers-reduced-motion: reduce) { .line { opacity: 1; animation: none } }
"""


class Line(NamedTuple):
    """A line of the terminal, the seconds at which it appears, and its class."""

    text: str
    second: float
    kind: str


def session(readme: str) -> list[str]:
    """Return the lines of the session that follows the start of the server."""
    blocks: list[str] = re.findall(r"```console\n(.*?)```", readme, re.DOTALL)
    return blocks[1].splitlines()


def timed(lines: Sequence[str]) -> list[Line]:
    """Return the lines with their moments, without commands that only prepare others."""
    found: list[Line] = []
    second, is_command, is_shown = 0.5, False, True
    for text in lines:
        if text.startswith("$ "):
            is_shown = not text[2:].startswith(LEFT_OUT)
            second += BEFORE_COMMAND if is_shown and found else 0.0
            is_command = True
        else:
            second += BEFORE_OUTPUT if is_command else BETWEEN_LINES
            is_command = False
        if is_shown:
            kind = "command" if text.startswith("$ ") else "found" if "<deleted>" in text or "→" in text else ""
            found.append(Line(_fitting(text), round(second, 2), kind))
    return found


def _fitting(text: str) -> str:
    """Return a line with the beginning of its longest word cut, if it is too long.

    >>> _fitting("188   patch   " + "x" * 200 + ".image: 17 → 18")[-30:]
    'xxxxxxxxxxxxxxx.image: 17 → 18'
    """
    excess = len(text) - COLUMNS
    if excess <= 0:
        return text
    longest = max(text.split(), key=len)
    return text.replace(longest, f"…{longest[excess + 1 :]}", 1)


def picture(lines: Sequence[Line]) -> str:
    """Return the picture."""
    width, height = round(COLUMNS * CHARACTER + 2 * MARGIN), len(lines) * LINE + 2 * MARGIN
    rows = [
        f'<text class="line {line.kind}" x="{MARGIN}" y="{MARGIN + 13 + number * LINE}" '
        f'style="animation-delay:{line.second}s">{escape(line.text)}</text>'
        for number, line in enumerate(lines)
    ]
    title = "A deployment is changed and deleted; history shows who did it, and a command restores it"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'role="img">',
            f"<title>{title}</title><style>{STYLE}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#161b22"/>',
            *rows,
            "</svg>",
            "",
        ]
    )


def made() -> str:
    """Return the picture of today's README."""
    return picture(timed(session((ROOT / "README.md").read_text())))


if __name__ == "__main__":
    PICTURE.write_text(made())
