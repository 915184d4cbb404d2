"""The layout: which other logs hold the changes of which resources, as the main log itself records it.

A server with --database-url-overrides has one log per database. Each resource belongs to exactly one of them. An object
of the main log names the others, and an object of each of them names the main log:

    main log    Databases/overrides   logs: [{logId: L, first: 10**14, resources: [events]}]
    log L       Databases/main        mainLogId: M

So a server with other overrides, or with another database, notices at its start. It also follows the main log's object,
and stops when that changes (LayoutGuard).

Revisions of one log never occur in another. Each other log begins at a multiple of SPAN, by a jump: a number names one
change, and no resourceVersion of one log is taken for one of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID, uuid4

import orjson

from kubechronicle.eventlog.errors import LogUnavailable, OutcomeUnknown
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Record, Rejected, Transaction, Who

RESOURCE: Final = "databases.history.kubechronicle.dev"
"""The resource of the objects that record the layout. They are served only as revisions and in SQL."""
API_VERSION: Final = "history.kubechronicle.dev/v1"
KIND: Final = "Databases"
OVERRIDES: Final = Key(RESOURCE, "", "overrides")
"""The object in the main log."""
MAIN: Final = Key(RESOURCE, "", "main")
"""The object in each other log."""
SPAN: Final = 10**14
"""Revisions of one log: more than any cluster writes. JSON numbers are exact up to 90 logs."""
MOST_LOGS: Final = 89


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherLog:
    """Another log. ``first``: the revision before its first one. ``resources``: "" of them: it is given up."""

    id: UUID
    first: int
    resources: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The other logs. ``record``: the record of the object; None: there is none, and every resource is in the main
    log."""

    logs: tuple[OtherLog, ...] = ()
    record: Record | None = None

    def holder(self, resource: str) -> OtherLog | None:
        """Return the other log that holds a resource; None: the main log does."""
        return next((log for log in self.logs if resource in log.resources), None)

    @property
    def resources(self) -> frozenset[str]:
        """The resources outside the main log."""
        return frozenset(resource for log in self.logs for resource in log.resources)

    def moved(self, log_id: UUID, resources: Iterable[str]) -> Layout:
        """Return the layout in which another log holds exactly these resources. ValueError: there are too many logs."""
        wanted = tuple(sorted(resources))
        logs = [replace(log, resources=tuple(one for one in log.resources if one not in wanted)) for log in self.logs]
        for place, log in enumerate(logs):
            if log.id == log_id:
                logs[place] = replace(log, resources=wanted)
                return replace(self, logs=tuple(logs))
        if len(logs) >= MOST_LOGS:
            raise ValueError(f"{MOST_LOGS} databases were used for overrides already")
        # Logs that were given up keep their place: their revisions may still be known to clients.
        logs.append(OtherLog(id=log_id, first=(len(logs) + 1) * SPAN, resources=wanted))
        return replace(self, logs=tuple(logs))


def place_of(revision: int) -> int:
    """Return the place of the log to which a revision belongs: 0 is the main log."""
    return (revision - 1) // SPAN if revision > 0 else 0


def parse(body: bytes) -> tuple[OtherLog, ...]:
    """Return the logs in the main log's object. ValueError: it is no such object."""
    try:
        return tuple(
            OtherLog(id=UUID(log["logId"]), first=log["first"], resources=tuple(log["resources"]))
            for log in orjson.loads(body)["spec"]["logs"]
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"the object {OVERRIDES.name} of {RESOURCE} is damaged") from error


async def read_layout(log: RevisionLog) -> Layout:
    """Return the recorded layout of a main log. LogError."""
    record = await _newest(log, OVERRIDES)
    return Layout() if record is None else Layout(logs=parse(record.body), record=record)


async def read_main_id(log: RevisionLog) -> UUID | None:
    """Return the id of the main log that another log belongs to; None: it belongs to none. LogError."""
    record = await _newest(log, MAIN)
    return None if record is None else UUID(orjson.loads(record.body)["spec"]["mainLogId"])


async def write_layout(log: RevisionLog, layout: Layout, author: str) -> bool:
    """Record a layout in the main log. False: another process recorded one meanwhile. LogError."""
    logs = [{"logId": str(each.id), "first": each.first, "resources": list(each.resources)} for each in layout.logs]
    return await _write(log, OVERRIDES, {"logs": logs}, layout.record, author)


async def write_main_id(log: RevisionLog, main: UUID, author: str) -> bool:
    """Record in another log to which main log it belongs. False: as in ``write_layout``."""
    return await _write(log, MAIN, {"mainLogId": str(main)}, None, author)


async def has_objects(log: RevisionLog, resource: str) -> bool:
    """Return whether the newest state of a log has objects of a resource."""
    head = await log.head()
    return bool(head.revision and await log.list_at(resource, revision=head.revision, limit=1))


async def _newest(log: RevisionLog, key: Key) -> Record | None:
    head = await log.head()
    return await log.get_at(key, revision=head.revision) if head.revision else None


async def _write(log: RevisionLog, key: Key, spec: Mapping[str, Any], old: Record | None, author: str) -> bool:
    created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if old is not None:
        created = orjson.loads(old.body)["metadata"]["creationTimestamp"]
    uid = str(uuid4()) if old is None else old.uid
    metadata = {"name": key.name, "uid": uid, "creationTimestamp": created}
    change = Change(
        key=key,
        uid=uid,
        expected=0 if old is None else old.revision,
        operation=Operation.CREATE if old is None else Operation.UPDATE,
        body=orjson.dumps({"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}),
    )
    outcomes = await append_changes(log, [change], author)
    return not isinstance(outcomes, Rejected)


async def append_changes(log: RevisionLog, changes: Sequence[Change], author: str) -> tuple[Record, ...] | Rejected:
    """Append changes as one transaction of the server's own. LogError: OutcomeUnknown is settled first."""
    transaction = Transaction(changes=tuple(changes), who=Who(user="system:apiserver", user_agent=author))
    return await _append(log, Batch(id=uuid4(), transactions=(transaction,)))


async def _append(log: RevisionLog, batch: Batch) -> tuple[Record, ...] | Rejected:
    try:
        result = await log.append(batch)
    except OutcomeUnknown as error:
        settled = await log.settle(batch)
        if settled is None:
            raise LogUnavailable(f"{error}; it did not commit") from error
        result = settled
    return result.outcomes[0]
