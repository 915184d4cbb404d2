"""`can-i VERB RESOURCE` and `who can VERB RESOURCE`: rights at a moment, since when, through which binding, by whom.

The server computes the answer (``?summary=rights`` of revisions). The exit code of `can-i` is 0 for yes, 1 for no.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from kubechronicle.ops.client import output
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.output import ago, format_time
from kubechronicle.ops.client.revision_reader import API
from kubechronicle.ops.client.session import Session, add_source_flags
from kubechronicle.ops.client.subjects import add_all_namespaces_flag, add_flags_of_rights
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.terminal import Painted

EXAMPLES: Final = """\
  kubectl chronicle can-i delete pods -n shop --as uma --at 2h
  kubectl chronicle can-i get secret/key -n shop --as system:serviceaccount:shop:web --at 2026-11-20T09:00Z
  kubectl chronicle can-i create deployments -n shop --as uma --as-group ops
  kubectl chronicle can-i get /metrics --as monitor --at 217
exit code: 0 for yes, 1 for no, 2 for errors
"""
NOT_KINDS: Final = ("*", "users", "groups", "uids", "userextras")
"""Resources that rules name, and that are no kinds."""
SYSTEM: Final = "system:"
HOW: Final = "name a verb and a resource or path, as in `can-i delete pods` or `can-i get /metrics`"


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", metavar="VERB RESOURCE", nargs="+", help="RESOURCE[/NAME], or a path such as /metrics")
    add_flags_of_rights(parser)
    add_all_namespaces_flag(parser)
    output.add_flags(parser)
    add_source_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0 for yes, 1 for no. OperatorError."""
    # The question is about the user of --as, and asked with the credentials of the kubeconfig.
    user, groups = getattr(arguments, "as"), arguments.as_group
    setattr(arguments, "as", "")
    arguments.as_group = []
    session = Session.open(arguments)
    about = {"user": user} if user else {"self": "true"}
    found = ask(session, arguments.words, about, groups)
    if session.screen.format == "text":
        _print_answer(session, found)
    else:
        session.screen.document(found)
    return 0 if found["allowed"] else 1


def who_can(arguments: argparse.Namespace) -> int:
    """Return exit code 0, or 1 if nobody can. OperatorError."""
    session = Session.open(arguments)
    found = ask(session, arguments.words, {}, ())
    if session.screen.format == "text":
        _print_subjects(session, found)
    else:
        session.screen.document(found)
    return 0 if found["subjects"] else 1


def ask(session: Session, words: Sequence[str], about: Mapping[str, str], groups: Sequence[str]) -> dict[str, Any]:
    """Return the server's answer. OperatorError."""
    namespace, request = _request(session, words)
    client: Client = session.client.at(session.client.resolve_moment(session.arguments.at))
    scope = f"namespaces/{quote(namespace, safe='')}/revisions" if namespace else "clusterrevisions"
    parameters = {"summary": "rights", **request, **about}
    if groups:
        parameters["userGroups"] = json.dumps(groups)
    return client.get(f"{API}/{scope}", parameters)


def _request(session: Session, words: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return the namespace and the parameters of the request that the question is about. OperatorError."""
    if len(words) < 2:
        raise OperatorError(HOW)
    verb, first = words[0], words[1]
    if first.startswith("/"):
        if len(words) > 2:
            raise OperatorError(HOW)
        return "", {"verb": verb.lower(), "path": first}
    request = {"verb": verb.lower(), "subresource": session.arguments.subresource}
    everywhere = session.arguments.all_namespaces
    type_name, _, name = first.partition("/")
    if type_name in NOT_KINDS:
        request |= {"resource": type_name, "group": "*" if type_name == "*" else "", "name": name or "".join(words[2:])}
        return "" if everywhere else session.namespace, _without_empty(request)
    subject = session.subject(words[1:], session.kinds(), name_required=False)
    request |= {"resource": subject.kind.plural, "group": subject.kind.group, "name": subject.name}
    return subject.namespace, _without_empty(request)


def _without_empty(request: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in request.items() if value}


# -- output -----------------------------------------------------------------------------------------------------------


def described(request: Mapping[str, str]) -> str:
    """Return a request in words: ``delete pods in namespace shop``."""
    if "path" in request:
        return f"{request['verb']} {request['path']}"
    resource = request["resource"] + (f".{request['group']}" if request.get("group") else "")
    resource += f"/{request['name']}" if request.get("name") else ""
    resource += f" ({request['subresource']})" if request.get("subresource") else ""
    where = f" in namespace {request['namespace']}" if request.get("namespace") else ""
    return f"{request['verb']} {resource}{where}"


def _moment(found: Mapping[str, Any]) -> str:
    return f"at {format_time(found['time'])} (revision {found['metadata']['resourceVersion']})"


def _print_answer(session: Session, found: Mapping[str, Any]) -> None:
    screen = session.screen
    was = "was" if session.client.resolve_moment(session.arguments.at) else "is"
    allowed = f"{was} allowed to" if found["allowed"] else f"{was} not allowed to"
    screen.line(Painted("yes" if found["allowed"] else "no", "strong"))
    screen.line(f"{found['user']} {allowed} {described(found['request'])} {_moment(found)}.")
    screen.line()
    details = [
        ("since", _since(session, found)),
        ("until", _until(session, found)),
        *(("through", _through(each)) for each in found.get("through") or ()),
        ("reason", found.get("reason", "") if not found.get("through") else ""),
        ("groups", f"{', '.join(found['groups']) or 'none'}{_origin(found)}"),
        ("decided by", f"{', '.join(found['authorizers'])} (the present flags)"),
    ]
    for name, text in details:
        if text:
            screen.line("  ", Painted(f"{name:<10}", "dim"), f" {text}")


def _origin(found: Mapping[str, Any]) -> str:
    """Return where the groups are from."""
    origin = found.get("groupsFrom")
    if origin == "revision":
        return f" (as in the user's change {found['groupsRevision']})"
    if origin == "none":
        return " (no change of the user is in the log; name others with --as-group)"
    return " (of the present credential)" if origin == "credential" else ""


def _since(session: Session, found: Mapping[str, Any]) -> str:
    since = found.get("since")
    if since is None:
        return ""
    if since.get("always"):
        return "the beginning of history"
    return f"at least revision {since['atLeast']}" if "atLeast" in since else _turn(session, since)


def _until(session: Session, found: Mapping[str, Any]) -> str:
    if "since" not in found:
        return ""
    until = found.get("until")
    if until is None:
        return "now"
    return f"at least revision {until['atLeast']}" if "atLeast" in until else _turn(session, until)


VERBS: Final = {"Create": "created", "Update": "changed", "Delete": "deleted"}


def _turn(session: Session, turn: Mapping[str, Any]) -> str:
    """Return a turning point: ``revision 203  2026-11-21 17:10:00Z (5m ago)  jane created rolebinding ops``."""
    of = turn["object"]
    who = (turn.get("who") or {}).get("username") or ("<no right to read>" if turn.get("redacted") else "<unknown>")
    impersonator = (turn.get("who") or {}).get("impersonator")
    who += f" (by {impersonator})" if impersonator else ""
    place = f" in namespace {of['namespace']}" if of.get("namespace") else ""
    when = f"{format_time(turn['time'])} ({ago(turn['time'], session.client.now())})"
    changed = f"{VERBS[turn['operation']]} {of['resource'].removesuffix('s')}/{of['name']}{place}"
    return f"revision {turn['revision']}  {when}  {who} {changed}"


def _through(through: Mapping[str, Any]) -> str:
    def named(of: Mapping[str, str]) -> str:
        return f"{of['kind']} {of['namespace']}/{of['name']}" if of.get("namespace") else f"{of['kind']} {of['name']}"

    return f"{named(through['binding'])} of {named(through['role'])}"


def _print_subjects(session: Session, found: Mapping[str, Any]) -> None:
    """Print the subjects; those of the system with --all."""
    screen, everybody = session.screen, getattr(session.arguments, "all", False)
    question = f"{described(found['request'])} {_moment(found)}"
    shown = [each for each in found["subjects"] if everybody or not each["name"].startswith(SYSTEM)]
    if shown:
        screen.line(f"Allowed to {question}:")
    else:
        screen.line(f"No binding let anybody {question}" + (" but the system." if found["subjects"] else "."))
    for each in shown:
        screen.line()
        screen.line("  ", Painted(f"{each['kind'].lower()} {each['name']}", "strong"))
        details = [("since", _since(session, each)), ("until", _until(session, each))]
        details += [("through", _through(one)) for one in each.get("through") or ()]
        for name, text in details:
            screen.line("    ", Painted(f"{name:<8}", "dim"), f" {text}")
    if hidden := len(found["subjects"]) - len(shown):
        screen.note(f"{hidden} users and groups of the system (system:…) are left out; --all lists them")
    if found["total"] > len(found["subjects"]):
        screen.note(f"{found['total'] - len(found['subjects'])} more subjects are left out")
    others = [each for each in found["authorizers"] if each != "RBAC"]
    beside = f"; not listed: rights by {', '.join(others)}" if others else ""
    screen.note(f"Members of system:masters can do everything{beside}.")
