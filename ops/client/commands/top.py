"""`top`: show what the server does at present, again and again."""

from __future__ import annotations

import argparse
import shutil
import time
from typing import Final

from kubechronicle.ops import terminal
from kubechronicle.ops.client import kubeconfig, live_view
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.live_view import Sample, SampleDifference
from kubechronicle.ops.client.session import connect
from kubechronicle.ops.errors import OperatorError

EXAMPLES: Final = """\
  kubectl chronicle top                    requests, log, process and priority levels, until Ctrl+C
  kubectl chronicle top --interval 10      over ten seconds each
  kubectl chronicle top --once             once, for a script
"""
SHORTEST, LONGEST, DEFAULT = 0.2, 3600.0, 2.0


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=float,
        default=DEFAULT,
        help=f"time of one view (default {DEFAULT:g})",
    )
    parser.add_argument("--once", action="store_true", help="show one view and end")
    kubeconfig.add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0, also after Ctrl+C."""
    if not SHORTEST <= arguments.interval <= LONGEST:
        raise OperatorError(f"--interval must be between {SHORTEST:g} and {LONGEST:g} seconds")
    target = kubeconfig.load(arguments)
    client, out = connect(target), terminal.stdout()
    before = _sample(client)
    try:
        while True:
            time.sleep(arguments.interval)
            after = _sample(client)
            hint = "" if arguments.once else "   Ctrl+C ends"
            title = f"{target.server.url}   over {arguments.interval:g} s{hint}"
            lines = live_view.screen(SampleDifference(before, after), title)
            if out.is_terminal and not arguments.once:
                size = shutil.get_terminal_size()
                lines = [line[: size.columns] for line in lines[: size.lines - 1]]
                out.screen(lines)
            else:
                out.lines("\n".join([*lines, ""]))
            out.flush()
            if arguments.once:
                return 0
            before = after
    except KeyboardInterrupt:
        out.line()
        return 0


def _sample(client: Client) -> Sample:
    return live_view.parse(client.text("/metrics"), time.monotonic())
