"""The commands of this folder: name and summary. The module of a command has its name; see commands.py."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

QUESTIONS: Final[Mapping[str, str]] = {
    "log": "What happened to an object, a kind or a namespace, field by field.",
    "blame": "An object's YAML, with who last set each line.",
    "diff": "What differs between two moments, as YAML.",
    "who": "Who created, deleted or changed an object, or set a field of it.",
    "between": "Everything that changed between two moments.",
    "at": "Run kubectl in the cluster as it was at a moment.",
    "restore": "Bring back what was there at a moment.",
    "export": "Print what was there at a moment, to be applied.",
    "ui": "Open a web page about history, with the credentials of the kubeconfig.",
    "completion": "Print a script that completes these commands in a shell.",
}


def program() -> str:
    """What it was called as."""
    return "kubectl chronicle" if Path(sys.argv[0]).name.startswith("kubectl") else "kubechronicle"
