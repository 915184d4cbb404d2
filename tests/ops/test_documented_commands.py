"""Each `kubechronicle` command in README.md and docs/ is one that the command line accepts, with its flags."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents.pages import PAGES, ROOT, parts

from kubechronicle.ops.client import dispatch
from kubechronicle.ops.client.command_table import COMMANDS as CLIENT_COMMANDS
from kubechronicle.ops.commands import COMMANDS, make_parser

TYPED = re.compile(r"^(?:kubechronicle|kubectl chronicle) (.+)", re.MULTILINE)
MENTIONED = re.compile(r"`(?:kubechronicle|kubectl chronicle) ([^`]+)`")


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the words of the commands in blocks, and of those in the text that are more than a name."""
    for part in parts(page):
        typed = [command.text for command in part.commands()] if part.kind == "console" else [part.text]
        if part.kind in ("console", "sh"):
            yield from (words(found) for found in TYPED.findall(re.sub(r"\\\n *", "", "\n".join(typed))))
    prose = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for found in MENTIONED.findall(prose):
        name, *arguments = words(" ".join(found.split()).removesuffix(" --help"))
        if arguments:
            yield [name, *arguments]
        elif not name.startswith("-") and name != "…":
            assert name in COMMANDS or name in CLIENT_COMMANDS, f"{page.name} mentions {name}"


def words(command: str) -> list[str]:
    return shlex.split(re.sub(r" *[0-9]?[|<>;].*", "", command), comments=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_documented_command_is_accepted(page: Path) -> None:
    for name, *arguments in commands(page):
        if name in CLIENT_COMMANDS:
            dispatch.parse(name, arguments)
        else:
            make_parser().parse_args([name, *arguments])
