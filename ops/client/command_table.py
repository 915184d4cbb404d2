"""Name and summary of each command. The module in commands/ has the command's name; see dispatch.py."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

COMMANDS: Final[Mapping[str, str]] = {
    "log": "List the changes of an object, a kind or a namespace, field by field.",
    "audit": "List who changed and who read objects.",
    "blame": "Print an object's YAML, each line with the user that last set it.",
    "diff": "Print the differences between two moments as YAML.",
    "who": "Tell who created, deleted or changed an object, or set one of its fields.",
    "why": "Tell which changes explain the state of an object, up to the people who caused them.",
    "bisect": "Find the changes at which a condition on objects began or ceased to hold.",
    "can-i": "Tell whether a user was allowed to make a request at a moment, since when, and by whom.",
    "between": "List all changes between two moments.",
    "incident": "List the changes before a moment, the unusual ones first, with their consequences.",
    "tree": "Print an object with its owners, dependents, changes and Events in a time.",
    "at": "Run kubectl in the cluster as it was at a moment.",
    "tag": "Name a moment: tag:NAME stands wherever a moment does.",
    "because": "Run kubectl, and keep a reason with all its changes.",
    "feed": "Write changes to a file, a broker or a webhook as they are made.",
    "restore": "Restore objects as they were at a moment.",
    "revert": "Undo a user's changes, and keep what others changed later.",
    "branch": "Try changes in a branch of the cluster, of the past or the present; compare it.",
    "apply": "Apply objects in one transaction: all or none (--atomic).",
    "export": "Print objects as they were at a moment, for kubectl apply.",
    "try-policy": "Tell which writes of the past an admission policy would have refused or changed.",
    "migrate-storage": "Rewrite objects in the version that their resource is stored in today.",
    "top": "Show what the server does at present: requests, log, process, priority levels.",
    "ui": "Open the web page about history, with the credentials of the kubeconfig.",
    "completion": "Print a script that completes these commands in a shell.",
}


WITH_VALUE: Final = frozenset(
    {
        "-n", "--namespace", "--kubeconfig", "--context", "--token", "--certificate-authority", "--as", "--as-group",
        "-s", "--server",
    }
)  # fmt: skip
"""Flags of kubeconfig.py with a value, which kubectl takes before a command, too."""
SWITCHES: Final = frozenset(("--insecure-skip-tls-verify",))


def command_first(argv: Sequence[str]) -> Sequence[str]:
    """Return the arguments with the command before the flags of the user and server that stand before it."""
    place = 0
    while place < len(argv) and argv[place].startswith("-"):
        name, sign, _ = argv[place].partition("=")
        short = argv[place][:2] in WITH_VALUE and not argv[place].startswith("--") and len(argv[place]) > 2
        if name in SWITCHES or short or (name in WITH_VALUE and sign):
            place += 1
        elif name in WITH_VALUE:
            place += 2
        else:
            return argv
    if 0 < place < len(argv) and argv[place] in COMMANDS:
        return [argv[place], *argv[:place], *argv[place + 1 :]]
    return argv


SERVER_PROGRAM: Final = "kubechronicle"


def program_name() -> str:
    """Return the name this program was called by."""
    return "kubectl chronicle" if os.path.basename(sys.argv[0]).startswith("kubectl") else SERVER_PROGRAM
