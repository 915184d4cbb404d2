"""`completion bash|zsh|fish`: print a script for a shell. The script runs ``completion words …`` at each tab."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from kubechronicle.ops import terminal
from kubechronicle.ops.client.completion import SHELLS, complete

EXAMPLES: Final = """\
  source <(kubechronicle completion bash)
  kubechronicle completion zsh > ~/.zfunc/_kubechronicle
  kubechronicle completion fish > ~/.config/fish/completions/kubechronicle.fish
`kubectl chronicle` is completed by kubectl's own script, with kubectl_complete-chronicle on PATH.
"""
BASH: Final = """\
_kubechronicle() {
    local IFS=$'\\n'
    COMPREPLY=($(compgen -W "$(kubechronicle completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" \\
        -- "${COMP_WORDS[COMP_CWORD]}"))
    [[ ${COMPREPLY[0]} == */ ]] && compopt -o nospace
}
complete -o default -F _kubechronicle kubechronicle kubectl-chronicle
"""
ZSH: Final = """\
#compdef kubechronicle kubectl-chronicle
_kubechronicle() {
    local -a completions
    completions=(${(f)"$(kubechronicle completion words "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    compadd -Q -S '' -- ${(M)completions:#*/}
    compadd -Q -- ${completions:#*/}
}
compdef _kubechronicle kubechronicle kubectl-chronicle
"""
FISH: Final = """\
function __kubechronicle
    set -l typed (commandline -opc)
    kubechronicle completion words $typed[2..] (commandline -ct) 2>/dev/null
end
complete -c kubechronicle -f -a '(__kubechronicle)'
complete -c kubectl-chronicle -f -a '(__kubechronicle)'
"""
SCRIPTS: Final = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="|".join(SHELLS))


def parse(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """Pass the words of ``completion words …`` on unparsed."""
    if argv[:1] == ["words"]:
        return argparse.Namespace(shell="", typed=list(argv[1:]))
    return parser.parse_args(list(argv))


def run(arguments: argparse.Namespace) -> int:
    if arguments.shell:
        terminal.stdout().lines(SCRIPTS[arguments.shell])
        return 0
    for word in complete(arguments.typed):
        terminal.stdout().line(word)
    return 0
