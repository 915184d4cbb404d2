"""`log`: what happened to an object, a kind, a namespace: newest first, with the fields each change set."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import Final

from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client import changes, kubeconfig, output, revision_texts, session
from kubechronicle.ops.client.session import Session
from kubechronicle.ops.errors import OperatorError

EXAMPLES: Final = """\
  kubectl chronicle log deployment/web                     all that happened to it, newest first
  kubectl chronicle log deployment/web --field spec.template
  kubectl chronicle log -n shop --since 2h --user jane     what jane did in the namespace in the last two hours
  kubectl chronicle log pods -A --limit 20                 the newest twenty changes of pods
  kubectl chronicle log deployment/web --watch             and what comes, oldest first
"""
LIMIT: Final = 100


def add_flags(parser: argparse.ArgumentParser) -> None:
    session.add_subject(parser, needed=False)
    session.add_all_namespaces(parser)
    parser.add_argument("--since", metavar="MOMENT", default="", help="only what came after: 2h, a time, a revision")
    parser.add_argument("--until", metavar="MOMENT", default="", help="only what came up to then")
    parser.add_argument(
        "--limit", metavar="N", type=int, default=LIMIT, help=f"so many at most, 0 for all (default {LIMIT})"
    )
    parser.add_argument("--user", metavar="NAME", default="", dest="by", help="only what this user did; NAME* for many")
    parser.add_argument("--field", metavar="PATH", default="", help="only changes of this field, or in it")
    parser.add_argument("--show-secrets", action="store_true", help="what Secrets held, instead of stars")
    parser.add_argument("-w", "--watch", action="store_true", help="go on with what comes; oldest first then")
    output.add_flags(parser)
    kubeconfig.add_flags(parser)


def run(given: argparse.Namespace) -> int:
    """Exit code 0, also if nothing happened."""
    asking = Session.of(given)
    if given.limit < 0:
        raise OperatorError("--limit must not be negative")
    if given.watch and given.until:
        raise OperatorError("--watch and --until exclude each other")
    asked = _asked(asking)
    if given.watch:
        return _watch(asking, asked)
    _print(asking, changes.changes(asking.client, asked), asked)
    return 0


def _asked(asking: Session) -> changes.Asked:
    given = asking.given
    if given.what:
        subject = session.subject(asking, given.what, asking.kinds(), named=False)
        scopes = changes.scopes_of(subject)
    else:
        scopes = changes.scopes_in("" if given.all_namespaces else asking.namespace)
    fields = changes.bounds(asking.client, given.since, given.until)
    if given.by:
        fields["who.username"] = given.by
    if given.field:
        fields["changed"] = session.field_path(given.field)
    return changes.Asked(scopes, fields, limit=given.limit)


def _print(asking: Session, found: Iterable[Object], asked: changes.Asked) -> None:
    screen = asking.screen
    if screen.format != "text":
        items = [_shown(asking, each) for each in found]
        screen.document({"apiVersion": "history.kubechronicle.dev/v1", "kind": "RevisionList", "items": items})
    else:
        count = _entries(asking, found)
        if not count:
            screen.note("nothing has happened there" + (" since" if asking.given.since else ""))
        elif count == asked.limit:
            screen.note(f"these are the newest {count}; --limit 0 tells all")
    for complaint in asked.complaints:
        screen.note(f"not looked at: {complaint}")


def _entries(asking: Session, found: Iterable[Object]) -> int:
    now, count, field = asking.client.now(), 0, session.field_path(asking.given.field) if asking.given.field else ""
    for count, revision in enumerate(found, 1):
        if count > 1:
            asking.screen.line()
        made = revision_texts.made(revision, field=field)
        if not asking.given.show_secrets:
            made = revision_texts.concealed(made, revision)
        revision_texts.entry(asking.screen, revision, made, now)
        asking.screen.stream.flush()
    return count


def _shown(asking: Session, revision: Object) -> Object:
    return revision_texts.document(revision, secrets=asking.given.show_secrets)


def _watch(asking: Session, asked: changes.Asked) -> int:
    """Until it is interrupted."""
    reached = changes.newest(asking.client, asked.scopes[0])
    past = list(changes.changes(asking.client, asked))[::-1]

    def all_of_it() -> Iterator[Object]:
        yield from (each for each in past if changes.number(each) <= reached)
        fields = {name: value for name, value in asked.fields.items() if not name.endswith(".from")}
        yield from changes.follow(asking.client, changes.Asked(asked.scopes, fields), reached)

    if asking.screen.format == "text":
        _entries(asking, all_of_it())
    else:
        asking.screen.documents(_shown(asking, each) for each in all_of_it())
    return 0
