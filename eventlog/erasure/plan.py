"""What is to be erased, what there is of it, and what was done: the data of erasing.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.integrity import erasures
from kubechronicle.eventlog.integrity.erasures import Erasure, What


class StillThere(LogError):
    """The object exists, and what it is can't be erased."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be erased: the ``contents`` of an object (``uid`` "": of all of that name), with its name if it is
    ``object`` (only as a ``whole``: one object has one name), or ``who`` asked wherever it was ``user``; in revisions
    ``first`` to ``last``. ``whole``: nothing of the object is to stay, so it must be gone."""

    what: What
    resource: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    user: str = ""
    first: int = 1
    last: int = 2**63 - 1
    whole: bool = False

    def matches(self, columns: Mapping[str, Any]) -> bool:
        """Whether it is this row that is meant, and there is something left of it."""
        if not self.first <= columns["revision"] <= self.last or erasures.is_without(columns, self.what):
            return False
        if self.what == "who":
            return self.user in (columns["user_name"], columns["impersonator"])
        key = (self.resource, self.namespace, self.name)
        return (columns["resource"], columns["namespace"], columns["name"]) == key and self.uid in ("", columns["uid"])

    def condition(self) -> tuple[str, list[str]]:
        """The same in SQL, with parameters from $3 on. One index range, but for who impersonated: all rows."""
        if self.what == "who":
            return f"(user_name = $3 or impersonator = $3) and user_name <> '{erasures.ERASED_USER}'", [self.user]
        text = "resource = $3 and namespace = $4 and name = $5"
        if self.what == "contents":
            text += " and not kubechronicle.is_erased(object)"
        given = [self.resource, self.namespace, self.name]
        return (f"{text} and uid = $6", [*given, self.uid]) if self.uid else (text, given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """Who erases, as the entry tells it."""

    by: str
    os_user: str
    program: str
    reason: str


@dataclass(slots=True, kw_only=True)
class Plan:
    """What there is to erase in the database, and in archives: ``rows`` and ``archived`` of them; ``pending``: erased
    in the database before, and still in archives. ``stays``: the revision that is left, being what the object is now.
    ``unread``: names of archives that may hold more, if no directory was given."""

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

    @property
    def nothing(self) -> bool:
        return not self.rows and not self.archived and not self.pending

    def see(self, *edges: tuple[int, datetime]) -> None:
        self.oldest = min(filter(None, (self.oldest, *edges)))
        self.newest = max(filter(None, (self.newest, *edges)))


@dataclass(slots=True, kw_only=True)
class Done:
    """``erasure`` None: all was erased before, and only archives were still to be written."""

    erasure: Erasure | None
    tables: list[str]  # touched, to be vacuumed
    files: int = 0
