"""`kubechronicle history WHAT`: its flags. Each command is a module of its own, imported when it runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from kubechronicle.ops.settings import Settings

DATABASE_FLAGS = ("database-url", "data-dir", "v")


def add_commands(
    parser: argparse.ArgumentParser, add_settings: Callable[[argparse.ArgumentParser, Sequence[str]], None]
) -> None:
    commands = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    summary = "Tell, or set, of which resources SQL never shows the contents."
    confidential = commands.add_parser("confidential", help=summary, description=summary, allow_abbrev=False)
    for flag, what in (("--add", "a resource to withhold, e.g. vaults.example.com"), ("--remove", "one to show again")):
        text = f"{what}; may be repeated"
        confidential.add_argument(flag, metavar="RESOURCE", action="append", default=[], help=text)
    add_settings(confidential, DATABASE_FLAGS)


async def run(settings: Settings, given: argparse.Namespace) -> int:
    """One of the commands. Answers its exit code; OperatorError."""
    from kubechronicle.ops import confidential

    return await confidential.run(settings, add=given.add, remove=given.remove)
