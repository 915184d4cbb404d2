"""`because REASON …`: run kubectl, and keep a reason with all its changes.

kubectl has no flag for a header. So it runs with a temporary kubeconfig, in which every cluster's URL has the reason.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from typing import Final

from kubechronicle.api.history.reasons import reason_prefix
from kubechronicle.ops.client import kubeconfig
from kubechronicle.ops.client.commands.at import parse_kubectl, run_kubectl
from kubechronicle.ops.client.subjects import checked_reason
from kubechronicle.ops.errors import OperatorError

EXAMPLES: Final = """\
  kubectl chronicle because "ticket 42: too few replicas" scale deployment/web --replicas 5
  kubectl chronicle because "release 7" apply -f shop/
  kubectl chronicle log -A --reason "ticket 42"
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("reason", metavar="REASON", help="the reason, kept in the log with each change")
    parser.add_argument("command", metavar="COMMAND …", nargs="*", help="of kubectl, with its arguments and flags")
    kubeconfig.add_flags(parser)


def parse(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """Parse the flags before the reason, and pass the arguments after it on to kubectl. OperatorError."""
    return parse_kubectl(parser, argv, "because 'ticket 42' scale deployment/web --replicas 5")


def run(arguments: argparse.Namespace) -> int:
    """Return kubectl's exit code. OperatorError."""
    reason = checked_reason(arguments.reason)
    if not reason:
        raise OperatorError("the reason is empty")
    target = kubeconfig.load(arguments)
    program = shutil.which("kubectl")
    if program is None:
        raise OperatorError("kubectl is not on PATH; `because` runs it")
    return run_kubectl(program, arguments.command, target.document(), reason_prefix(reason))
