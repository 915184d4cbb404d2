"""`tag create|list|delete`: names for moments of history, usable as tag:NAME wherever a moment is."""

from __future__ import annotations

import argparse
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from kubechronicle.api.history.tags import PREFIX, TAGS, unknown
from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.printable import printable
from kubechronicle.ops.client import kubeconfig, output
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.output import format_time
from kubechronicle.ops.client.session import Session
from kubechronicle.ops.client.subjects import add_reason_flag
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.terminal import Painted

EXAMPLES: Final = """\
  kubectl chronicle tag create release-7                        the present state of the cluster
  kubectl chronicle tag create before-the-fire --at 14:05 --reason "ticket 42"
  kubectl chronicle diff deployment/web --from tag:release-7
  kubectl chronicle between tag:release-7 tag:release-8
  kubectl chronicle tag list
  kubectl chronicle tag delete release-7
"""
API: Final = f"/apis/{HISTORY}/v1/{TAGS}"
CREATE, LIST, DELETE = ACTIONS = ("create", "list", "delete")
HISTORY_TEXTS: Final = {True: "kept", False: "dropped"}


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", metavar="|".join(ACTIONS), choices=ACTIONS)
    parser.add_argument("names", metavar="NAME", nargs="*", help="of the tag")
    parser.add_argument("--at", metavar="MOMENT", default="now", help="the moment to name (default now)")
    add_reason_flag(parser)
    output.add_flags(parser)
    kubeconfig.add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0. OperatorError."""
    session = Session.open(arguments)
    if arguments.action == LIST:
        _list(session, arguments.names)
    elif not arguments.names:
        raise OperatorError(f"name the tag, as in `tag {arguments.action} release-7`")
    elif arguments.action == CREATE:
        _create(session, arguments.names)
    else:
        _delete(session, arguments.names)
    return 0


def _create(session: Session, names: Sequence[str]) -> None:
    if len(names) > 1:
        raise OperatorError("create one tag at a time")
    name, client = names[0].removeprefix(PREFIX), session.client
    moment = client.resolve_moment(session.arguments.at)
    fields = {"revision": moment} if moment.isdigit() else {"moment": moment}
    spec = {key: value for key, value in {**fields, "reason": client.reason}.items() if value}
    body = {"apiVersion": f"{HISTORY}/v1", "kind": "Tag", "metadata": {"name": name}, "spec": spec}
    tag = client.request("POST", API, body=body)
    if session.screen.format == "text":
        spec = tag["spec"]
        session.screen.line(f"tag {name} names revision {spec['revision']}, {format_time(spec['time'])}")
    else:
        session.screen.document(tag)


def _list(session: Session, names: Sequence[str]) -> None:
    """Print the tags by their revisions, the newest first."""
    found = [tag for tag in session.client.items(API) if not names or tag["metadata"]["name"] in names]
    for name in set(names) - {tag["metadata"]["name"] for tag in found}:
        raise OperatorError(unknown(name))
    found.sort(key=_revision)
    first = bisect_left(found, True, key=lambda tag: _is_kept(session.client, tag))
    rows = [(tag, place >= first) for place, tag in enumerate(found)][::-1]
    if session.screen.format != "text":
        items = [{**tag, "history": HISTORY_TEXTS[kept]} for tag, kept in rows]
        session.screen.items(f"{HISTORY}/v1", "TagList", items)
        return
    if not rows:
        session.screen.note("there are no tags")
        return
    _print(session, rows)


def _print(session: Session, rows: Sequence[tuple[Object, bool]]) -> None:
    titles = ("NAME", "REVISION", "TIME", "USER", "HISTORY", "REASON")
    cells = [titles, *(_cells(tag, kept) for tag, kept in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for place, row in enumerate(cells):
        line = "  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip()
        gone = place and not rows[place - 1][1]
        session.screen.line(Painted(line, "dim" if gone else "strong") if gone or not place else line)


def _cells(tag: Mapping[str, Any], kept: bool) -> tuple[str, ...]:
    spec = tag["spec"]
    texts = (tag["metadata"]["name"], spec["revision"], format_time(spec["time"]), spec.get("user", ""))
    return (*map(printable, texts), HISTORY_TEXTS[kept], printable(spec.get("reason", "")))


def _revision(tag: Mapping[str, Any]) -> int:
    return int(tag["spec"]["revision"])


def _is_kept(client: Client, tag: Mapping[str, Any]) -> bool:
    """Tell whether the history of a tag's revision is kept. Revisions are dropped from the oldest on."""
    try:
        client.at(str(_revision(tag))).get(API, {"limit": "1"})
    except ApiError as error:
        if error.code != 410:
            raise
        return False
    return True


def _delete(session: Session, names: Sequence[str]) -> None:
    for name in (each.removeprefix(PREFIX) for each in names):
        try:
            session.client.request("DELETE", f"{API}/{quote(name, safe='')}")
        except ApiError as error:
            if error.code == 404:
                raise OperatorError(unknown(name)) from None
            raise
        if session.screen.format == "text":
            session.screen.line(f"tag {name} is deleted; the history that it named is not")
