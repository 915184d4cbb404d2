"""The files of the wheel for shells: completion scripts and the manual page, made by `make docs`.

python -m kubechronicle.ops.development.shell_files [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kubechronicle.ops.client.command_table import COMMANDS as CLIENT_COMMANDS
from kubechronicle.ops.client.commands.completion import SCRIPTS
from kubechronicle.ops.command_groups import ABOUT_ALL, GROUPS
from kubechronicle.ops.commands import COMMANDS

FOLDER: Final = Path(__file__).resolve().parents[1] / "install" / "share"
NAMES: Final = {"bash": "kubechronicle", "zsh": "_kubechronicle", "fish": "kubechronicle.fish"}
"""The names under which the shells look for the scripts."""
_HEAD: Final = """\
.TH KUBECHRONICLE 1 "" "kubechronicle" "User Commands"
.SH NAME
kubechronicle, kubectl\\-chronicle \\- {about}
.SH SYNOPSIS
.B kubechronicle
.I COMMAND
[flags]
.br
.B kubectl chronicle
.I COMMAND
[flags]
.SH DESCRIPTION
`kubechronicle serve` runs the server, with all its data in ./data. `kubechronicle COMMAND \\-\\-help` has the flags and
examples of a command. Those about history are commands of `kubectl chronicle`, too.
"""
_FOOT: Final = """\
.SH ENVIRONMENT
.TP
.B KUBECONFIG
The server and the user of the commands about history, as for kubectl.
.TP
.B DATABASE_URL
The Postgres database of the server, instead of \\-\\-database\\-url.
.SH FILES
.TP
.I data/admin.kubeconfig
The administrator's kubeconfig, in the directory of \\-\\-data\\-dir.
.SH EXIT STATUS
0: done. 1: there is no answer, or a proof failed. 2: a mistake of the user, in one line on standard error.
.SH SEE ALSO
.BR kubectl (1),
.BR postgres (1)
"""


def manual() -> str:
    """Return the manual page, as man(7) has it."""
    summaries: Mapping[str, str] = {**{name: each.summary for name, each in COMMANDS.items()}, **CLIENT_COMMANDS}
    lines = [_HEAD.format(about=_escaped(ABOUT_ALL.rstrip(".")))]
    for title, names in GROUPS.items():
        lines.append(f".SH {title.upper()}\n")
        lines += (f".TP\n.B {_escaped(name)}\n{_escaped(summaries[name])}\n" for name in names)
    return "".join(lines) + _FOOT


def _escaped(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-")


def files() -> dict[Path, str]:
    return {FOLDER / "kubechronicle.1": manual(), **{FOLDER / NAMES[shell]: text for shell, text in SCRIPTS.items()}}


def main(arguments: list[str]) -> int:
    """Write the files; with --check, return 1 if one is not up to date."""
    stale = [path for path, text in files().items() if not path.exists() or path.read_text() != text]
    if "--check" not in arguments:
        FOLDER.mkdir(exist_ok=True)
        for path in stale:
            path.write_text(files()[path])
        return 0
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
