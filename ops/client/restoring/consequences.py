"""The consequences of changes: the deletions that followed from them, as the server tells them.

mallory deletes a definition          four objects of it, in two namespaces
bob deletes an owner                  its dependents
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.kinds import Kind, Kinds
from kubechronicle.ops.client.revision_reader import (
    RevisionQuery,
    Scope,
    bounds,
    number_of,
    parameters_of,
    read_revisions,
    scopes_of,
)
from kubechronicle.ops.client.revision_texts import user_of
from kubechronicle.ops.client.session import past_kinds
from kubechronicle.ops.client.subjects import Subject

FLAG: Final = "--with-consequences"


@dataclass(slots=True)
class Consequences:
    """``deletions``: Revisions with their objects, oldest first. ``unknown``: why there may be more, in words."""

    deletions: list[Object] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def read_consequences(client: Client, query: RevisionQuery) -> Consequences:
    """Return the deletions that followed from the changes of a query. ApiError."""
    found, unknown = dict[int, Object](), dict[str, None]()
    for scope in query.scopes:
        parameters = {"summary": "consequences", **parameters_of(query.replaced(content=""), scope)}
        try:
            answer = client.get(scope.path, parameters)
        except ApiError as error:
            if error.code == 403 and scope.optional:
                unknown[error.message] = None
                continue
            if error.code != 400:
                raise
            unknown["this server does not tell consequences"] = None
            continue
        found |= {number_of(each): each for each in answer["items"]}
        if answer["hidden"]:
            unknown[f"{answer['hidden']} are of objects whose revisions you may not list"] = None
        if answer["truncated"]:
            unknown["there are more than one answer holds"] = None
    return Consequences([found[number] for number in sorted(found)], list(unknown))


def consequences_of(client: Client, path: str, number: int) -> Consequences:
    """Return the deletions that followed from one change. ``path``: of the list that has it. ApiError."""
    return read_consequences(client, RevisionQuery([Scope(path, (("metadata.name", str(number)),))]))


def states_before(deletions: Iterable[Object]) -> dict[str, tuple[Object, int]]:
    """Return the last state of each object before its deletion began, by uid, with the revision of that change."""
    found: dict[str, tuple[Object, int]] = {}
    for each in deletions:
        state = each.get("before") if each["operation"] == "Update" else each.get("last") or each.get("before")
        if state is not None:
            found.setdefault(str(state["metadata"].get("uid", "")), (state, number_of(each)))
    return found


class AllKinds:
    """The kinds that the server has, and those of deleted definitions, which are read when one is needed."""

    def __init__(self, client: Client, present: Kinds) -> None:
        self._client, self._present = client, present
        self._past: Kinds | None = None
        self.used: dict[tuple[str, str], Kind] = {}

    def of(self, state: Mapping[str, Object] | Object) -> Kind | None:
        """Return the kind of an object, in the version of its state; None: there is none."""
        version, name = str(state["apiVersion"]), str(state["kind"])
        kind = self._present.of_object(version, name)
        if kind is None:
            if self._past is None:
                self._past = past_kinds(self._client)
            kind = self._past.of_object(version, name)
        if kind is not None:
            self.used[kind.group, kind.kind] = kind = kind._replace(version=version.rpartition("/")[2])
        return kind


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return names in one text, the first ones of many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


# -- deletions ---------------------------------------------------------------------------------------------------------
#
# The change that began a deletion: the mark of an object with finalizers or a grace period, else its end.


MARK = "metadata.deletionTimestamp"


def last_deletion(client: Client, subject: Subject) -> Object | None:
    """Return the revision that began the last deletion of an object, None if history has none."""
    ends = RevisionQuery(scopes_of(subject), {"operation": "Delete"}, content="", limit=1)
    end = next(read_revisions(client, ends), None)
    if end is None:
        return None
    return mark(client, subject, str(end["object"].get("uid", "")), end["metadata"]["name"]) or end


def mark(client: Client, subject: Subject, uid: str, moment: str) -> Object | None:
    """Return the revision that marked an object for deletion, None if history has none. ``moment``: the last one."""
    # A second request may set the mark again, to an earlier time: the oldest revision counts.
    fields = bounds(client, "", moment) | {"changed": MARK, "object.uid": uid}
    query = RevisionQuery(scopes_of(subject), fields, content="", oldest_first=True, limit=1)
    return next(read_revisions(client, query), None)


def moment_before(revision: Object) -> str:
    """Return the moment before a change."""
    return str(number_of(revision) - 1)


def described(revision: Object) -> str:
    """Return the number of a revision and its user: ``revision 208 by bob``."""
    return f"revision {number_of(revision)} by {user_of(revision)}"
