"""`completion bash|zsh|fish`: print a script for a shell. The script runs ``completion words …`` at each tab.

Words that complete a command: kinds, names, namespaces, contexts, flags and commands.

Words that need a server that does not answer within two seconds are omitted, without an error. So are names with
characters that a shell acts on.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from types import FrameType
from typing import Any, Final

from kubechronicle.ops import terminal
from kubechronicle.ops.client import dispatch, kubeconfig
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.command_table import COMMANDS
from kubechronicle.ops.client.kinds import Kinds
from kubechronicle.ops.client.revision_reader import RevisionQuery, read_revisions, scopes_of
from kubechronicle.ops.client.session import connect
from kubechronicle.ops.client.subjects import Subject
from kubechronicle.ops.errors import OperatorError

SHELLS: Final = ("bash", "zsh", "fish")
TIMEOUT: Final = 2.0
MAX_WORDS: Final = 500
# Words that every shell takes as they are. bash expands words of completions: $(…) in a name would be run.
PLAIN: Final = re.compile(r"[A-Za-z0-9_.:@/=,+-]+")
MOMENTS: Final = ("now", "10m", "1h", "2h", "1d", "7d")
MOMENT_FLAGS: Final = frozenset({"--at", "--to", "--from", "--since", "--until"})
# cobra's ShellCompDirectiveNoFileComp, and the same with ShellCompDirectiveNoSpace.
NO_FILES, NO_FILES_NO_SPACE = 4, 6
OBJECT_COMMANDS: Final = frozenset({"log", "blame", "diff", "who", "restore", "export", "bisect", "can-i", "feed"})
VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


def complete_for_kubectl() -> int:
    """Print the words and a directive, as kubectl expects of ``kubectl_complete-chronicle``.

    See k8s.io/kubectl/pkg/cmd/plugin_completion.go.
    """
    words = complete(sys.argv[1:])
    for word in words:
        terminal.stdout().line(word)
    terminal.stdout().line(f":{NO_FILES_NO_SPACE if words and all(word.endswith('/') for word in words) else NO_FILES}")
    return 0


def complete(typed: Sequence[str]) -> list[str]:
    """Return completions of the last word. Errors and timeouts give an empty list."""
    *before, prefix = typed or [""]
    if not before:
        return [name for name in COMMANDS if name.startswith(prefix)]
    if before[0] not in COMMANDS:
        return []

    def raise_timeout(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError

    previous = signal.signal(signal.SIGALRM, raise_timeout)
    signal.setitimer(signal.ITIMER_REAL, TIMEOUT)
    try:
        words = (word for word in _words(before, prefix) if word.startswith(prefix) and PLAIN.fullmatch(word))
        return list(islice(words, MAX_WORDS))
    except (OperatorError, OSError):
        return []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _words(before: Sequence[str], prefix: str) -> Iterable[str]:
    command, last = before[0], before[-1]
    if command == "completion":
        return SHELLS
    parser = dispatch.make_parser(command)
    flags = parser._option_string_actions
    if last in flags and flags[last].nargs != 0:
        return _flag_values(flags[last], before[:-1])
    if prefix.startswith("-"):
        return [name for name in flags if name.startswith("--")]
    positional = _positional(before[1:], flags)
    if command == "at":
        return ([*MOMENTS], ["get", "describe", "events", "diff"], [])[min(len(positional), 2)]
    if command == "tag":
        from kubechronicle.ops.client.commands.tag import ACTIONS as TAG_ACTIONS

        return _tags(before) if positional[:1] == ["delete"] else TAG_ACTIONS if not positional else []
    if command == "between":
        return MOMENTS if len(positional) < 2 else []
    if command == "who":
        if not positional:
            from kubechronicle.ops.client.commands.who import ACTIONS

            return ACTIONS
        action, *positional = positional
        command = "can-i" if action == "can" else command
    if command == "can-i":
        if not positional:
            return VERBS
        positional = positional[1:]
    if command == "bisect":
        if not positional:
            return []  # the expression
        positional = positional[1:]
    return _objects(positional, prefix, before) if command in OBJECT_COMMANDS else []


def _positional(arguments: Sequence[str], flags: dict[str, Any]) -> list[str]:
    """Return the arguments that are neither flags nor their values."""
    positional, is_value = [], False
    for argument in arguments:
        if is_value:
            is_value = False
        elif argument.startswith("-"):
            is_value = argument in flags and flags[argument].nargs != 0
        else:
            positional.append(argument)
    return positional


def _flag_values(flag: argparse.Action, before: Sequence[str]) -> Iterable[str]:
    if flag.choices:
        return [str(choice) for choice in flag.choices]
    if MOMENT_FLAGS & set(flag.option_strings):
        return MOMENTS
    if flag.dest == "context":
        return _contexts(before)
    if flag.dest == "namespace":
        client = _client(before)
        return _names(client, Kinds.discover(client), "namespaces", "")
    return []


def _contexts(before: Sequence[str]) -> list[str]:
    document = kubeconfig.read_merged(_server_flags(before).kubeconfig)
    return [str(entry.get("name")) for entry in document.get("contexts") or () if isinstance(entry, dict)]


def _server_flags(before: Sequence[str]) -> argparse.Namespace:
    """Parse the flags of the server, and ignore all others."""
    parser = dispatch.Parser(add_help=False, allow_abbrev=False)
    kubeconfig.add_flags(parser)
    return parser.parse_known_args(list(before[1:]))[0]


def _client(before: Sequence[str]) -> Client:
    return connect(kubeconfig.load(_server_flags(before)))


def _objects(positional: Sequence[str], prefix: str, before: Sequence[str]) -> Iterator[str]:
    """Yield TYPE/ and TYPE/NAME, or NAME after TYPE."""
    if len(positional) > 1 or (positional and "/" in positional[0]):
        return
    client = _client(before)
    kinds = Kinds.discover(client)
    type_name, slash, _ = prefix.partition("/")
    names = _deleted_names if before[:2] == ["who", "deleted"] else _names
    if positional:
        yield from names(client, kinds, positional[0], client.namespace)
    elif slash:
        yield from (f"{type_name}/{name}" for name in names(client, kinds, type_name, client.namespace))
    else:
        seen: set[str] = set()
        for kind in kinds.stored():
            name = kind.singular or kind.plural
            yield f"{f'{name}.{kind.group}' if name in seen else name}/"
            seen.add(name)


def _names(client: Client, kinds: Kinds, type_name: str, namespace: str) -> Iterator[str]:
    kind = kinds.find(type_name)
    page = client.get(kind.path(namespace if kind.namespaced else ""), {"limit": str(MAX_WORDS)})
    return (item["metadata"]["name"] for item in page.get("items") or ())


def _tags(before: Sequence[str]) -> Iterator[str]:
    client = _client(before)
    return _names(client, Kinds.discover(client), "tags", "")


def _deleted_names(client: Client, kinds: Kinds, type_name: str, namespace: str) -> Iterator[str]:
    """Return the names of deleted objects, latest first, then those of existing objects."""
    kind = kinds.find(type_name)
    scopes = scopes_of(Subject(kind, namespace if kind.namespaced else ""))
    query = RevisionQuery(scopes, {"operation": "Delete"}, content="", limit=MAX_WORDS)
    deleted = [revision["object"]["name"] for revision in read_revisions(client, query)]
    return iter(dict.fromkeys([*deleted, *_names(client, kinds, type_name, namespace)]))


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
