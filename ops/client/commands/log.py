"""`log`: list the changes of an object, a kind or a namespace, newest first, with the fields each change set."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from kubechronicle.api.history.positions import covers
from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client import output
from kubechronicle.ops.client.revision_reader import (
    RevisionQuery,
    bounds,
    follow,
    newest_position,
    number_of,
    read_revisions,
    scopes_in,
    scopes_of,
)
from kubechronicle.ops.client.revision_texts import field_changes, mask_changes, print_revision, revision_document
from kubechronicle.ops.client.searches import Search, explain, note_beginning
from kubechronicle.ops.client.session import Session, add_selector_flag, add_source_flags, split_objects
from kubechronicle.ops.client.subjects import (
    add_all_namespaces_flag,
    add_noise_flag,
    add_subject_flags,
    field_path,
    noise_of,
)
from kubechronicle.ops.errors import OperatorError

EXAMPLES: Final = """\
  kubectl chronicle log deployment/web                     all its changes, newest first
  kubectl chronicle log deployment/web --field spec.template
  kubectl chronicle log -n shop --since 2h --user jane     jane's changes in the namespace in the last two hours
  kubectl chronicle log pods -A --limit 20                 the newest twenty changes of pods
  kubectl chronicle log deployment/web service/web         the changes of both, in one order
  kubectl chronicle log pods -n shop -l app=web            of the Pods with this label
  kubectl chronicle log -A --reason "ticket 42"            the changes that were made for this reason
  kubectl chronicle log -n shop --without-reason           those that nobody gave a reason for
  kubectl chronicle log roles,rolebindings,clusterroles,clusterrolebindings -A --since 90d
  kubectl chronicle log deployment/web -f                  past and new changes, oldest first
"""
LIMIT: Final = 100
SERVERS: Final = ("system:apiserver", "system:kube-controller-manager", "system:kube-scheduler")
"""Users whose changes need no reason."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_subject_flags(parser, required=False)
    add_all_namespaces_flag(parser)
    parser.add_argument("--since", metavar="MOMENT", default="", help="only changes after it: 2h, a time, a revision")
    parser.add_argument("--until", metavar="MOMENT", default="", help="only changes up to it")
    parser.add_argument(
        "--limit", metavar="N", type=int, default=LIMIT, help=f"print at most N, 0 for all (default {LIMIT})"
    )
    parser.add_argument(
        "--user", metavar="NAME", default="", help="only changes by this user, also as another one; NAME* is a prefix"
    )
    add_selector_flag(parser)
    add_noise_flag(parser)
    parser.add_argument(
        "--reason", metavar="TEXT", default="", help="only changes whose reason has this text, in upper or lower case"
    )
    parser.add_argument(
        "--without-reason",
        action="store_true",
        help="only changes that have neither a reason nor a recorded cause: nobody said why",
    )
    parser.add_argument("--field", metavar="PATH", default="", help="only changes of this field, or within it")
    parser.add_argument("--show-secrets", action="store_true", help="print values of Secrets instead of stars")
    parser.add_argument(
        "-w",
        "-f",
        "--watch",
        "--follow",
        dest="watch",
        action="store_true",
        help="go on with new changes; oldest first",
    )
    output.add_flags(parser)
    add_source_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0, also without changes."""
    session = Session.open(arguments)
    if arguments.limit < 0:
        raise OperatorError("--limit must not be negative")
    if arguments.without_reason and (arguments.reason or arguments.watch):
        raise OperatorError("--without-reason goes neither with --reason nor with --watch")
    if arguments.watch and arguments.until:
        raise OperatorError("--watch and --until exclude each other")
    searches = _searches(session)
    scopes = list(dict.fromkeys(scope for search in searches for scope in search.query.scopes))
    query = searches[0].query.replaced(scopes=scopes)
    if arguments.watch:
        return _watch(session, query)
    revisions = read_revisions(session.client, query)
    if arguments.without_reason:
        unlimited = read_revisions(session.client, query.replaced(limit=0))
        revisions = islice(filter(_is_unexplained, unlimited), query.limit or None)
    count = _print(session, revisions)
    for warning in query.warnings:
        session.screen.note(f"skipped: {warning}")
    if not count:
        for search in searches:
            session.screen.note(f"no changes: {explain(session, search)}")
    elif count == query.limit:
        session.screen.note(f"these are the newest {count}; --limit 0 prints all")
    else:
        for search in searches:
            note_beginning(session, search)
    return 0


def _is_unexplained(revision: Object) -> bool:
    """Tell whether nobody said why: no reason, no cause, and no change of the server itself."""
    user = str((revision.get("who") or {}).get("username", ""))
    return not (revision.get("reason") or revision.get("cause")) and user not in SERVERS


def _searches(session: Session) -> list[Search]:
    """Return a search for each object or kind, or one for the namespace or the cluster."""
    arguments = session.arguments
    field = field_path(arguments.field) if arguments.field else ""
    fields = bounds(session.client, arguments.since, arguments.until)
    if arguments.user:
        fields["who.actor"] = arguments.user
    if field:
        fields["changed"] = field
    if arguments.reason:
        fields["reason"] = arguments.reason
    if not arguments.words:
        namespace = "" if arguments.all_namespaces else session.namespace
        query = RevisionQuery(
            scopes_in(namespace), fields | noise_of(arguments), limit=arguments.limit, labels=arguments.selector
        )
        return [Search(query, None, namespace, arguments.since, field)]
    kinds, found = session.kinds(), []
    for words in split_objects(arguments.words):
        subject = session.subject(words, kinds, name_required=False)
        query = RevisionQuery(scopes_of(subject), fields, limit=arguments.limit, labels=arguments.selector)
        found.append(Search(query, subject, "", arguments.since, field))
    return found


def _print(session: Session, revisions: Iterable[Object]) -> int:
    """Print the revisions as they arrive, and return their number."""
    if session.screen.format == "text":
        return _print_entries(session, revisions)
    count = 0

    def documents() -> Iterator[Object]:
        nonlocal count
        for revision in revisions:
            count += 1
            yield _document(session, revision)

    session.screen.items(f"{HISTORY}/v1", "RevisionList", documents())
    return count


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
    fields = {name: value for name, value in query.fields.items() if not name.endswith(".from")}
    newest = newest_position(session.client, query.replaced(fields=fields))

    def past_and_new() -> Iterator[Object]:
        # The newest of a limited number come newest first. Without a limit, nothing needs to be held back.
        past = read_revisions(session.client, query.replaced(oldest_first=not query.limit))
        for revision in list(past)[::-1] if query.limit else past:
            if covers(newest, number_of(revision)):
                yield revision
        yield from follow(session.client, RevisionQuery(query.scopes, fields, labels=query.labels), newest)

    if session.screen.format == "text":
        _print_entries(session, past_and_new())
    else:
        session.screen.documents(_document(session, revision) for revision in past_and_new())
    return 0
