"""`who created|deleted|changed TYPE/NAME`, `who set TYPE/NAME FIELD`: one sentence, then the request's particulars.

What a controller deleted is followed to what it did so for: a namespace's objects to who deleted the namespace, what
belonged to an object to who deleted that.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kubechronicle.api.history.differences import same, shown_value
from kubechronicle.api.history.field_values import values_at
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client import changes, kubeconfig, output, revision_texts, session
from kubechronicle.ops.client.kinds import Kinds
from kubechronicle.ops.client.output import ago, shown_time
from kubechronicle.ops.client.session import Session, Subject
from kubechronicle.ops.errors import OperatorError

EXAMPLES: Final = """\
  kubectl chronicle who deleted pod/web-7c5d
  kubectl chronicle who deleted namespace shop
  kubectl chronicle who created configmap/settings -o json
  kubectl chronicle who set deployment/web spec.replicas --all
  kubectl chronicle who set deploy/web 'spec.template.spec.containers[name=web].image'
  kubectl chronicle who changed secret/key --since 2h
"""
ACTIONS: Final = ("created", "deleted", "changed", "set")
# How far causes are followed.
DEPTH: Final = 6
# The last changes of an object, among which is the one that asked for its deletion.
LAST: Final = 50


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=ACTIONS, metavar="|".join(ACTIONS))
    parser.add_argument("what", metavar="TYPE/NAME", nargs="+", help="also TYPE NAME; with `set` a field as well")
    parser.add_argument("--all", action="store_true", help="everybody who did, newest first, instead of the last")
    parser.add_argument("--since", metavar="MOMENT", default="", help="only after that: 2h, a time, a revision")
    parser.add_argument("--until", metavar="MOMENT", default="", help="only up to then")
    parser.add_argument("--show-secrets", action="store_true", help="what a Secret held, instead of stars")
    output.add_flags(parser)
    kubeconfig.add_flags(parser)


@dataclass(frozen=True, slots=True)
class Found:
    """A change that answers. ``old`` and ``new``: what the field asked for held. ``because``: what led to it."""

    subject: Subject
    revision: Object
    action: str
    field: str = ""
    old: tuple[Any, ...] = ()
    new: tuple[Any, ...] = ()
    because: tuple[Found, ...] = ()
    gone: bool = True


def run(given: argparse.Namespace) -> int:
    """Exit code 0, 1 if nobody did."""
    asking = Session.of(given)
    words, field = given.what, ""
    if given.action == "set":
        if len(words) < 2:
            raise OperatorError("which field? as in `who set deployment/web spec.replicas`")
        words, field = words[:-1], session.field_path(words[-1])
    kinds = asking.kinds()
    subject = session.subject(asking, words, kinds)
    bounds = changes.bounds(asking.client, given.since, given.until)
    who = _Who(asking, kinds, bounds, most=0 if given.all else 1)
    found = []
    for each in who.answers(subject, given.action, field):
        found.append(each)
        if not given.all:
            break
    if asking.screen.format != "text":
        asking.screen.document({"answers": [_document(each, asking) for each in found]})
    elif found:
        _print(asking, found)
    else:
        past = f"set {field} of {subject.told}" if field else f"{given.action} {subject.told}"
        asking.screen.line(f"Nobody {past}" + (" in that time." if given.since or given.until else "."))
    return 0 if found else 1


class _Who:
    def __init__(self, asking: Session, kinds: Kinds, bounds: dict[str, str], *, most: int) -> None:
        self._asking, self._kinds, self._bounds, self._most = asking, kinds, bounds, most

    def answers(self, subject: Subject, action: str, field: str) -> Iterator[Found]:
        """Newest first."""
        if action == "deleted":
            yield from self._deleted(subject)
        elif action == "created":
            for revision in self._changes(subject, {"operation": "Create"}, limit=self._most):
                yield Found(subject, revision, "created")
        elif action == "changed":
            for revision in self._changes(subject, {}, content="diff", limit=self._most):
                yield Found(
                    subject, revision, {"Create": "created", "Delete": "deleted"}.get(revision["operation"], "changed")
                )
        else:
            yield from self._set(subject, field)

    def _changes(
        self, subject: Subject, fields: dict[str, str], *, content: str = "", limit: int = 0, bounded: bool = True
    ) -> Iterator[Object]:
        selected = (self._bounds if bounded else {}) | fields
        asked = changes.Asked(changes.scopes_of(subject), selected, content=content, limit=limit)
        return changes.changes(self._asking.client, asked)

    def _set(self, subject: Subject, field: str) -> Iterator[Found]:
        seen = False
        for revision in self._changes(subject, {"changed": field, "operation!": "Delete"}, content="full"):
            seen = True
            old = tuple(values_at(revision.get("before") or {}, field))
            new = tuple(values_at(revision.get("after") or {}, field))
            if not same(list(old), list(new)):
                yield Found(subject, revision, "set" if new else "removed", field, old, new)
        if not seen:
            for revision in self._changes(subject, {}, limit=1):
                if revision.get("redacted"):
                    raise OperatorError(f"you lack the right to get {subject.told}, and so to see what changed in it")
                if revision.get("erased") or revision.get("beforeErased"):
                    raise OperatorError(f"what {subject.told} was is erased from history, and so what changed in it")

    # -- deletions ----------------------------------------------------------------------------------------------------

    def _deleted(self, subject: Subject) -> Iterator[Found]:
        """Deletions, and one that is asked for but not through."""
        newest = next(self._changes(subject, {}, limit=1), None)
        if newest is not None and newest["operation"] != "Delete":
            asked_for = self._asked_for(subject, newest["object"].get("uid", ""))
            if asked_for is not None:
                yield Found(subject, asked_for, "deleted", gone=False, because=self._causes(subject, asked_for, DEPTH))
        for revision in self._changes(subject, {"operation": "Delete"}, limit=self._most):
            yield self._deletion(subject, revision, DEPTH)

    def _deletion(self, subject: Subject, revision: Object, depth: int) -> Found:
        asked_for = self._asked_for(subject, revision["object"].get("uid", ""))
        told = asked_for or revision
        return Found(subject, told, "deleted", because=self._causes(subject, revision, depth, told))

    def _asked_for(self, subject: Subject, uid: str) -> Object | None:
        """The request that marked the object for deletion, if it was not gone with it."""
        if not uid:
            return None
        for revision in self._changes(subject, {"object.uid": uid}, content="diff", limit=LAST, bounded=False):
            marked = any(one["path"] == "/metadata/deletionTimestamp" for one in revision.get("diff") or ())
            verb = (revision.get("request") or {}).get("verb", "")
            untold = revision.get("redacted") or revision.get("erased") or revision.get("beforeErased")
            if revision["operation"] == "Update" and (marked or (untold and "delete" in verb)):
                return revision
        return None

    def _causes(self, subject: Subject, revision: Object, depth: int, told: Object | None = None) -> tuple[Found, ...]:
        """What a controller deleted it for: its namespace, or what it belonged to."""
        user = ((told or revision).get("who") or {}).get("username", "")
        if not depth or not user.startswith("system:"):
            return ()
        after, uid = {"revision.to": str(changes.number(told or revision))}, ""
        for owner, uid in [*self._owners(subject, revision), *self._namespace(subject)]:
            fields = after | ({"object.uid": uid} if uid else {})
            for each in self._changes(owner, fields, limit=LAST, bounded=False, content="diff"):
                marked = any(one["path"] == "/metadata/deletionTimestamp" for one in each.get("diff") or ())
                if each["operation"] == "Delete" or marked:
                    return (self._deletion(owner, each, depth - 1),)
                if not uid and each["operation"] == "Create":
                    break
        return ()

    def _owners(self, subject: Subject, revision: Object) -> list[tuple[Subject, str]]:
        whole = self._asking.client.get_if(f"{changes.scopes_of(subject)[0].path}/{revision['metadata']['name']}") or {}
        last = whole.get("before") or whole.get("after") or {}
        references = (last.get("metadata") or {}).get("ownerReferences") or []
        found = []
        for reference in sorted(references, key=lambda each: not each.get("controller")):
            kind = self._kinds.of_object(reference.get("apiVersion", ""), reference.get("kind", ""))
            if kind is not None:
                namespace = subject.namespace if kind.namespaced else ""
                found.append((Subject(kind, namespace, reference.get("name", "")), reference.get("uid", "")))
        return found

    def _namespace(self, subject: Subject) -> list[tuple[Subject, str]]:
        kind = self._kinds.of_resource("", "namespaces")
        return [(Subject(kind, "", subject.namespace), "")] if kind is not None and subject.namespace else []


# -- saying it --------------------------------------------------------------------------------------------------------


def sentence(found: Found, now: Any, *, hidden: bool = False) -> str:
    """jane set spec.replicas of deployment.apps/web in namespace shop from 3 to 5 on 2026-11-21 16:46:50Z (5m ago)."""
    time = found.revision.get("time", "")
    when = f"at {shown_time(time)} ({ago(time, now)})"
    what = found.subject.told
    if found.field:
        values = _values(found, hidden=hidden)
        what = f"{found.field} of {what}{values}"
    begun = "" if found.gone else "; it is not gone yet"
    return f"{revision_texts.user(found.revision)} {found.action} {what} {when}{begun}."


def _values(found: Found, *, hidden: bool) -> str:
    if hidden:
        return ""
    old, new = (", ".join(shown_value(each) for each in values) for values in (found.old, found.new))
    if found.revision["operation"] == "Create":
        return f" to {new} when creating it"
    if not new:
        return f", which was {old},"
    return f" from {old} to {new}" if old else f" to {new}"


PARTICULARS: Final = (
    ("revision", lambda each: each["metadata"]["name"]),
    ("time", lambda each: each.get("time")),
    ("user", revision_texts.user),
    ("groups", lambda each: ", ".join(each["who"].get("groups") or ())),
    ("request", lambda each: " ".join(filter(None, (each["request"].get("verb"), each["request"].get("uri"))))),
    ("agent", lambda each: each["who"].get("userAgent")),
    ("manager", lambda each: each["who"].get("fieldManager")),
    ("source", lambda each: each["who"].get("sourceAddress")),
    ("audit id", lambda each: each["request"].get("auditID")),
    ("changed", lambda each: each.get("summary")),
)


def _hidden(found: Found, asking: Session) -> bool:
    return found.revision["object"].get("resource") == "secrets" and not asking.given.show_secrets


def _print(asking: Session, found: Sequence[Found]) -> None:
    screen, now = asking.screen, asking.client.now()
    for each in found:
        hidden = _hidden(each, asking)
        screen.line(screen.paint(sentence(each, now, hidden=hidden), "strong"))
        cause, indent = each, ""
        while cause.because:
            cause, indent = cause.because[0], f"{indent}  "
            screen.line(f"{indent}because {sentence(cause, now)}")
        if len(found) > 1:
            continue
        screen.line()
        for name, value in PARTICULARS:
            text = value(cause.revision)
            if text and not (hidden and name == "changed"):
                screen.line(f"  {screen.paint(f'{name:<9}', 'dim')} {text}")


def _document(found: Found, asking: Session) -> Object:
    hidden = _hidden(found, asking)
    revision = revision_texts.document(found.revision, secrets=asking.given.show_secrets)
    document: Object = {"answer": sentence(replace(found, because=()), asking.client.now(), hidden=hidden)}
    document |= {"user": revision_texts.user(revision), "revision": revision}
    if found.field and not hidden:
        document |= {"field": found.field, "old": list(found.old), "new": list(found.new)}
    if found.because:
        document["because"] = [_document(each, asking) for each in found.because]
    return document
