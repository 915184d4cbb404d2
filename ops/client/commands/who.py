"""`who created|deleted|changed TYPE/NAME`, `who set TYPE/NAME FIELD`: one sentence, then the details of the request.

`who tried` and `who entered` answer from recorded accesses (accesses.py).

A change that is a consequence of another one is traced to its cause (causes.py), up to a person or a program.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final, NamedTuple

from kubechronicle.api.history.accesses import DENIED, SESSION, TOKEN
from kubechronicle.api.history.cells import PAST_TENSES, action_of
from kubechronicle.api.history.differences import moved, same, shown_value, values_at
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.printable import printable
from kubechronicle.ops.client import output
from kubechronicle.ops.client.accesses import (
    AccessQuery,
    check_recorded,
    coverage,
    print_accesses,
    read_accesses,
)
from kubechronicle.ops.client.commands import can_i
from kubechronicle.ops.client.kinds import Kinds
from kubechronicle.ops.client.output import ago, format_time
from kubechronicle.ops.client.revision_reader import RevisionQuery, bounds, read_revisions, scopes_of
from kubechronicle.ops.client.revision_texts import VERBS, chain_of, past_tense, revision_document, subject_of, user_of
from kubechronicle.ops.client.searches import Search, explain
from kubechronicle.ops.client.session import Session, add_selector_flag, add_source_flags, subjects
from kubechronicle.ops.client.subjects import (
    HOW_TO_NAME,
    Subject,
    add_all_namespaces_flag,
    add_flags_of_rights,
    field_path,
)
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.terminal import Painted

EXAMPLES: Final = """\
  kubectl chronicle who deleted pod/web-7c5d
  kubectl chronicle who deleted namespace shop
  kubectl chronicle who created configmap/settings -o json
  kubectl chronicle who set deployment/web spec.replicas --all
  kubectl chronicle who set deploy/web 'spec.template.spec.containers[name=web].image'
  kubectl chronicle who changed secret/key --since 2h
  kubectl chronicle who can delete pods -n shop --at 2h
  kubectl chronicle who tried delete secrets -n shop --since 2h   and was refused
  kubectl chronicle who entered pod/web-1                         by exec, attach or port-forward
  kubectl chronicle who entered serviceaccount/ci                 by a token of it
"""
CAN: Final = "can"
TRIED, ENTERED = "tried", "entered"
ACTIONS: Final = ("created", "deleted", "changed", "set", CAN, TRIED, ENTERED)
# The number of an object's last changes that are searched for the request that marked it for deletion.
SEARCHED_CHANGES: Final = 50


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=ACTIONS, metavar="|".join(ACTIONS))
    parser.add_argument("words", metavar="TYPE/NAME", nargs="*", help="or TYPE NAME; with `set`, followed by a field")
    parser.add_argument(
        "--all",
        action="store_true",
        help="print every such change, newest first, not only the last; with `can`: users of the system, too",
    )
    parser.add_argument("--since", metavar="MOMENT", default="", help="only changes after it: 2h, a time, a revision")
    parser.add_argument("--until", metavar="MOMENT", default="", help="only changes up to it")
    parser.add_argument("--show-secrets", action="store_true", help="print a Secret's values instead of stars")
    add_selector_flag(parser)
    parser.add_argument("--by", metavar="USER", default="", help="tried, entered: only this user; USER* is a prefix")
    add_flags_of_rights(parser)
    add_all_namespaces_flag(parser)
    output.add_flags(parser)
    add_source_flags(parser)


class FoundChange(NamedTuple):
    """A change that answers the question.

    ``old``, ``new``: the field's values before and after, with `set`
    ``because``: the cause, at most one
    ``gone``: false for an object that is still in deletion
    ``how``: how it is known to be a cause, "" if that is recorded
    ``stopped``: why there may be earlier causes
    """

    subject: Subject
    revision: Object
    action: str
    field: str = ""
    old: tuple[Any, ...] = ()
    new: tuple[Any, ...] = ()
    because: tuple[FoundChange, ...] = ()
    gone: bool = True
    how: str = ""
    stopped: str = ""


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0, or 1 without an answer. OperatorError."""
    if arguments.action in (TRIED, ENTERED):
        return _accesses(arguments)
    if not arguments.words:
        raise OperatorError(f"which object? {HOW_TO_NAME}")
    if arguments.action == CAN:
        return can_i.who_can(arguments)
    session = Session.open(arguments)
    words, field = arguments.words, ""
    if arguments.action == "set":
        if len(words) < 2:
            raise OperatorError("a field is missing, as in `who set deployment/web spec.replicas`")
        words, field = words[:-1], field_path(words[-1])
    kinds = session.kinds()
    selectors = bounds(session.client, arguments.since, arguments.until)
    search = _ChangeSearch(session, kinds, selectors, limit=0 if arguments.all else 1)
    answers, nobody = list[FoundChange](), list[tuple[str, str]]()
    for subject in subjects(session, words, kinds, selector=arguments.selector):
        found = search.answers(subject, arguments.action, field)
        found_here = list(found if arguments.all else islice(found, 1))
        answers += found_here
        if not found_here:
            nobody.append(_nobody(session, subject, field, selectors))
    _show(session, answers, nobody)
    return 0 if answers else 1


def _accesses(arguments: argparse.Namespace) -> int:
    """Print recorded accesses. Return exit code 0, or 1 without any. OperatorError."""
    session = Session.open(arguments)
    words, verb = list(arguments.words), ""
    kinds = session.kinds() if words else None
    if arguments.action == TRIED and words and not _is_kind(words[0], kinds):
        verb = words.pop(0)
    subject = session.subject(words, kinds, name_required=False) if words and kinds is not None else None
    is_wide = arguments.all_namespaces or (subject is not None and not subject.namespace)
    query = AccessQuery(
        types=(DENIED,) if arguments.action == TRIED else (SESSION, TOKEN),
        namespace="" if is_wide else session.namespace,
        verb=verb,
        subject=subject,
        user=arguments.by,
    )
    answer = read_accesses(session.client, query, bounds(session.client, arguments.since, arguments.until))
    check_recorded(answer)
    searched = coverage(answer, query)
    if session.screen.format != "text":
        session.screen.document({"accesses": answer.found, "searched": searched})
    else:
        print_accesses(session.screen, answer.found, session.client.now())
        if not answer.found:
            session.screen.line(Painted(f"Nobody {arguments.action}.", "strong"))
        session.screen.note(searched)
    return 0 if answer.found else 1


def _is_kind(word: str, kinds: Kinds | None) -> bool:
    try:
        return kinds is not None and bool(kinds.find(word.partition("/")[0]))
    except OperatorError:
        return False


def _nobody(session: Session, subject: Subject, field: str, selectors: dict[str, str]) -> tuple[str, str]:
    """Return the answer that there is no such change, and what was searched. OperatorError if it would mislead."""
    arguments = session.arguments
    query = RevisionQuery(scopes_of(subject), selectors | ({"changed": field} if field else {}), content="")
    searched = explain(session, Search(query, subject, since=arguments.since, field=field))
    action = "changed or deleted" if arguments.action == "changed" else arguments.action
    if arguments.action == "created" and not (arguments.since or arguments.until):
        raise OperatorError(f"the creation of {subject.description} is not kept: {searched}")
    change = f"set {field} of {subject.description}" if field else f"{action} {subject.description}"
    return f"Nobody {change}" + (" in that time." if arguments.since or arguments.until else "."), searched


def _show(session: Session, answers: Sequence[FoundChange], nobody: Sequence[tuple[str, str]]) -> None:
    if session.screen.format != "text":
        document: Object = {"answers": [_document(answer, session) for answer in answers]}
        if nobody:
            document["nobody"] = [{"answer": answer, "searched": searched} for answer, searched in nobody]
        session.screen.document(document)
        return
    if answers:
        _print(session, answers)
    for answer, searched in nobody:
        session.screen.line(Painted(answer, "strong"))
        session.screen.line("  ", Painted(searched, "dim"))


class _ChangeSearch:
    """Finds the changes that answer a question.

    ``bounds``: field selectors for --since and --until
    ``limit``: the number of answers needed, 0 for all
    """

    def __init__(self, session: Session, kinds: Kinds, bounds: dict[str, str], *, limit: int) -> None:
        self._session, self._kinds, self._bounds, self._limit = session, kinds, bounds, limit

    def answers(self, subject: Subject, action: str, field: str) -> Iterator[FoundChange]:
        """Yield the answers, newest first. OperatorError."""
        if action == "deleted":
            yield from self._deletions(subject)
        elif action == "created":
            for revision in self._revisions(subject, {"operation": "Create"}, limit=self._limit):
                yield FoundChange(subject, revision, "created", because=self._because(revision))
        elif action == "changed":
            for revision in self._revisions(subject, {}, content="diff", limit=self._limit):
                verb = VERBS.get(revision["operation"], "changed")
                yield FoundChange(subject, revision, verb, because=self._because(revision))
        else:
            yield from self._field_changes(subject, field)

    def _revisions(
        self, subject: Subject, fields: dict[str, str], *, content: str = "", limit: int = 0, bounded: bool = True
    ) -> Iterator[Object]:
        selectors = (self._bounds if bounded else {}) | fields
        query = RevisionQuery(scopes_of(subject), selectors, content=content, limit=limit)
        return read_revisions(self._session.client, query)

    def _field_changes(self, subject: Subject, field: str) -> Iterator[FoundChange]:
        readable = False
        for revision in self._revisions(subject, {"changed": field, "operation!": "Delete"}, content="full"):
            readable = True
            old = tuple(values_at(revision.get("before") or {}, field))
            new = tuple(values_at(revision.get("after") or {}, field))
            if not same(list(old), list(new)):
                verb = "set" if new else "removed"
                yield FoundChange(subject, revision, verb, field, old, new, because=self._because(revision))
        if not readable:
            for revision in self._revisions(subject, {}, limit=1):
                if revision.get("redacted"):
                    resource = subject.kind.full_name
                    raise OperatorError(
                        f"the changed fields of {subject.description} require permission to get {resource}"
                    )
                if revision.get("erased") or revision.get("beforeErased"):
                    raise OperatorError(f"the changed fields of {subject.description} are erased from history")

    # -- deletions ----------------------------------------------------------------------------------------------------

    def _deletions(self, subject: Subject) -> Iterator[FoundChange]:
        """Yield the object's deletions, first one that is requested but not complete."""
        newest = next(self._revisions(subject, {}, limit=1), None)
        if newest is not None and newest["operation"] != "Delete":
            request = self._deletion_request(subject, newest["object"].get("uid", ""))
            if request is not None:
                yield FoundChange(subject, request, "deleted", gone=False, because=self._because(request))
        for revision in self._revisions(subject, {"operation": "Delete"}, limit=self._limit):
            request = self._deletion_request(subject, revision["object"].get("uid", "")) or revision
            yield FoundChange(subject, request, "deleted", because=self._because(request))

    def _deletion_request(self, subject: Subject, uid: str) -> Object | None:
        """Return the change that marked the object for deletion, None if it was deleted at once."""
        if not uid:
            return None
        fields = {"object.uid": uid}
        for revision in self._revisions(subject, fields, content="diff", limit=SEARCHED_CHANGES, bounded=False):
            verb = (revision.get("request") or {}).get("verb", "")
            without_diff = revision.get("redacted") or revision.get("erased") or revision.get("beforeErased")
            is_mark = _sets_deletion_timestamp(revision) or (without_diff and "delete" in verb)
            if revision["operation"] == "Update" and is_mark:
                return revision
        return None

    def _because(self, revision: Object) -> tuple[FoundChange, ...]:
        """Return the cause of a change, with its own."""
        chain = chain_of(self._session.client, revision)
        found: tuple[FoundChange, ...] = ()
        for place in range(len(chain.links) - 1, 0, -1):
            link, known = chain.links[place], chain.links[place - 1].get("known", "")
            how = str(chain.links[place - 1].get("explained", "")) if known == "inferred" else ""
            last = chain.stopped if place == len(chain.links) - 1 else ""
            subject = subject_of(self._kinds, link)
            found = (FoundChange(subject, link, past_tense(link), because=found, how=how, stopped=last),)
        return found


def _sets_deletion_timestamp(revision: Object) -> bool:
    return any(operation["path"] == "/metadata/deletionTimestamp" for operation in revision.get("diff") or ())


# -- output -----------------------------------------------------------------------------------------------------------


def sentence(answer: FoundChange, now: datetime, *, is_masked: bool = False) -> str:
    """Return the answer in one sentence.

    jane set spec.replicas of deployment.apps/web in namespace shop from 3 to 5 at 2026-11-21 16:46:50Z (5m ago).
    """
    time = answer.revision.get("time", "")
    subject = answer.subject.description
    if answer.field:
        subject = f"{answer.field} of {subject}" + ("" if is_masked else _values(answer))
    progress = "" if answer.gone else "; it is still being deleted"
    when = f"at {format_time(time)} ({ago(time, now)})"
    return f"{user_of(answer.revision)} {_past_tense(answer)} {subject} {when}{progress}."


def _past_tense(answer: FoundChange) -> str:
    """Return the action; an eviction reads as one."""
    found = PAST_TENSES.get(action_of(answer.revision))
    return found if found and answer.action in ("deleted", "changed") else answer.action


def _values(answer: FoundChange) -> str:
    old, new = (", ".join(shown_value(value) for value in values) for values in (answer.old, answer.new))
    if answer.revision["operation"] == "Create":
        return f" to {new} when creating it"
    if not new:
        return f", which was {old},"
    return f" from {old} to {new}" if old else f" to {new}"


DETAILS: Final = (
    ("revision", lambda revision: revision["metadata"]["name"]),
    ("database", lambda revision: printable(revision.get("database", ""))),
    ("time", lambda revision: revision.get("time")),
    ("user", user_of),
    ("groups", lambda revision: ", ".join(revision["who"].get("groups") or ())),
    ("request", lambda revision: " ".join(filter(None, map(revision["request"].get, ("verb", "uri"))))),
    ("agent", lambda revision: revision["who"].get("userAgent")),
    ("manager", lambda revision: revision["who"].get("fieldManager")),
    ("source", lambda revision: revision["who"].get("sourceAddress")),
    ("audit id", lambda revision: revision["request"].get("auditID")),
    ("reason", lambda revision: printable(revision.get("reason", ""))),
    ("changed", lambda revision: revision.get("summary")),
)


def _is_masked(answer: FoundChange, session: Session) -> bool:
    return answer.revision["object"].get("resource") == "secrets" and not session.arguments.show_secrets


def _print(session: Session, answers: Sequence[FoundChange]) -> None:
    screen, now = session.screen, session.client.now()
    for answer in answers:
        is_masked = _is_masked(answer, session)
        screen.line(Painted(sentence(answer, now, is_masked=is_masked), "strong"))
        cause, indent = answer, ""
        while cause.because:
            cause, indent = cause.because[0], f"{indent}  "
            screen.line(
                f"{indent}because {sentence(cause, now)}", Painted(f"  ({cause.how})" if cause.how else "", "dim")
            )
            if cause.stopped:
                screen.line(f"{indent}  ", Painted(f"earlier causes are not known: {cause.stopped}", "warning"))
        if answer.field and (
            remark := moved(answer.revision.get("before"), answer.revision.get("after"), answer.field)
        ):
            screen.line("  ", Painted(remark, "warning"))
        if len(answers) > 1:
            continue
        screen.line()
        for name, value_of in DETAILS:
            text = value_of(cause.revision)
            if text and not (is_masked and name == "changed"):
                screen.line("  ", Painted(f"{name:<9}", "dim"), f" {text}")


def _document(answer: FoundChange, session: Session) -> Object:
    is_masked = _is_masked(answer, session)
    revision = revision_document(answer.revision, show_secrets=session.arguments.show_secrets)
    alone = answer._replace(because=())
    document: Object = {"answer": sentence(alone, session.client.now(), is_masked=is_masked)}
    document |= {"user": user_of(revision), "revision": revision}
    if answer.field and not is_masked:
        document |= {"field": answer.field, "old": list(answer.old), "new": list(answer.new)}
    if answer.because:
        document["because"] = [_document(cause, session) for cause in answer.because]
    document |= {name: text for name, text in (("inferred", answer.how), ("stopped", answer.stopped)) if text}
    return document
