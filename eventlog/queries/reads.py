"""Recorded reads: who got, listed or watched which objects. They hold no contents, and are no part of the hash chain.

Among them are writes that left no change, which the log does not have: dry runs, and those that changed nothing.

ReadQuery(resource="secrets", namespace="shop", name="db")   reads that could show this Secret: of itself, and of
                                                             all Secrets of the namespace or the cluster
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

FORMS: Final = ("object", "metadata", "table", "dry-run", "no-op")
"""The contents of an answer: whole objects; their metadata alone; the columns of a table. Or the request was a write
that left no change: a dry run, or one after which the object is as it was."""


class ReadRecord(NamedTuple):
    """One read.

    ``at``: seconds since the epoch. ``revision``: the newest one that the server had applied.
    ``resource``: as in Key. ``namespace``, ``name``: "" for a list or watch of all.
    ``form``: one of FORMS. ``id``: its number in the database; 0: it is not there yet.
    """

    at: float
    revision: int
    resource: str
    subresource: str
    namespace: str
    name: str
    verb: str
    form: str
    user_name: str
    user_uid: str
    user_groups: tuple[str, ...]
    impersonator: str
    request_uri: str
    user_agent: str
    source_address: str
    audit_id: str
    id: int = 0


class Recording(NamedTuple):
    """A period in which one server recorded reads.

    ``since``, ``until``: seconds since the epoch. ``lost``: reads that did not fit into its buffer.
    ``clean``: the server ended it in order. ``policy``: the audit policy that chose the reads.
    """

    id: UUID
    server: str
    since: float
    until: float
    lost: int
    clean: bool
    policy: Mapping[str, Any]


class ReadQuery(NamedTuple):
    """Reads in a period, newest first.

    ``since``, ``until``: the first and last moment. ``before``: (time, id) of the last one read so far.
    ``resources``: empty for any. ``namespaced``: True: reads in one namespace; False: of cluster-scoped objects and of
    all namespaces; None: both. ``namespace``, ``user``, ``verbs``: empty for any.
    ``name``: reads that could show this object: of it, or of all. "" for any.
    """

    resources: tuple[str, ...] = ()
    namespaced: bool | None = None
    namespace: str = ""
    name: str = ""
    user: str = ""
    verbs: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    before: tuple[datetime, int] | None = None

    def matches(self, read: ReadRecord) -> bool:
        """Tell whether a read fits, but for ``before``."""
        return (
            (not self.resources or read.resource in self.resources)
            and (self.namespaced is None or bool(read.namespace) is self.namespaced)
            and (not self.namespace or read.namespace == self.namespace)
            and (not self.name or read.name in (self.name, ""))
            and (not self.user or read.user_name == self.user)
            and (not self.verbs or read.verb in self.verbs)
            and (self.since is None or read.at >= self.since.timestamp())
            and (self.until is None or read.at <= self.until.timestamp())
        )
