"""`branch`: create, list and delete branches, print a kubeconfig for one, compare it, and merge it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

from kubechronicle.api.history.branches import AGAINST, BRANCHES
from kubechronicle.api.meta.owners import Key
from kubechronicle.api.meta.path_prefixes import BRANCH, HISTORY
from kubechronicle.api.registry.groups import HISTORY as GROUP
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.printable import printable
from kubechronicle.ops.client import kubeconfig, output
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.commands.diff import PATCH, compare, document_of, print_change
from kubechronicle.ops.client.commands.restore import confirm, print_results
from kubechronicle.ops.client.comparisons import patch_script
from kubechronicle.ops.client.kinds import Kinds
from kubechronicle.ops.client.output import Screen, ago, utc_now
from kubechronicle.ops.client.restoring.branch_merge import merged_state, merges, read_states, show_secrets
from kubechronicle.ops.client.restoring.execution import Execution, execute
from kubechronicle.ops.client.restoring.losses import LOST, losses, losses_document, print_losses
from kubechronicle.ops.client.restoring.reversal_texts import kept, plan_document, print_plan, tried_plan
from kubechronicle.ops.client.restoring.steps import Restorer, object_name
from kubechronicle.ops.client.session import connect
from kubechronicle.ops.client.subjects import add_reason_flag, checked_reason
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.terminal import Painted, stdout

EXAMPLES: Final = """\
  kubectl chronicle branch create try                      a branch of the cluster as it is now
  kubectl chronicle branch create try --at 2h              as it was two hours ago
  kubectl chronicle branch kubeconfig try > try.yaml       then: kubectl --kubeconfig try.yaml apply -f …
  kubectl chronicle branch diff try                        the changes of the branch
  kubectl chronicle branch diff try --against now          its objects, compared with those of the cluster now
  kubectl chronicle branch diff try --against now -o patch > make.sh
  kubectl chronicle branch merge try --dry-run             what a merge would change, and the conflicts
  kubectl chronicle branch merge try                       prints the plan, and asks
  kubectl chronicle branch list
  kubectl chronicle branch delete try
exit code: 0; of diff: 0 without differences, 1 with differences; of merge: 3 with conflicts; 2 for errors
"""
API: Final = f"/apis/{GROUP}/v1"
PATH: Final = f"{API}/{BRANCHES}"
ACTIONS: Final = ("create", "list", "delete", "kubeconfig", "diff", "merge")
OF_ACTIONS: Final = {
    "at": ("create",),
    "against": ("diff",),
    "no_status": ("diff",),
    "show_secrets": ("diff", "merge"),
    "dry_run": ("merge",),
    "yes": ("merge",),
    "reason_to_give": ("merge",),
}
"""The actions that each flag belongs to."""
WORDS: Final = {
    "create": "create",
    "update": "change",
    "replace": "delete and create",
    "delete": "delete",
    "leave": "leave",
}
TIMEOUT: Final = 300


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", metavar="|".join(ACTIONS), choices=ACTIONS)
    parser.add_argument("name", nargs="?", default="", help="the branch")
    parser.add_argument("--at", metavar="MOMENT", default="", help="create: 2h, a time, a revision (default now)")
    parser.add_argument("--against", choices=AGAINST, help="diff: the other state (default base)")
    parser.add_argument("--no-status", action="store_true", help="diff: omit statuses")
    parser.add_argument("--show-secrets", action="store_true", help="diff, merge: print values of Secrets")
    parser.add_argument("--dry-run", action="store_true", help="merge: only print the plan")
    parser.add_argument("-y", "--yes", action="store_true", help="merge: do not ask")
    add_reason_flag(parser)
    output.add_flags(parser, formats=("text", "json", "yaml", PATCH))
    kubeconfig.add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0; of diff 1 with differences. OperatorError."""
    _check(arguments)
    target = _of_cluster(kubeconfig.load(arguments))
    client = connect(target).replaced(
        shows_secrets=arguments.show_secrets, reason=checked_reason(arguments.reason_to_give)
    )
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
    elif arguments.action == "merge":
        return _merge(client, screen, arguments)
    else:
        return _diff(client, screen, arguments)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Refuse flags that do not belong to the action. OperatorError."""
    action = arguments.action
    if (action == "list") == bool(arguments.name):
        raise OperatorError("list takes no name" if arguments.name else f"which branch? `branch {action} NAME`")
    for flag, actions in OF_ACTIONS.items():
        if getattr(arguments, flag) and action not in actions:
            name = "reason" if flag == "reason_to_give" else flag.replace("_", "-")
            raise OperatorError(f"--{name} belongs to {' and '.join(actions)}")
    if action != "diff" and arguments.output == PATCH:
        raise OperatorError("-o patch belongs to diff")


def _of_cluster(target: kubeconfig.ClusterTarget) -> kubeconfig.ClusterTarget:
    """Return the target of the cluster itself, if that of a branch or of a moment is current."""
    server = target.server.replaced(url=_without_prefix(target.server.url))
    document = target.document()
    for entry in document.get("clusters") or ():
        if isinstance(cluster := entry.get("cluster"), dict) and isinstance(cluster.get("server"), str):
            cluster["server"] = _without_prefix(cluster["server"])
    return kubeconfig.ClusterTarget(server, target.namespace, target.headers, lambda: document)


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


# -- comparison and merge ---------------------------------------------------------------------------------------------


def _diff(client: Client, screen: Screen, arguments: argparse.Namespace) -> int:
    """Print the differences, and return 1 if there are any. Against the present, changes of others since the base are
    none of them."""
    name, against = arguments.name, arguments.against or AGAINST[0]
    base = int(client.get(f"{PATH}/{quote(name, safe='')}")["spec"]["revision"])
    inside = client.replaced(transport=_Inside(client, name))
    kinds = Kinds.discover(inside)
    old, new = read_states(inside, kinds, against)
    conflicts: Mapping[Key, list[str]] = {}
    if arguments.show_secrets:
        show_secrets(old, client if against == "now" else client.at(str(base)))
        show_secrets(new, inside)
    if against == "now":
        was, _ = read_states(inside, kinds, AGAINST[0])
        if arguments.show_secrets:
            show_secrets(was, client.at(str(base)))
        new, conflicts = merged_state(was, old, new, secrets=arguments.show_secrets)
    for remark in dict.fromkeys(inside.omissions):
        screen.note(remark)
    labels = ("now" if against == "now" else f"at {base}", f"in branch {name}")
    remarks = [f"{_title(key)}: {', '.join(fields)}: changed since the base" for key, fields in conflicts.items()]
    if screen.format == PATCH:
        title = f"Turns the state {labels[0]} into that {labels[1]}. Each patch fails if its values have changed."
        lines = list(patch_script(old, new, flags=_flags(arguments), title=title, secrets=arguments.show_secrets))
        for line in (*lines[:2], *(f"# conflict: {printable(each)}" for each in remarks), *lines[2:]):
            screen.line(line)
        return int(any(not line.startswith(("#", "set -e")) for line in lines))
    changes = list(compare(old, new, arguments))
    if screen.format == "text":
        for each in changes:
            print_change(screen, each, labels, arguments)
        if not changes:
            screen.note(f"no differences in the {len(old.objects.keys() | new.objects.keys())} objects of the branch")
        for remark in remarks:
            screen.note(f"conflict: {remark}; `branch merge` leaves it as it is now")
    else:
        documents = [document_of(each, arguments) for each in changes]
        screen.document(
            {"differences": [{**each, "conflicts": conflicts.get(_key(each), [])} for each in documents]}
            if against == "now"
            else {"differences": documents}
        )
    return int(bool(changes))


def _key(document: Object) -> Key:
    return document["group"], document["kind"], document["namespace"], document["name"]


def _title(key: Key) -> str:
    return object_name(key) + (f" -n {key[2]}" if key[2] else "")


def _merge(client: Client, screen: Screen, arguments: argparse.Namespace) -> int:
    """Merge the branch into the cluster, and return the exit code. OperatorError."""
    name, is_text = arguments.name, screen.format == "text"
    branch = client.get(f"{PATH}/{quote(name, safe='')}")
    base = int(branch["spec"]["revision"])
    if not client.reason:
        client = client.replaced(reason=f"merge of branch {name}, which began at revision {base}")
    inside = client.replaced(transport=_Inside(client, name))
    kinds = Kinds.discover(inside)
    was, wanted = read_states(inside, kinds, AGAINST[0])
    masked = show_secrets(was, client.at(str(base))) | show_secrets(wanted, inside)
    cause = int(branch["metadata"]["resourceVersion"])
    plan, unread = merges(client, was, wanted, revision=base, cause=cause, masked=masked)
    unread |= dict.fromkeys(inside.omissions, "not merged")
    of_kinds = {(kind.group, kind.kind): kind for kind in (*kinds.all, *Kinds.discover(client).all)}
    of_kinds |= was.kinds | wanted.kinds
    plan = tried_plan(Restorer(client, of_kinds, timeout=TIMEOUT, dry_run=True), plan)
    if is_text:
        screen.line(Painted(f"To merge branch {name}, which began at revision {base}:", "strong"))
        nothing = "Nothing to merge: every object is as in the branch."
        shown = [each for each in plan if each.step is None or each.step.action != "leave" or each.conflicts]
        print_plan(screen, shown, WORDS, nothing=nothing, show_secrets=arguments.show_secrets)
    to_do = [each.step for each in plan if each.step is not None and each.step.action != "leave"]
    done = Execution([])
    if to_do and not arguments.dry_run:
        confirm(arguments, is_text=is_text, done="merged", does="merges")
        restorer = Restorer(client, of_kinds, timeout=TIMEOUT, remerges=False, updated="changed")
        done = execute(client, restorer, to_do, "merging")
        if is_text:
            print_results(screen, done, "merged")
    stays = losses([each.step for each in plan if each.step is not None], done.results, replace=True, unread=unread)
    stays += kept(plan)
    if is_text:
        print_losses(screen, stays, "What is not merged:")
    else:
        screen.document(plan_document(plan, done) | {"lost": losses_document(stays)})
    return LOST if stays else 0


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
