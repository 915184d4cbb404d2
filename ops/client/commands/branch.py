"""`branch`: create, list and delete branches, print a kubeconfig for one, and compare it with another state."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

from kubechronicle.api.history.branches import AGAINST, BRANCHES, CHANGES
from kubechronicle.api.meta.path_prefixes import BRANCH, HISTORY
from kubechronicle.api.registry.groups import HISTORY as GROUP
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client import kubeconfig, output
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.commands.diff import PATCH, compare, document_of, print_change
from kubechronicle.ops.client.comparisons import patch_script
from kubechronicle.ops.client.kinds import Kind, Kinds
from kubechronicle.ops.client.output import Screen, ago, utc_now
from kubechronicle.ops.client.session import connect
from kubechronicle.ops.client.states import State
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.terminal import stdout

EXAMPLES: Final = """\
  kubectl chronicle branch create try                      a branch of the cluster as it is now
  kubectl chronicle branch create try --at 2h              as it was two hours ago
  kubectl chronicle branch kubeconfig try > try.yaml       then: kubectl --kubeconfig try.yaml apply -f …
  kubectl chronicle branch diff try                        the changes of the branch
  kubectl chronicle branch diff try --against now          its objects, compared with those of the cluster now
  kubectl chronicle branch diff try --against now -o patch > make.sh
  kubectl chronicle branch list
  kubectl chronicle branch delete try
exit code: 0; of diff: 0 without differences, 1 with differences; 2 for errors
"""
API: Final = f"/apis/{GROUP}/v1"
PATH: Final = f"{API}/{BRANCHES}"
ACTIONS: Final = ("create", "list", "delete", "kubeconfig", "diff")
OF_DIFF: Final = ("against", "no_status", "show_secrets")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", metavar="|".join(ACTIONS), choices=ACTIONS)
    parser.add_argument("name", nargs="?", default="", help="the branch")
    parser.add_argument("--at", metavar="MOMENT", default="", help="create: 2h, a time, a revision (default now)")
    parser.add_argument("--against", choices=AGAINST, help="diff: the other state (default base)")
    parser.add_argument("--no-status", action="store_true", help="diff: omit statuses")
    parser.add_argument("--show-secrets", action="store_true", help="diff: print values of Secrets instead of stars")
    output.add_flags(parser, formats=("text", "json", "yaml", PATCH))
    kubeconfig.add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0; of diff 1 with differences. OperatorError."""
    _check(arguments)
    target = _of_cluster(kubeconfig.load(arguments))
    client = connect(target).replaced(shows_secrets=arguments.show_secrets)
    screen = Screen(arguments)
    if arguments.action == "create":
        _create(client, screen, arguments)
    elif arguments.action == "list":
        _list(client, screen)
    elif arguments.action == "delete":
        client.request("DELETE", f"{PATH}/{quote(arguments.name, safe='')}")
        screen.line(f"Deleted branch {arguments.name}; nothing of it is left.")
    elif arguments.action == "kubeconfig":
        client.get(f"{PATH}/{quote(arguments.name, safe='')}")
        stdout().yaml(_kubeconfig_of(target.document(), arguments.name))
    else:
        return _diff(client, screen, arguments)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Refuse flags that do not belong to the action. OperatorError."""
    action = arguments.action
    if (action == "list") == bool(arguments.name):
        raise OperatorError("list takes no name" if arguments.name else f"which branch? `branch {action} NAME`")
    if arguments.at and action != "create":
        raise OperatorError(f"--at belongs to create: {action} has no moment")
    given = next((flag for flag in OF_DIFF if getattr(arguments, flag)), "")
    if action != "diff" and (given or arguments.output == PATCH):
        raise OperatorError(f"{'-o patch' if not given else f'--{given}'.replace('_', '-')} belongs to diff")


def _of_cluster(target: kubeconfig.Target) -> kubeconfig.Target:
    """Return the target of the cluster itself, if that of a branch or of a moment is current."""
    server = target.server.replaced(url=_without_prefix(target.server.url))
    document = target.document()
    for entry in document.get("clusters") or ():
        if isinstance(cluster := entry.get("cluster"), dict) and isinstance(cluster.get("server"), str):
            cluster["server"] = _without_prefix(cluster["server"])
    return kubeconfig.Target(server, target.namespace, target.headers, lambda: document)


def _without_prefix(url: str) -> str:
    parts = urlsplit(url)
    path = parts.path.partition(HISTORY)[0].partition(BRANCH)[0]
    return urlunsplit(parts._replace(path=path)).rstrip("/")


def _kubeconfig_of(document: Mapping[str, Any], name: str) -> Object:
    """Return a kubeconfig with the current context alone, in the branch."""
    current = document["current-context"]
    context = next(each for each in document["contexts"] if each["name"] == current)
    cluster = next(each for each in document["clusters"] if each["name"] == context["context"]["cluster"])
    users = [each for each in document.get("users") or () if each["name"] == context["context"]["user"]]
    server = f"{cluster['cluster']['server'].rstrip('/')}{BRANCH}{quote(name, safe='')}"
    here = f"{current}-branch-{name}"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": here, "cluster": {**cluster["cluster"], "server": server}}],
        "users": users,
        "contexts": [{"name": here, "context": {**context["context"], "cluster": here}}],
        "current-context": here,
    }


def _create(client: Client, screen: Screen, arguments: argparse.Namespace) -> None:
    spec: Object = {}
    if arguments.at and (moment := client.resolve_moment(arguments.at)):
        found = client.at(moment).get(PATH, {"limit": "1"})
        spec = {"revision": int(found["metadata"]["resourceVersion"])}
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Branch", "metadata": {"name": arguments.name}, "spec": spec}
    made = client.request("POST", PATH, body=body)
    if screen.format != "text":
        screen.document(made)
        return
    name = arguments.name
    screen.line(f"Created branch {name}. It begins with the cluster as of revision {made['spec']['revision']}.")
    screen.line(f"  kubectl chronicle branch kubeconfig {name} > {name}.yaml")
    screen.line(f"  kubectl --kubeconfig {name}.yaml apply -f …")


def _list(client: Client, screen: Screen) -> None:
    branches = list(client.items(PATH))
    if screen.format != "text":
        screen.document({"apiVersion": f"{GROUP}/v1", "kind": "BranchList", "items": branches})
        return
    now = utc_now()
    for each in branches:
        metadata = each["metadata"]
        created = ago(metadata["creationTimestamp"], now)
        screen.line(f"{metadata['name']:<24} begins at revision {each['spec']['revision']}, created {created}")
    if not branches:
        screen.note("there are no branches")


# -- the comparison ---------------------------------------------------------------------------------------------------


def _diff(client: Client, screen: Screen, arguments: argparse.Namespace) -> int:
    """Print the differences, and return 1 if there are any."""
    name, against = arguments.name, arguments.against or AGAINST[0]
    base = int(client.get(f"{PATH}/{quote(name, safe='')}")["spec"]["revision"])
    inside = client.replaced(transport=_Inside(client, name))
    kinds = Kinds.discover(inside)
    old, new = State(), State()
    for change in inside.items(f"{API}/{CHANGES}", {"against": against}):
        _add(change, old, new, kinds)
    for remark in dict.fromkeys(inside.omissions):
        screen.note(remark)
    if arguments.show_secrets:
        _show_secrets(old, client if against == "now" else client.at(str(base)))
        _show_secrets(new, inside)
    labels = ("now" if against == "now" else f"at {base}", f"in branch {name}")
    if screen.format == PATCH:
        title = f"Turns the state {labels[0]} into that {labels[1]}. Each patch fails if its values have changed."
        lines = list(patch_script(old, new, flags=_flags(arguments), title=title, secrets=arguments.show_secrets))
        for line in lines:
            screen.line(line)
        return int(any(not line.startswith(("#", "set -e")) for line in lines))
    changes = list(compare(old, new, arguments))
    if screen.format == "text":
        for each in changes:
            print_change(screen, each, labels, arguments)
        if not changes:
            screen.note(f"no differences in the {len(old.objects.keys() | new.objects.keys())} objects of the branch")
    else:
        screen.document({"differences": [document_of(each, arguments) for each in changes]})
    return int(bool(changes))


def _flags(arguments: argparse.Namespace) -> list[str]:
    return [f"--context={arguments.context}"] if arguments.context else []


class _Inside:
    """A transport of requests to a branch."""

    def __init__(self, client: Client, name: str) -> None:
        self._transport = client.transport
        self._prefix = f"{BRANCH}{quote(name, safe='')}"

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Any:
        return self._transport.send(method, f"{self._prefix}{path}", headers, body)

    def lines(self, path: str, headers: Mapping[str, str]) -> Any:
        return self._transport.lines(f"{self._prefix}{path}", headers)


def _add(change: Object, old: State, new: State, kinds: Kinds) -> None:
    """Add one changed object to both states. OperatorError: the branch serves no such kind."""
    for state, obj in ((old, change.get("before")), (new, change.get("after"))):
        if obj is None:
            continue
        if change["object"]["resource"].endswith(".kubechronicle"):
            continue  # the server's own bookkeeping, which has no API
        kind = kinds.of_object(obj["apiVersion"], obj["kind"])
        plural, _, group = change["object"]["resource"].partition(".")
        state.add(kind or _unserved(plural, group, obj), obj)


def _unserved(plural: str, group: str, obj: Object) -> Kind:
    """Return the kind of an object whose definition the branch does not serve, such as one it deleted."""
    version = str(obj["apiVersion"]).rpartition("/")[2]
    return Kind(group, version, plural, "", obj["kind"], bool(obj["metadata"].get("namespace")), frozenset())


def _show_secrets(state: State, client: Client) -> None:
    """Replace masked Secrets by their values, which the server records if they are of the past."""
    for key in _secrets(state):
        found = client.get_if(state.kinds[key[:2]].path(key[2], key[3]))
        if found is not None:
            state.objects[key] = found


def _secrets(state: State) -> Iterator[tuple[str, str, str, str]]:
    yield from [key for key in state.objects if key[:2] == ("", "Secret")]
