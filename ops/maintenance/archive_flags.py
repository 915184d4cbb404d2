"""`kubechronicle archive WHAT`: its flags."""

from __future__ import annotations

import argparse

# Flag and column.
FILTERS = {
    "resource": "resource",
    "namespace": "namespace",
    "name": "name",
    "uid": "uid",
    "user": "user_name",
    "verb": "verb",
    "user-agent": "user_agent",
    "field-manager": "field_manager",
    "source-address": "source_address",
}


def add_commands(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    for name, summary in (("list", "List the archives of a directory."), ("read", "Print what archived changes were.")):
        command = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        command.add_argument("directory", metavar="DIR", help="the directory given as --history-archive")
        command.add_argument("-o", "--output", choices=("text", "json"), default="text", help="text, or JSON lines")
        if name == "read":
            for flag in FILTERS:
                command.add_argument(f"--{flag}", metavar="VALUE", help="only changes of which this is the value")
            command.add_argument("--since", metavar="TIME", help="only changes from this time on (RFC 3339)")
            command.add_argument("--until", metavar="TIME", help="only changes up to this time")
            command.add_argument("--revisions", metavar="N-M", help="only these revisions; N- for all from N on")
