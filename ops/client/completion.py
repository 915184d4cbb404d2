"""`completion bash|zsh|fish`: scripts for shells, which ask ``completion words …`` at each tab; and for kubectl,
which asks a program kubectl_complete-chronicle for its plugin's words (k8s.io/kubectl/pkg/cmd/plugin_completion.go).

Words are those of the server: kinds, names, namespaces; and flags, contexts and commands. What can't be found out in a
second is not completed, without a complaint.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType
from typing import Any, Final

from kubechronicle.ops.client import changes, dispatch, kubeconfig
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.command_table import QUESTIONS
from kubechronicle.ops.client.kinds import Kinds
from kubechronicle.ops.client.session import CONNECT, Subject
from kubechronicle.ops.errors import OperatorError

EXAMPLES: Final = """\
  source <(kubechronicle completion bash)
  kubechronicle completion zsh > ~/.zfunc/_kubechronicle
  kubechronicle completion fish > ~/.config/fish/completions/kubechronicle.fish
For `kubectl chronicle`, kubectl's own completion asks kubectl_complete-chronicle, which is installed beside it.
"""
SHELLS: Final = ("bash", "zsh", "fish")
PATIENCE: Final = 2.0
MOST: Final = 500
MOMENTS: Final = ("now", "10m", "1h", "2h", "1d", "7d")
MOMENT_FLAGS: Final = frozenset({"--at", "--to", "--from", "--since", "--until"})
# cobra's ShellCompDirectiveNoFileComp, and with NoSpace.
NO_FILES, NO_SPACE = 4, 6
ABOUT_OBJECTS: Final = frozenset({"log", "blame", "diff", "who", "restore", "export"})

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
    local -a found
    found=(${(f)"$(kubechronicle completion words "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    compadd -Q -S '' -- ${(M)found:#*/}
    compadd -Q -- ${found:#*/}
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


def words(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """What a shell asks is taken as it is; anything else is parsed."""
    if arguments[:1] == ["words"]:
        return argparse.Namespace(shell="", typed=list(arguments[1:]))
    return parser.parse_args(list(arguments))


def run(given: argparse.Namespace) -> int:
    """Exit code 0."""
    if given.shell:
        print(SCRIPTS[given.shell], end="")
        return 0
    for word in completed(given.typed):
        print(word)
    return 0


def complete_for_kubectl() -> int:
    """The program kubectl asks: words, and last how the shell is to take them."""
    found = completed(sys.argv[1:])
    for word in found:
        print(word)
    print(f":{NO_SPACE if found and all(word.endswith('/') for word in found) else NO_FILES}")
    return 0


def completed(typed: Sequence[str]) -> list[str]:
    """What the last of the words may become. Never raises for what can't be found out."""
    *before, begun = typed or [""]
    if not before:
        return [name for name in QUESTIONS if name.startswith(begun)]
    if before[0] not in QUESTIONS:
        return []

    def late(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError

    old = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        return [word for word in _words(before, begun) if word.startswith(begun)][:MOST]
    except (OperatorError, OSError):
        return []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def _words(before: Sequence[str], begun: str) -> Iterable[str]:
    command, last = before[0], before[-1]
    if command == "completion":
        return SHELLS
    parser = dispatch.make_parser(command)
    flags = parser._option_string_actions
    if last in flags and flags[last].nargs != 0:
        return _values(flags[last], before[:-1])
    if begun.startswith("-"):
        return [name for name in flags if name.startswith("--")]
    given = _positional(before[1:], flags)
    if command == "at":
        return MOMENTS if not given else ["get", "describe", "events", "diff"] if len(given) == 1 else []
    if command == "between":
        return MOMENTS if len(given) < 2 else []
    if command == "who":
        if not given:
            from kubechronicle.ops.client.commands.who import ACTIONS

            return ACTIONS
        given = given[1:]
    return _objects(given, begun, before) if command in ABOUT_OBJECTS else []


def _positional(arguments: Sequence[str], flags: dict[str, Any]) -> list[str]:
    found, skipped = [], False
    for argument in arguments:
        if skipped:
            skipped = False
        elif argument.startswith("-"):
            skipped = argument in flags and flags[argument].nargs != 0
        else:
            found.append(argument)
    return found


def _values(flag: argparse.Action, before: Sequence[str]) -> Iterable[str]:
    if flag.choices:
        return [str(choice) for choice in flag.choices]
    if MOMENT_FLAGS & set(flag.option_strings):
        return MOMENTS
    if flag.dest == "context":
        return _contexts(before)
    if flag.dest == "namespace":
        client = _client(before)
        return _names(client, Kinds.of(client), "namespaces", "")
    return []


def _contexts(before: Sequence[str]) -> list[str]:
    document = kubeconfig.merged(_given(before).kubeconfig)
    return [str(entry.get("name")) for entry in document.get("contexts") or () if isinstance(entry, dict)]


def _given(before: Sequence[str]) -> argparse.Namespace:
    """The flags of the server among what was typed."""
    parser = dispatch.Parser(add_help=False, allow_abbrev=False)
    kubeconfig.add_flags(parser)
    return parser.parse_known_args(list(before[1:]))[0]


def _client(before: Sequence[str]) -> Client:
    target = kubeconfig.load(_given(before))
    return Client(CONNECT[-1](target), target.namespace)


def _objects(given: Sequence[str], begun: str, before: Sequence[str]) -> Iterator[str]:
    """TYPE/ and TYPE/NAME, or NAME after TYPE."""
    if len(given) > 1 or (given and "/" in given[0]):
        return
    client = _client(before)
    kinds = Kinds.of(client)
    type_, slash, _ = begun.partition("/")
    names = _deleted if before[:2] == ["who", "deleted"] else _names
    if given:
        yield from names(client, kinds, given[0], client.namespace)
    elif slash:
        yield from (f"{type_}/{name}" for name in names(client, kinds, type_, client.namespace))
    else:
        seen: set[str] = set()
        for kind in kinds.stored():
            name = kind.singular or kind.plural
            yield f"{f'{name}.{kind.group}' if name in seen else name}/"
            seen.add(name)


def _names(client: Client, kinds: Kinds, type_: str, namespace: str) -> Iterator[str]:
    kind = kinds.named(type_)
    page = client.get(kind.path(namespace if kind.namespaced else ""), {"limit": str(MOST)})
    return (item["metadata"]["name"] for item in page.get("items") or ())


def _deleted(client: Client, kinds: Kinds, type_: str, namespace: str) -> Iterator[str]:
    """What is gone, the latest first, and what is there."""
    kind = kinds.named(type_)
    scopes = changes.scopes_of(Subject(kind, namespace if kind.namespaced else ""))
    asked = changes.Asked(scopes, {"operation": "Delete"}, content="", limit=MOST)
    gone = [revision["object"]["name"] for revision in changes.changes(client, asked)]
    return iter(dict.fromkeys([*gone, *_names(client, kinds, type_, namespace)]))
