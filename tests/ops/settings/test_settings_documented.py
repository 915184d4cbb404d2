"""docs/settings.md shows every setting as the tables in ops/settings/flags have it; --help shows every command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kubechronicle.ops import commands
from kubechronicle.ops.settings import page
from kubechronicle.ops.settings.flags import FLAGS
from kubechronicle.ops.settings.flags.flag import Flag

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "settings.md").read_text() == page.page(), "run `make docs`"


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
def test_serve_has_every_flag_and_explains_it(flag: Flag) -> None:
    parsed = commands.make_parser().parse_args(["serve", f"--{flag.name}", "x"])
    assert vars(parsed)[flag.name] == (["x"] if flag.repeatable else "x")
    assert flag.help.endswith(".")


def test_every_command_is_in_the_help() -> None:
    text = commands.make_parser().format_help()
    assert all(re.search(rf"^ +{name}\b", text, re.MULTILINE) for name in commands.COMMANDS)
