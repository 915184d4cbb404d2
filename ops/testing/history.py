"""History in assertions: the changes of an object in this test, with the user and the fields of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kubechronicle.api.history.cells import action_of, changed_cell, object_cell
from kubechronicle.api.history.differences import is_within
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.kinds import Kinds
from kubechronicle.ops.client.revision_reader import RevisionQuery, read_revisions, scopes_in, scopes_of
from kubechronicle.ops.client.revision_texts import field_changes, user_of
from kubechronicle.ops.client.session import past_kinds
from kubechronicle.ops.client.subjects import Subject, field_path
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.testing.named import Named, named


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change of an object.

    ``action``: create, update, patch, apply, delete and so on.
    ``fields``: the fields that an update changed, each with its values before and after.
    ``before``, ``after``: the object; None where it did not exist.
    """

    revision: int
    time: datetime
    action: str
    user: str
    object: str
    fields: Mapping[str, tuple[Any, Any]]
    before: Mapping[str, Any] | None = field(repr=False)
    after: Mapping[str, Any] | None = field(repr=False)
    text: str = field(repr=False)

    def __str__(self) -> str:
        return f"{self.revision} {self.action} {self.object} by {self.user}: {self.text}"


class History:
    """The changes since the test began. ``since``: returns the revision at which it did."""

    def __init__(self, client: Client, since: int) -> None:
        self.client, self._since = client, since

    @property
    def fields(self) -> dict[str, str]:
        """The field selector of these changes."""
        return {"revision.from": str(self._since + 1)}

    def of(self, obj: Any, namespace: str = "default") -> list[Change]:
        """Return the changes of an object, oldest first: of "deployment/web", a manifest or a client's object."""
        return self._read(RevisionQuery(scopes_of(self._subject(named(obj, namespace))), oldest_first=True))

    def all(self, namespace: str = "") -> list[Change]:
        """Return all changes in the cluster or in a namespace, oldest first."""
        return self._read(RevisionQuery(scopes_in(namespace), oldest_first=True))

    def who(self, obj: Any, field: str = "", namespace: str = "default") -> str:
        """Return the user of the last change of an object, or of a field of it; "" if it was not changed."""
        path = field_path(field) if field else ""
        for change in reversed(self.of(obj, namespace)):
            if not path or change.before is None or any(is_within(each, path) for each in change.fields):
                return change.user
        return ""

    def _subject(self, wanted: Named) -> Subject:
        try:
            return wanted.subject(Kinds.discover(self.client))
        except OperatorError:  # a definition may be deleted
            return wanted.subject(past_kinds(self.client))

    def _read(self, query: RevisionQuery) -> list[Change]:
        query = query.replaced(fields=self.fields)
        return [_change(each) for each in read_revisions(self.client, query)]


def _change(revision: Mapping[str, Any]) -> Change:
    return Change(
        revision=int(revision["metadata"]["name"]),
        time=datetime.fromisoformat(revision["time"]),
        action=action_of(revision),
        user=user_of(revision),
        object=object_cell(revision),
        fields={each.field: (each.old, each.new) for each in field_changes(revision)},
        before=revision.get("before"),
        after=revision.get("after"),
        text=changed_cell(revision),
    )
