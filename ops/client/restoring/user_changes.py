"""The plan that undoes a user's changes: the changes by object, from the log, and one step for each object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kubechronicle.api.history.differences import is_within
from kubechronicle.api.history.left_objects import left_alone
from kubechronicle.api.history.restore_plan import Step, order
from kubechronicle.api.history.reverting import Conflict, Undone, undo
from kubechronicle.api.meta.owners import Key, owners_first
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.kinds import Kind
from kubechronicle.ops.client.output import Progress, format_time
from kubechronicle.ops.client.restoring.consequences import AllKinds, read_consequences
from kubechronicle.ops.client.revision_reader import RevisionQuery, number_of, read_revisions, scopes_of
from kubechronicle.ops.client.revision_texts import user_of
from kubechronicle.ops.client.states import key_of
from kubechronicle.ops.client.subjects import Subject
from kubechronicle.ops.errors import OperatorError

# Changes that one run undoes. They are held in memory, with their objects.
MOST_CHANGES: Final = 5000
MOST_OTHERS: Final = 500
"""Changes of one object by others that are read, the newest first. Of earlier ones, the present values alone count."""
MOST_FIELDS: Final = 5
"""Fields of one object whose later user is named."""


@dataclass(slots=True)
class UserChanges:
    """The changes of a user by the names of objects, in the order of their first change.

    ``kinds``: by group and kind, in the version in which the log holds their objects
    ``skipped``: changes that cannot be undone, with the reason
    ``count``: the changes read
    """

    objects: dict[Key, list[Undone]] = field(default_factory=dict)
    kinds: dict[tuple[str, str], Kind] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    count: int = 0


@dataclass(frozen=True, slots=True)
class Reversal:
    """The plan for one object.

    ``step``: None: nothing can or need be done
    ``conflicts``: each with the change of the field that came later
    """

    key: Key
    step: Step | None
    conflicts: Sequence[tuple[Conflict, str]]


def read_changes(client: Client, kinds: AllKinds, query: RevisionQuery) -> UserChanges:
    """Read the changes of the query. OperatorError: there are too many."""
    found = UserChanges()
    with Progress("reading") as progress:
        for revision in read_revisions(client, query.replaced(content="states", oldest_first=True)):
            found.count += 1
            if found.count > MOST_CHANGES:
                raise OperatorError(
                    f"more than {MOST_CHANGES} changes: narrow them with --since, --until, -n or a kind"
                )
            _add(found, kinds, revision)
            progress.step(format_time(str(revision.get("time", ""))))
    return found


def _add(found: UserChanges, kinds: AllKinds, revision: Object) -> None:
    number = number_of(revision)
    for mark, why in (
        ("redacted", "no right to read the object"),
        ("erased", "the object is erased from history"),
        ("beforeErased", "the object before is erased from history"),
    ):
        if revision.get(mark):
            found.skipped[f"revision {number}"] = why
            return
    operation, before, after = revision["operation"], revision.get("before"), revision.get("after")
    state = after or revision.get("last") or before
    assert state is not None
    kind = kinds.of(state)
    if kind is None:
        found.skipped[f"revision {number}"] = f"the server has no kind {state['kind']} any more"
        return
    version = str(state["apiVersion"]).rpartition("/")[2]
    known = found.kinds.get((kind.group, kind.kind))
    if known is not None and known.version != version:
        found.skipped[f"revision {number}"] = f"it holds its {kind.kind} in another version than earlier revisions"
        return
    found.kinds[kind.group, kind.kind] = kind._replace(version=version)
    if operation == "Delete":
        before, after = revision.get("last") or before, None
    found.objects.setdefault(key_of(state), []).append(Undone(number, operation, before, after))


def read_losses(client: Client, kinds: AllKinds, query: RevisionQuery, own: UserChanges) -> UserChanges:
    """Return the deletions that followed from the changes of a query, by object, without those of ``own``. ApiError.

    Objects that a controller would make again are left out.
    """
    found, lost = UserChanges(), read_consequences(client, query)
    known = {change.revision for changes in own.objects.values() for change in changes}
    for revision in lost.deletions:
        state = revision.get("before") or revision.get("last")
        if number_of(revision) not in known and not (state is not None and left_alone(state)):
            _add(found, kinds, revision)
            found.count += 1
    found.skipped |= dict.fromkeys(lost.unknown, "consequences may be missing")
    return found


def merged(own: UserChanges, more: UserChanges) -> UserChanges:
    """Return the changes of both, by object in the order of revisions."""
    objects = {
        key: sorted((*own.objects.get(key, ()), *more.objects.get(key, ())), key=lambda change: change.revision)
        for key in (*own.objects, *(key for key in more.objects if key not in own.objects))
    }
    return UserChanges(objects, own.kinds | more.kinds, own.skipped | more.skipped, own.count + more.count)


def reversals(client: Client, changes: UserChanges, *, user: str = "") -> list[Reversal]:
    """Return the plan, in the order of its steps. ApiError.

    ``user``: whose changes all of these are. A field that stays has its value from somebody else.
    """
    found = []
    with Progress("comparing", len(changes.objects)) as progress:
        for key, own in changes.objects.items():
            kind = changes.kinds[key[:2]]
            try:
                live = client.get_if(kind.path(key[2], key[3]))
            except ApiError as error:
                if error.code != 403:
                    raise
                changes.skipped["/".join(filter(None, key[1:]))] = error.message
                continue
            step, conflicts = undo(key, own, live)
            kept = []
            if conflicts or (user and not _is_alone(own, live)):
                subject = Subject(kind, key[2], key[3])
                others = _Others(client, subject, own[-1].uid, after=own[0].revision, user=user)
                if user:
                    step, conflicts = undo(key, own, live, others.fields())
                kept = [(each, others.later(each)) for each in conflicts]
            if step is not None or kept:
                caused = step._replace(cause=own[-1].revision) if step is not None else None
                found.append(Reversal(key, caused, kept))
            progress.step(key[3])
    return _in_order(found)


def _is_alone(own: Sequence[Undone], live: Object | None) -> bool:
    """Tell whether nobody else can have changed an object since: it has the revision of the user's only change."""
    return len(own) == 1 and (live is None or live["metadata"].get("resourceVersion") == str(own[0].revision))


def _in_order(found: Sequence[Reversal]) -> list[Reversal]:
    """Return creations and updates in the order of dependencies, owners first, then deletions in the reverse order."""
    by_key = {each.key: each for each in sorted(found, key=lambda each: order(each.key))}
    states = {key: each.step.then for key, each in by_key.items() if each.step is not None and each.step.then}
    keys = owners_first(list(by_key), states)
    gone = [key for key in keys if (step := by_key[key].step) is not None and step.action == "delete"]
    return [by_key[key] for key in (*(key for key in keys if key not in set(gone)), *reversed(gone))]


class _Others:
    """The changes that others have made of one object after a revision, the newest MOST_OTHERS, newest first."""

    def __init__(self, client: Client, subject: Subject, uid: str, *, after: int, user: str) -> None:
        fields = {"object.uid": uid, "revision.from": str(after + 1), "noise": "hidden"}
        if user:
            fields["who.username!"] = user
        query = RevisionQuery(scopes_of(subject), fields, content="", limit=MOST_OTHERS)
        self._changes = [
            (number_of(each), user_of(each), tuple(each.get("changed") or ())) for each in read_revisions(client, query)
        ]

    def fields(self) -> list[tuple[int, str]]:
        """Return the changed fields with the revisions."""
        return [(number, field) for number, _, fields in self._changes for field in fields]

    def later(self, conflict: Conflict) -> str:
        """Return the last changes of the conflict's fields: ``by jane at revision 9``; "" if they are not known."""
        found = []
        for name in (conflict.field,) if conflict.field or not conflict.others else conflict.others[:MOST_FIELDS]:
            for number, by, fields in self._changes:
                if number > conflict.revision and (not name or any(is_within(each, name) for each in fields)):
                    found.append(f"{f'{name} ' if conflict.others else ''}by {by} at revision {number}")
                    break
        more = [f"and {len(conflict.others) - MOST_FIELDS} more fields"] if len(conflict.others) > MOST_FIELDS else []
        return ", ".join((*found, *more))
