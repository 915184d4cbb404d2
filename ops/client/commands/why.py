"""`why TYPE/NAME`: the changes that explain the state of an object, each with its causes, up to people and programs."""

from __future__ import annotations

import argparse
from typing import Final

from kubechronicle.api.history.cells import action_of, changed_cell, object_cell
from kubechronicle.api.values.printable import printable
from kubechronicle.ops.client import output
from kubechronicle.ops.client.explaining import Explainer, Explanation, Suspect, explanation_document
from kubechronicle.ops.client.output import Screen, ago, format_time, utc_now
from kubechronicle.ops.client.revision_reader import RevisionQuery, scopes_of
from kubechronicle.ops.client.revision_texts import Chain, user_of
from kubechronicle.ops.client.searches import Search, explain
from kubechronicle.ops.client.session import Session, add_source_flags
from kubechronicle.ops.client.subjects import add_subject_flags
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.terminal import Painted

EXAMPLES: Final = """\
  kubectl chronicle why pod/web-7c5d             why it crashes, or does not start
  kubectl chronicle why service/web              why it has no endpoints
  kubectl chronicle why deployment/web --limit 0
  kubectl chronicle why configmap/settings       why it is as it is, or why it is gone
"""
LIMIT: Final = 5
MOST_EVENTS: Final = 5


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_subject_flags(parser)
    parser.add_argument(
        "--limit", metavar="N", type=int, default=LIMIT, help=f"print N changes, 0 for all (default {LIMIT})"
    )
    output.add_flags(parser)
    add_source_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0, or 1 if no change explains the object. OperatorError."""
    if arguments.limit < 0:
        raise OperatorError("--limit must not be negative")
    session = Session.open(arguments)
    kinds = session.kinds()
    subject = session.subject(arguments.words, kinds)
    found = Explainer(session.client, kinds, subject, limit=arguments.limit or 1000).explain()
    is_known = bool(found.suspects or found.deletion)
    nothing = "" if is_known else explain(session, Search(RevisionQuery(scopes_of(subject)), subject))
    if session.screen.format != "text":
        session.screen.document(explanation_document(found) | ({"nothing": nothing} if nothing else {}))
    else:
        _print(session.screen, found, nothing)
    for name, reason in found.unread.items():
        session.screen.note(f"not searched: {name}: {reason}")
    return 0 if is_known else 1


# -- output -----------------------------------------------------------------------------------------------------------


def _print(screen: Screen, found: Explanation, nothing: str) -> None:
    name = found.subject.description
    if found.deletion is not None:
        screen.line(Painted(f"{name} does not exist: it was deleted.", "strong"))
        _print_chain(screen, found.deletion)
    elif found.symptoms:
        screen.line(Painted(f"{name}:", "strong"))
    else:
        screen.line(Painted(f"The status of {name} tells of no problem.", "strong"))
    for subject, symptom in found.symptoms:
        where = "" if subject == str(found.subject) else f"{subject}: "
        since = f", since {format_time(symptom.since)}" if symptom.since else ""
        screen.line("  ", Painted(printable(f"{where}{symptom.text}{since}"), "warning"))
    for event in found.events[-MOST_EVENTS:]:
        times = f" (×{event['count']})" if event.get("count", 1) > 1 else ""
        screen.line("  ", printable(f"Event {event.get('reason')}: {event.get('message')}{times}"))
    if nothing:
        screen.line(f"No change explains it: {nothing}.")
    elif found.suspects:
        before = " before the first symptom" if found.since else ""
        screen.line(f"The last changes of it and of the objects it depends on, the nearest{before} first:")
    for suspect in found.suspects:
        screen.line()
        _print_suspect(screen, suspect, since=found.since)


def _print_suspect(screen: Screen, suspect: Suspect, *, since: str) -> None:
    after = Painted(" after the first symptom", "dim") if since and not suspect.before else ""
    relation = Painted(f"  {suspect.related.subject}: {suspect.related.relation}", "dim")
    screen.line(relation, after)
    _print_chain(screen, suspect.chain)
    commit, name = suspect.commit
    if commit:
        screen.line("    commit ", Painted(commit, "strong"), Painted(printable(f" ({name})"), "dim"))


def _print_chain(screen: Screen, chain: Chain) -> None:
    how = ""
    for place, link in enumerate(chain.links):
        time, indent = link.get("time", ""), "  " * place
        namespace = link["object"].get("namespace")
        where = f" -n {namespace}" if namespace else ""
        screen.line(
            f"  {indent}{'because ' if place else ''}",
            Painted(f"revision {link['metadata']['name']}", "revision"),
            f"  {format_time(time)} ({ago(time, utc_now())})  ",
            Painted(f"{action_of(link)} {object_cell(link)}{where}", "strong"),
            "  by ",
            Painted(user_of(link), "who"),
            Painted(f"  ({how})" if how else "", "dim"),
        )
        if link["operation"] == "Update":
            screen.line(f"    {indent}{changed_cell(link)}")
        if reason := link.get("reason"):
            screen.line(f"    {indent}reason: ", Painted(printable(reason), "strong"))
        how = str(link.get("explained", "")) if link.get("known") == "inferred" else ""
    if chain.stopped:
        screen.line("    ", Painted(f"earlier causes are not known: {chain.stopped}", "warning"))
