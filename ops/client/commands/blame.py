"""`blame`: print an object's YAML, each line after the revision, time and user that last set it.

The revision that last set each field of an object, computed from its successive states.

    marked = None
    for revision, state in states:              # oldest first
        marked = update_marks(marked, state, revision)

A list item with a key (differences.py) keeps its marks at any position; items without a key are matched from both ends.
A value has its own mark; the mark of a mapping or list is the revision that created it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from kubechronicle.api.history.differences import field_below, item_key, item_label, key_fields_of, same
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.printable import printable
from kubechronicle.ops.client import output
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.output import Progress, Screen, format_time
from kubechronicle.ops.client.revision_reader import RevisionQuery, number_of, read_revisions, scopes_of
from kubechronicle.ops.client.revision_texts import mask_object, revision_document, user_of
from kubechronicle.ops.client.searches import check_existed
from kubechronicle.ops.client.session import Session, add_source_flags, split_objects
from kubechronicle.ops.client.subjects import Subject, add_subject_flags
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.terminal import Painted, Part, yaml_text

BOOKKEEPING: Final = ("managedFields", "resourceVersion")
"""Fields of metadata that every write sets."""


class Marked(NamedTuple):
    """A value and the revision that set it.

    ``members``: the marks of a mapping's values by name, or of a list's items by position.
    """

    value: Any
    revision: int
    members: Mapping[str, Marked] | tuple[Marked, ...] | None = None


def without_bookkeeping(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object without the fields that every write sets."""
    metadata = {name: value for name, value in (state.get("metadata") or {}).items() if name not in BOOKKEEPING}
    return {**state, "metadata": metadata} if "metadata" in state else dict(state)


def update_marks(before: Marked | None, after: Any, revision: int) -> Marked:
    """Return the marks after ``revision`` has set ``after``. ``before`` is None if there was no value."""
    if before is not None and same(before.value, after):
        return before
    first = revision if before is None else before.revision
    if isinstance(after, dict):
        known = before.members if before is not None and isinstance(before.members, dict) else None
        members = {name: update_marks((known or {}).get(name), value, revision) for name, value in after.items()}
        return Marked(after, first if known is not None else revision, members)
    if isinstance(after, list):
        if before is None or not isinstance(before.members, tuple):
            return Marked(after, revision, tuple(update_marks(None, value, revision) for value in after))
        matched = _matched(before.value, after)
        return Marked(
            after,
            first,
            tuple(
                update_marks(None if place is None else before.members[place], value, revision)
                for place, value in zip(matched, after, strict=True)
            ),
        )
    return Marked(after, revision)


def _matched(before: list[Any], after: list[Any]) -> list[int | None]:
    """Return for each item its former position, None for a new item."""
    keys = key_fields_of(before, after)
    if keys is not None:
        places = {item_key(item, keys): place for place, item in enumerate(before)}
        return [places.get(item_key(item, keys)) for item in after]
    shorter = min(len(before), len(after))
    start = end = 0
    while start < shorter and same(before[start], after[start]):
        start += 1
    while end < shorter - start and same(before[-1 - end], after[-1 - end]):
        end += 1
    between = min(len(before), len(after)) - start - end
    found: list[int | None] = list(range(start + between))
    found += [None] * (len(after) - end - len(found))
    return found + list(range(len(before) - end, len(before)))


def fields(marked: Marked, field: str = "") -> Iterator[tuple[str, Marked]]:
    """Yield every field with a value, by its readable path, in the order of names; also empty mappings and lists."""
    if not marked.members:
        yield field, marked
    elif isinstance(marked.members, Mapping):
        for name in sorted(marked.members):
            yield from fields(marked.members[name], field_below(field, name))
    else:
        keys = key_fields_of(marked.value, [])
        for place, member in enumerate(marked.members):
            label = item_label(member.value, keys) if keys is not None else f"[{place}]"
            yield from fields(member, f"{field}{label}")


EXAMPLES: Final = """\
  kubectl chronicle blame deployment/web
  kubectl chronicle blame deployment/web --at 2h            as it was two hours ago
  kubectl chronicle blame deployment/web | grep image:      who set the image
  kubectl chronicle blame deployment/web -o json            field by field
"""
# Revisions read before those that set no field any more are forgotten.
KEPT_REVISIONS: Final = 500
CONTENTS: Final = ("before", "after")
MAX_USER_WIDTH: Final = 40
# Marks for fields set before the oldest revision kept, and for fields with erased earlier values.
BEFORE_HISTORY: Final = 0
ERASED: Final = -1
MARK_TEXTS: Final = {BEFORE_HISTORY: "before all history", ERASED: "erased from history"}


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_subject_flags(parser)
    parser.add_argument("--at", metavar="MOMENT", default="now", help="2h, a time, a revision (default now)")
    parser.add_argument("--no-status", action="store_true", help="omit the status")
    parser.add_argument("--show-secrets", action="store_true", help="print a Secret's values instead of stars")
    output.add_flags(parser)
    add_source_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0. Raises OperatorError if the object does not exist at that moment."""
    session = Session.open(arguments)
    subjects, documents = _subjects(session), list[Object]()
    for place, subject in enumerate(subjects):
        marked, revisions = _marks_of(session, subject)
        if session.screen.format != "text":
            documents.append(_document(marked, revisions))
            continue
        if place:
            session.screen.line()
        if len(subjects) > 1:
            session.screen.line(Painted(f"# {subject.description}", "strong"))
        _print(session.screen, marked, revisions)
    if documents:
        session.screen.document(documents[0] if len(subjects) == 1 else {"objects": documents})
    return 0


def _subjects(session: Session) -> list[Subject]:
    kinds = session.kinds()
    return [session.subject(words, kinds) for words in split_objects(session.arguments.words)]


def _marks_of(session: Session, subject: Subject) -> tuple[Marked, dict[int, Object]]:
    """Return the object with the revisions that set its fields, as they are printed. OperatorError."""
    arguments = session.arguments
    marked, revisions = read_marks(session.client, subject, _moment(session, subject))
    revisions = {
        number: revision_document(revision, show_secrets=arguments.show_secrets)
        for number, revision in revisions.items()
    }
    if arguments.no_status and isinstance(marked.members, Mapping):
        members = {name: member for name, member in marked.members.items() if name != "status"}
        marked = Marked({name: value for name, value in marked.value.items() if name != "status"}, 0, members)
    if not arguments.show_secrets:
        marked = _mask(marked)
    return marked, revisions


def _moment(session: Session, subject: Subject) -> str:
    """Return the moment to print: of --at, or the last one of a deleted object. OperatorError for one never made."""
    moment = session.client.resolve_moment(session.arguments.at)
    if session.client.at(moment).get_if(subject.path()) is not None:
        return moment
    check_existed(session, subject)
    query = RevisionQuery(scopes_of(subject), content="", limit=1)
    newest = next(read_revisions(session.client, query), None)
    if moment or newest is None or newest["operation"] != "Delete":
        return moment
    when, number = format_time(newest["time"]), number_of(newest)
    session.screen.note(
        f"{subject.description} was deleted by {user_of(newest)} at {when} (revision {number}): this is its last state"
    )
    return str(number - 1)


def read_marks(client: Client, subject: Subject, moment: str) -> tuple[Marked, dict[int, Object]]:
    """Return the object with the number of the revision that set each field, and these revisions. OperatorError."""
    current = client.at(moment).get_if(subject.path())
    if current is None:
        hint = f" at {moment}" if moment else "; --at MOMENT prints an earlier state"
        raise OperatorError(f"there is no {subject.description}{hint}")
    selectors = {"object.uid": current["metadata"]["uid"], "revision.to": current["metadata"]["resourceVersion"]}
    query = RevisionQuery(scopes_of(subject), selectors, oldest_first=True)
    marked: Marked | None = None
    revisions: dict[int, Object] = {}
    enough = KEPT_REVISIONS
    with Progress("reading") as progress:
        for revision in read_revisions(client, query):
            if revision.get("redacted"):
                resource = subject.kind.full_name
                raise OperatorError(f"the history of {subject.description} requires permission to get {resource}")
            number = number_of(revision)
            revisions[number] = {key: value for key, value in revision.items() if key not in CONTENTS}
            if marked is None and revision.get("before"):
                marked = update_marks(None, without_bookkeeping(revision["before"]), BEFORE_HISTORY)
            if revision.get("erased"):
                marked = None
            elif revision.get("beforeErased") and revision.get("after"):
                marked = update_marks(None, without_bookkeeping(revision["after"]), ERASED)
            elif revision.get("after"):
                marked = update_marks(marked, without_bookkeeping(revision["after"]), number)
            if marked is not None and len(revisions) >= enough:
                named = _named(marked)
                revisions = {number: each for number, each in revisions.items() if number in named}
                enough = 2 * len(revisions) + KEPT_REVISIONS
            progress.step()
    if current.get("kind") == "Secret" and not client.shows_secrets:
        from kubechronicle.api.history.revisions import masked_secret  # imports hashlib, which other kinds do not need

        current = masked_secret(current, client.mask.encode())  # as the revisions are
    # The log has the object in its stored version, the request in another one: their fields may differ.
    return update_marks(marked, without_bookkeeping(current), BEFORE_HISTORY), revisions


def _named(marked: Marked) -> set[int]:
    """Return the numbers of the revisions that set a field."""
    numbers = {marked.revision}
    for member in marked.members.values() if isinstance(marked.members, Mapping) else marked.members or ():
        numbers |= _named(member)
    return numbers


def _mask(marked: Marked) -> Marked:
    """Mask the values of a Secret."""
    if marked.value.get("kind") != "Secret" or not isinstance(marked.members, Mapping):
        return marked
    return _with_values(marked, mask_object(marked.value))


def _with_values(marked: Marked, value: Any) -> Marked:
    """Return the same marks on ``value``, which has the same names and other values."""
    members = marked.members
    if isinstance(members, Mapping):
        members = {name: _with_values(member, value[name]) for name, member in members.items()}
    elif members is not None:
        members = tuple(_with_values(member, item) for member, item in zip(members, value, strict=True))
    return Marked(value, marked.revision, members)


def lines(marked: Marked) -> Iterator[tuple[int, str]]:
    """Yield the YAML line by line, with the number of the revision that set each line."""
    if isinstance(marked.members, Mapping):
        for name in sorted(marked.members):
            member = marked.members[name]
            if not member.members:
                for line in yaml_text({name: member.value}).splitlines():
                    yield member.revision, line
                continue
            yield member.revision, yaml_text({name: None}).removesuffix(" null\n")
            indent = "  " if isinstance(member.members, Mapping) else ""
            for revision, line in lines(member):
                yield revision, f"{indent}{line}"
    else:
        for member in marked.members or ():
            if not member.members:
                yield from ((member.revision, line) for line in yaml_text([member.value]).splitlines())
                continue
            for index, (revision, line) in enumerate(lines(member)):
                yield revision, f"{'  ' if index else '- '}{line}"


def _print(screen: Screen, marked: Marked, revisions: Mapping[int, Object]) -> None:
    users = {number: printable(user_of(revision)) for number, revision in revisions.items()}
    width = min(MAX_USER_WIDTH, max(map(len, users.values()), default=0))
    digits = max((len(str(number)) for number in revisions), default=1)
    for number, line in lines(marked):
        revision = revisions.get(number)
        if revision is None:
            origin: tuple[Part, ...] = (f"{'^':>{digits}}  {MARK_TEXTS[number]:<{22 + width}}",)
        else:
            user = users[number]
            user = user if len(user) <= width else f"{user[: width - 1]}…"
            origin = (
                Painted(f"{number:>{digits}}", "revision"),
                f"  {format_time(revision['time'])}  ",
                Painted(f"{user:<{width}}", "who"),
            )
        screen.line(*origin, f"  {line}")


def _document(marked: Marked, revisions: Mapping[int, Object]) -> Object:
    """Return the output of -o json.

    ``fields``: each field with its value, and the revision, time and user that set it
    ``revisions``: the revisions named by the fields
    """
    entries: list[Any] = []
    for field, member in fields(marked):
        entry = {"field": field, "value": member.value}
        if member.revision in revisions:
            entry["revision"] = str(member.revision)
            entry["time"] = revisions[member.revision]["time"]
            entry["user"] = user_of(revisions[member.revision])
        entries.append(entry)
    named = {entry["revision"] for entry in entries if "revision" in entry}
    return {"fields": entries, "revisions": [each for number, each in revisions.items() if str(number) in named]}
