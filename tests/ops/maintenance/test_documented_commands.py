"""Each command in the pages on backups, moves and upgrades is one that the command line accepts."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kubechronicle.ops.commands import make_parser

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGES = ("backup.md", "move-from-etcd.md", "upgrade.md")


def commands() -> list[str]:
    found = []
    for page in PAGES:
        found += re.findall(r"^ {4,}(kubechronicle .+)$", (DOCS / page).read_text(), re.MULTILINE)
    return found


@pytest.mark.parametrize("command", commands())
def test_a_documented_command_is_accepted(command: str) -> None:
    make_parser().parse_args(shlex.split(command)[1:])
