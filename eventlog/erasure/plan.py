"""The records of an erasure: the request, its author, the plan and the result (eraser.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.integrity import erasures
from kubechronicle.eventlog.integrity.erasures import ErasedPart, Erasure, ErasureScope

# $3: the user. The contents of other objects are not looked at.
_NAMES_USER: Final = f"""
((user_name = $3 or impersonator = $3) and user_name <> '{erasures.ERASED_USER}'
    or case when resource = '{erasures.TAGS}' then object->'spec'->>'user' = $3 else false end)
"""


class ObjectExists(LogError):
    """The object exists, and its present state cannot be erased."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRequest:
    """The data to erase, in revisions ``first`` to ``last``.

    ``scope``: ``contents`` of an object; ``object``: its contents and name; ``who``: the user of the changes.
    ``uid``: "" for all objects of the name.
    ``user``: the user to erase, for ``who``.
    ``whole``: erase every revision of the object, which must be deleted. Required for ``object``: one object has one
    name.
    """

    scope: ErasureScope
    resource: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    user: str = ""
    first: int = 1
    last: int = 2**63 - 1
    whole: bool = False

    def part(self, columns: Mapping[str, Any]) -> ErasedPart | None:
        """Return the part of the row that is to be erased, and is not erased yet."""
        if not self.first <= columns["revision"] <= self.last:
            return None
        if self.scope == "who":
            return erasures.part_of(columns, self.user)
        key = (self.resource, self.namespace, self.name)
        if (columns["resource"], columns["namespace"], columns["name"]) != key or self.uid not in ("", columns["uid"]):
            return None
        return None if self.scope == "contents" and erasures.is_tombstone(columns["object"]) else self.scope

    def condition(self) -> tuple[str, list[str]]:
        """Return the same condition in SQL, and its arguments from $3 on.

        Cost: one index range; all rows for ``who``, because of the impersonator.
        """
        if self.scope == "who":
            return _NAMES_USER, [self.user]
        text = "resource = $3 and namespace = $4 and name = $5"
        if self.scope == "contents":
            text += " and not kubechronicle.is_erased(object)"
        arguments = [self.resource, self.namespace, self.name]
        return (f"{text} and uid = $6", [*arguments, self.uid]) if self.uid else (text, arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureAuthor:
    """The author of the erasure, as recorded in its entry."""

    by: str
    os_user: str
    program: str
    reason: str


@dataclass(slots=True, kw_only=True)
class ErasurePlan:
    """The rows that an erasure will change.

    ``rows``: in the database. ``archived``: in archives.
    ``pending``: rows in archives that are erased in the database already.
    ``stays``: the revision that is kept, the object's present state.
    ``files``: archives to rewrite.
    ``unread``: archives that may hold more rows, if no directory was given.
    ``tags``: names of Tags that are encrypted at rest. They may name the user, and stay.
    """

    rows: int = 0
    bytes: int = 0
    oldest: tuple[int, datetime] | None = None
    newest: tuple[int, datetime] | None = None
    resources: set[str] = field(default_factory=set)
    stays: int | None = None
    archived: int = 0
    pending: int = 0
    files: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)

    @property
    def nothing(self) -> bool:
        return not self.rows and not self.archived and not self.pending

    def extend(self, *edges: tuple[int, datetime]) -> None:
        """Extend ``oldest`` and ``newest`` by (revision, time)."""
        self.oldest = min(filter(None, (self.oldest, *edges)))
        self.newest = max(filter(None, (self.newest, *edges)))


@dataclass(slots=True, kw_only=True)
class ErasureResult:
    """``erasure``: None if the database was erased before, and only archives had to be rewritten."""

    erasure: Erasure | None
    tables: list[str]  # touched, to be vacuumed
    files: int = 0
