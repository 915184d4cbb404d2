"""`blame`: an object's YAML, and before each line the revision, time and user that last set it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubechronicle.api.history.blame import Marked, fields, update_marks, without_bookkeeping
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client import changes, kubeconfig, output, revision_texts, session
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.output import Progress, Screen, shown_time, yaml_text
from kubechronicle.ops.client.session import Session, Subject
from kubechronicle.ops.errors import OperatorError

EXAMPLES: Final = """\
  kubectl chronicle blame deployment/web
  kubectl chronicle blame deployment/web --at 2h            as it was two hours ago
  kubectl chronicle blame deployment/web | grep image:      who set the image
  kubectl chronicle blame deployment/web -o json            field by field
"""
WIDEST_USER: Final = 40
# What is older than all history that is kept, and what was set when nobody knows, as what it was is erased.
OLDER: Final = 0
ERASED: Final = -1
BEFORE: Final = {OLDER: "before all history", ERASED: "erased from history"}


def add_flags(parser: argparse.ArgumentParser) -> None:
    session.add_subject(parser)
    parser.add_argument("--at", metavar="MOMENT", default="now", help="as it was then: 2h, a time, a revision")
    parser.add_argument("--no-status", action="store_true", help="leave its status out")
    parser.add_argument("--show-secrets", action="store_true", help="what a Secret holds, instead of stars")
    output.add_flags(parser)
    kubeconfig.add_flags(parser)


def run(given: argparse.Namespace) -> int:
    """Exit code 0. OperatorError: there is no such object at that moment."""
    asking = Session.of(given)
    subject = session.subject(asking, given.what, asking.kinds())
    moment = asking.client.settled(given.at)
    marked, revisions = blamed(asking.client, subject, moment)
    revisions = {
        number: revision_texts.document(each, secrets=given.show_secrets) for number, each in revisions.items()
    }
    if given.no_status and isinstance(marked.members, Mapping):
        members = {name: member for name, member in marked.members.items() if name != "status"}
        marked = Marked({name: value for name, value in marked.value.items() if name != "status"}, 0, members)
    if not given.show_secrets:
        marked = _starred(marked)
    if asking.screen.format == "text":
        _print(asking.screen, marked, revisions)
    else:
        asking.screen.document(_document(marked, revisions))
    return 0


def blamed(client: Client, subject: Subject, moment: str) -> tuple[Marked, dict[int, Object]]:
    """The object's marks, and the revisions they name. OperatorError."""
    now = client.at(moment).get_if(subject.path())
    if now is None:
        raise OperatorError(f"there is no {subject.told}" + (f" at {moment}" if moment else "; --at MOMENT looks back"))
    fields_asked = {"object.uid": now["metadata"]["uid"], "revision.to": now["metadata"]["resourceVersion"]}
    asked = changes.Asked(changes.scopes_of(subject), fields_asked, oldest_first=True)
    marked: Marked | None = None
    revisions: dict[int, Object] = {}
    with Progress("reading") as progress:
        for revision in changes.changes(client, asked):
            if revision.get("redacted"):
                raise OperatorError(f"you lack the right to get {subject.kind.full} there, and so its history")
            number = changes.number(revision)
            revisions[number] = {key: value for key, value in revision.items() if key not in ("before", "after")}
            if marked is None and revision.get("before"):
                marked = update_marks(None, without_bookkeeping(revision["before"]), OLDER)
            if revision.get("erased"):
                marked = None
            elif revision.get("beforeErased") and revision.get("after"):
                marked = update_marks(None, without_bookkeeping(revision["after"]), ERASED)
            elif revision.get("after"):
                marked = update_marks(marked, without_bookkeeping(revision["after"]), number)
            progress.step()
    # Its versions may differ: the log has the stored one, the request had another.
    return update_marks(marked, without_bookkeeping(now), OLDER), revisions


def _starred(marked: Marked) -> Marked:
    """Without what a Secret holds."""
    if marked.value.get("kind") != "Secret" or not isinstance(marked.members, Mapping):
        return marked
    return _as_shown(marked, revision_texts.without_secrets(marked.value))


def _as_shown(marked: Marked, shown: Any) -> Marked:
    """The same marks on what is shown instead: the same names, other values."""
    members = marked.members
    if isinstance(members, Mapping):
        members = {name: _as_shown(member, shown[name]) for name, member in members.items()}
    elif members is not None:
        members = tuple(_as_shown(member, value) for member, value in zip(members, shown, strict=True))
    return Marked(shown, marked.revision, members)


def lines(marked: Marked) -> Iterator[tuple[int, str]]:
    """The YAML, line by line, with the revision that set it."""
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
            for place, (revision, line) in enumerate(lines(member)):
                yield revision, f"{'  ' if place else '- '}{line}"


def _print(screen: Screen, marked: Marked, revisions: Mapping[int, Object]) -> None:
    users = {number: revision_texts.user(revision) for number, revision in revisions.items()}
    wide = min(WIDEST_USER, max(map(len, users.values()), default=0))
    digits = max((len(str(number)) for number in revisions), default=1)
    for number, line in lines(marked):
        revision = revisions.get(number)
        if revision is None:
            before = f"{'^':>{digits}}  {BEFORE[number]:<{22 + wide}}"
        else:
            user = users[number]
            user = user if len(user) <= wide else f"{user[: wide - 1]}…"
            before = (
                screen.paint(f"{number:>{digits}}", "revision")
                + f"  {shown_time(revision['time'])}  "
                + screen.paint(f"{user:<{wide}}", "who")
            )
        screen.line(f"{before}  {line}")


def _document(marked: Marked, revisions: Mapping[int, Object]) -> Object:
    """``fields``: every field with its value and the revision that set it; ``revisions`` once each."""
    found: list[Any] = []
    for field, member in fields(marked):
        entry = {"field": field, "value": member.value}
        if member.revision in revisions:
            entry["revision"] = str(member.revision)
            entry["time"] = revisions[member.revision]["time"]
            entry["user"] = revision_texts.user(revisions[member.revision])
        found.append(entry)
    named = {entry["revision"] for entry in found if "revision" in entry}
    return {"fields": found, "revisions": [each for number, each in revisions.items() if str(number) in named]}
