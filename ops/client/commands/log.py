"""`log`: list the changes of an object, a kind or a namespace, newest first, with the fields each change set."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from kubechronicle.api.registry.resources import HISTORY
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client import kubeconfig, output
from kubechronicle.ops.client.revision_reader import (
    RevisionQuery,
    bounds,
    follow,
    newest_revision,
    number_of,
    read_revisions,
    scopes_in,
    scopes_of,
)
from kubechronicle.ops.client.revision_texts import field_changes, mask_changes, print_revision, revision_document
from kubechronicle.ops.client.session import Session
from kubechronicle.ops.client.subjects import add_all_namespaces_flag, add_subject_flags, field_path
from kubechronicle.ops.errors import OperatorError

EXAMPLES: Final = """\
  kubectl chronicle log deployment/web                     all its changes, newest first
  kubectl chronicle log deployment/web --field spec.template
  kubectl chronicle log -n shop --since 2h --user jane     jane's changes in the namespace in the last two hours
  kubectl chronicle log pods -A --limit 20                 the newest twenty changes of pods
  kubectl chronicle log deployment/web --watch             past and new changes, oldest first
"""
LIMIT: Final = 100


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_subject_flags(parser, required=False)
    add_all_namespaces_flag(parser)
    parser.add_argument("--since", metavar="MOMENT", default="", help="only changes after it: 2h, a time, a revision")
    parser.add_argument("--until", metavar="MOMENT", default="", help="only changes up to it")
    parser.add_argument(
        "--limit", metavar="N", type=int, default=LIMIT, help=f"print at most N, 0 for all (default {LIMIT})"
    )
    parser.add_argument("--user", metavar="NAME", default="", help="only changes by this user; NAME* is a prefix")
    parser.add_argument("--field", metavar="PATH", default="", help="only changes of this field, or within it")
    parser.add_argument("--show-secrets", action="store_true", help="print values of Secrets instead of stars")
    parser.add_argument("-w", "--watch", action="store_true", help="go on with new changes; oldest first")
    output.add_flags(parser)
    kubeconfig.add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0, also without changes."""
    session = Session.open(arguments)
    if arguments.limit < 0:
        raise OperatorError("--limit must not be negative")
    if arguments.watch and arguments.until:
        raise OperatorError("--watch and --until exclude each other")
    query = _query(session)
    if arguments.watch:
        return _watch(session, query)
    _print(session, read_revisions(session.client, query), query)
    return 0


def _query(session: Session) -> RevisionQuery:
    arguments = session.arguments
    if arguments.words:
        scopes = scopes_of(session.subject(arguments.words, session.kinds(), name_required=False))
    else:
        scopes = scopes_in("" if arguments.all_namespaces else session.namespace)
    fields = bounds(session.client, arguments.since, arguments.until)
    if arguments.user:
        fields["who.username"] = arguments.user
    if arguments.field:
        fields["changed"] = field_path(arguments.field)
    return RevisionQuery(scopes, fields, limit=arguments.limit)


def _print(session: Session, revisions: Iterable[Object], query: RevisionQuery) -> None:
    screen = session.screen
    if screen.format != "text":
        screen.items(f"{HISTORY}/v1", "RevisionList", (_document(session, revision) for revision in revisions))
    else:
        count = _print_entries(session, revisions)
        if not count:
            screen.note("no changes" + (f" since {session.arguments.since}" if session.arguments.since else ""))
        elif count == query.limit:
            screen.note(f"these are the newest {count}; --limit 0 prints all")
    for warning in query.warnings:
        screen.note(f"skipped: {warning}")


def _print_entries(session: Session, revisions: Iterable[Object]) -> int:
    """Print the revisions as they arrive, and return their number."""
    arguments, now, count = session.arguments, session.client.now(), 0
    field = field_path(arguments.field) if arguments.field else ""
    for count, revision in enumerate(revisions, 1):
        if count > 1:
            session.screen.line()
        changes = field_changes(revision, field=field)
        if not arguments.show_secrets:
            changes = mask_changes(changes, revision["object"].get("kind", ""))
        print_revision(session.screen, revision, changes, now)
        session.screen.out.flush()
    return count


def _document(session: Session, revision: Object) -> Object:
    return revision_document(revision, show_secrets=session.arguments.show_secrets)


def _watch(session: Session, query: RevisionQuery) -> int:
    """Print past and new revisions until the command is interrupted."""
    newest = newest_revision(session.client, query.scopes[0])

    def past_and_new() -> Iterator[Object]:
        # The newest of a limited number come newest first. Without a limit, nothing needs to be held back.
        past = read_revisions(session.client, replace(query, oldest_first=not query.limit))
        for revision in list(past)[::-1] if query.limit else past:
            if number_of(revision) <= newest:
                yield revision
        fields = {name: value for name, value in query.fields.items() if not name.endswith(".from")}
        yield from follow(session.client, RevisionQuery(query.scopes, fields), newest)

    if session.screen.format == "text":
        _print_entries(session, past_and_new())
    else:
        session.screen.documents(_document(session, revision) for revision in past_and_new())
    return 0
