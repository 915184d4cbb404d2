"""`kubechronicle history WHAT`: its flags. Each command is a module of its own, imported when it runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from kubechronicle.ops.settings.settings import Settings

DATABASE_FLAGS = ("database-url", "data-dir", "v")
RETENTION_FLAGS = ("history-retention", "history-retention-file")


def add_commands(
    parser: argparse.ArgumentParser, add_settings: Callable[[argparse.ArgumentParser, Sequence[str]], None]
) -> None:
    commands = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    summary = "Tell how much history there is, how fast it grows, and when it goes."
    status = commands.add_parser("status", help=summary, description=summary, allow_abbrev=False)
    status.add_argument("-o", "--output", choices=("text", "json"), default="text", help="text (default) or json")
    add_settings(status, (*RETENTION_FLAGS, *DATABASE_FLAGS))
    summary = "Tell, or set, of which resources SQL never shows the contents."
    confidential = commands.add_parser("confidential", help=summary, description=summary, allow_abbrev=False)
    for flag, what in (("--add", "a resource to withhold, e.g. vaults.example.com"), ("--remove", "one to show again")):
        text = f"{what}; may be repeated"
        confidential.add_argument(flag, metavar="RESOURCE", action="append", default=[], help=text)
    add_settings(confidential, DATABASE_FLAGS)


async def run(settings: Settings, given: argparse.Namespace) -> int:
    """One of the commands. Answers its exit code; OperatorError."""
    if given.what == "status":
        from kubechronicle.ops.maintenance import history_status

        return await history_status.run(settings, as_json=given.output == "json")
    from kubechronicle.ops.maintenance import confidential

    return await confidential.run(settings, add=given.add, remove=given.remove)
