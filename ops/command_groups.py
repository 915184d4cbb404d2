"""The commands by purpose, and the help that lists them so."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Final

from kubechronicle.ops import terminal

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Run a server or a cluster": ("serve", "up", "envtest", "kubeconfig", "import"),
    "Look at history": (
        "log", "who", "why", "blame", "diff", "between", "incident", "tree", "at", "audit", "can-i", "bisect", "top",
        "ui",
    ),
    "Act on the cluster": (
        "restore", "revert", "apply", "branch", "try-policy", "because", "tag", "feed", "export", "migrate-storage",
    ),
    "Prove": ("verify", "checkpoint", "witness", "hold", "archive"),
    "Maintain": (
        "history", "backup", "restore-backup", "compact", "erase", "repair", "migrate", "move-resources",
        "bump-revisions", "convert",
    ),
    "Other": ("completion", "version"),
}  # fmt: skip
"""Each command stands in one group; those about history are in `kubectl chronicle`, too."""
ABOUT_ALL: Final = "A Kubernetes API server on an append-only Postgres revision log, and questions about its history."
ABOUT_HISTORY: Final = (
    "Questions about the history of a cluster on kubechronicle: its changes, their users, and its past states. "
    "`kubechronicle --help` lists the commands of a server's operator."
)
_NAME: Final = 18  # characters of the column with the names


def help_text(summaries: Mapping[str, str], *, of_history: bool) -> str:
    """Return an introduction, and the commands with their summaries, by group. Groups without any are left out."""
    width = max(terminal.width() - 2, 60)
    lines = textwrap.wrap(ABOUT_HISTORY if of_history else ABOUT_ALL, width)
    for title, names in GROUPS.items():
        shown = [name for name in names if name in summaries]
        lines += ["", f"{title}:"] if shown else []
        for name in shown:
            lines += textwrap.wrap(
                summaries[name], width, initial_indent=f"  {name:<{_NAME}}", subsequent_indent=" " * (_NAME + 2)
            )
    return "\n".join(lines)
