"""Records of the log as the plain values that revision objects are made of.

The same as entries of lists and watches, with the values of Secrets masked or shown.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec
import orjson
from msgspec import UNSET, UnsetType, field

from kubechronicle.actors.history.revision_selection import RevisionSelection
from kubechronicle.api.history import revisions
from kubechronicle.api.history.object_parts import Parts
from kubechronicle.api.history.reasons import has_text
from kubechronicle.api.history.revisions import API_VERSION, PLAIN, Content, masked_change
from kubechronicle.api.history.secret_values import RESOURCE
from kubechronicle.api.values.caches import remembered
from kubechronicle.eventlog.entries import NOTHING, Entry
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.queries.changes import ChangeQuery
from kubechronicle.eventlog.records import ERASED_BODY, Key, Operation, Record, Who


async def records_of(log: RevisionLog, numbers: Iterable[int]) -> dict[int, Record]:
    """Return the records of changes by revision. One is missing if it has left history. LogError."""
    wanted = sorted(set(numbers))
    found: dict[int, Record] = {}
    while wanted:
        query = ChangeQuery(revisions=tuple(wanted), newest_first=False, with_replaced=False)
        chunk = await log.changes(query, limit=len(wanted))
        found |= {record.revision: record for record, _ in chunk}
        wanted = [each for each in wanted if each > chunk[-1][0].revision] if chunk.cut else []
    return found


def change_of(record: Record, before: Record | None, database: str = "") -> revisions.RevisionChange:
    """Return the change that ``record`` made to the object of ``before``, in the log of a database."""
    last = orjson.loads(record.body)
    deleted = record.erased or record.operation is Operation.DELETE
    who = record.who or Who(user="")
    return revisions.RevisionChange(
        revision=record.revision,
        time=record.committed_at,
        operation=int(record.operation),
        resource=record.key.resource,
        namespace=record.key.namespace,
        name=record.key.name,
        uid=record.uid,
        version=record.version,
        previous_revision=record.previous_revision,
        who={
            "username": who.user,
            "uid": who.uid,
            "groups": list(who.groups),
            "extra": {name: list(values) for name, values in who.extra.items()},
            "impersonator": who.impersonator,
            "sourceAddress": who.source_address,
            "userAgent": who.user_agent,
            "fieldManager": who.field_manager,
        },
        request={"verb": who.verb, "uri": who.request_uri, "auditID": who.audit_id},
        reason=who.reason,
        cause=who.cause,
        before=orjson.loads(before.body) if before is not None and not before.erased else None,
        after=None if deleted else last,
        last=last if deleted else None,
        erased=record.erased,
        before_erased=before is not None and before.erased,
        labels=_labels_of(last),
        database=database,
        problem=problem_of(record, before),
    )


def problem_of(record: Record, before: Record | None) -> str:
    """Return the reason why a change cannot be shown: one of its objects cannot be decrypted. "": it can."""
    return record.problem or (before.problem if before is not None else "")


@dataclass(frozen=True, slots=True)
class PlainForm:
    """The form of changes with their objects as the log holds them.

    ``parts``: reduces the JSON of objects to some fields; None: they are whole.
    ``brief``: without uid and version, and of the user the name alone.
    """

    parts: Parts | None = None
    brief: bool = False


WHOLE: Final = PlainForm()


def states_json(record: Record, before: Record | None, form: PlainForm = WHOLE, database: str = "") -> bytes:
    """Return a Revision with its objects as the log holds them, as JSON (``?content=states``, ``?content=after``).

    The objects are not decoded, so that readers of many changes cost little. So the reason is that of the request
    alone. ``before``, ``after``: the objects before and after a creation or update. A deletion has ``before``, and
    ``last``: the object as it was deleted. Nothing is compared: there are no differences, labels or kinds beside the
    objects. With an object that cannot be decrypted, the change is redacted.
    """
    head, parts, problem = _head(record, form, database), form.parts or msgspec.Raw, problem_of(record, before)
    if problem:
        head.redacted, head.problem = True, problem
    if record.body.startswith(ERASED_BODY):
        head.erased = True
        return _encoded(head)
    if before is not None and before.erased:
        head.before_erased = True
    elif before is not None and not problem:
        head.before = parts(before.body)
    if not problem and record.operation is Operation.DELETE:
        head.last = parts(record.body)
    elif not problem:
        head.after = parts(record.body)
    return _encoded(head)


def _head(record: Record, form: PlainForm, database: str) -> _RevisionHead:
    resource, namespace, name = record.key
    who, number, where = record.who or _NOBODY, str(record.revision), namespace or UNSET
    is_brief, previous = form.brief, record.previous_revision
    return _RevisionHead(
        API_VERSION,
        "Revision" if namespace else "ClusterRevision",
        _RevisionMetadata(number, number, where),
        revisions.OPERATIONS[record.operation],
        record.committed_at,
        _ObjectReference(resource.partition(".")[0], name, UNSET if is_brief else record.uid, where),
        UNSET if is_brief else record.version,
        _name_of(who.user) if is_brief else _who_of(who),
        _Request(who.verb, who.request_uri, who.audit_id),
        str(previous) if previous else UNSET,
        reason=who.reason or UNSET,
        cause=str(who.cause) if who.cause else UNSET,
        database=database or UNSET,
    )


class _RevisionMetadata(msgspec.Struct, gc=False):
    name: str
    resource_version: str = field(name="resourceVersion")
    namespace: str | UnsetType


class _ObjectReference(msgspec.Struct, gc=False):
    resource: str
    name: str
    uid: str | UnsetType
    namespace: str | UnsetType


class _Request(msgspec.Struct, gc=False):
    verb: str
    uri: str
    audit_id: str = field(name="auditID")


class _RevisionHead(msgspec.Struct, rename="camel", gc=False):
    """A Revision, with its objects as JSON. Such a record is encoded sooner than dictionaries are made."""

    api_version: str
    kind: str
    metadata: _RevisionMetadata
    operation: str
    time: datetime
    object: _ObjectReference
    version: int | UnsetType
    who: msgspec.Raw
    request: _Request
    previous_revision: str | UnsetType
    erased: bool | UnsetType = UNSET
    before_erased: bool | UnsetType = UNSET
    redacted: bool | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    cause: str | UnsetType = UNSET
    database: str | UnsetType = UNSET
    problem: str | UnsetType = UNSET
    before: Any = UNSET
    last: Any = UNSET
    after: Any = UNSET


_encoded: Final = msgspec.json.Encoder().encode
_NOBODY: Final = Who(user="")


def _who_of(who: Who) -> msgspec.Raw:
    if who.extra:
        return msgspec.Raw(_who_json(who, who.extra))
    return _plain_who(
        who.user, who.uid, who.groups, who.impersonator, who.source_address, who.user_agent, who.field_manager
    )


@remembered(256)
def _name_of(user: str) -> msgspec.Raw:
    return msgspec.Raw(_who_json(Who(user=user), {}))


@remembered(256)
def _plain_who(*fields: Any) -> msgspec.Raw:
    """Return the JSON of a Who without extra, kept: few clients make most of the changes."""
    user, uid, groups, impersonator, address, agent, manager = fields
    who = Who(
        user=user,
        uid=uid,
        groups=groups,
        impersonator=impersonator,
        source_address=address,
        user_agent=agent,
        field_manager=manager,
    )
    return msgspec.Raw(_who_json(who, {}))


def _who_json(who: Who, extra: Mapping[str, Any]) -> bytes:
    found = {
        "username": who.user,
        "uid": who.uid,
        "groups": who.groups,
        "extra": extra,
        "impersonator": who.impersonator,
        "sourceAddress": who.source_address,
        "userAgent": who.user_agent,
        "fieldManager": who.field_manager,
    }
    return orjson.dumps({name: value for name, value in found.items() if value})


def _labels_of(obj: dict[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = obj.get("metadata", {}).get("labels") or {}
    return labels


KEY_BYTES: Final = 16

NAMESPACED: Final = f"revisions.{revisions.GROUP}"
CLUSTER_SCOPED: Final = f"clusterrevisions.{revisions.GROUP}"
"""The resources of Revisions and ClusterRevisions."""

RecordShown = Callable[[Sequence[Key]], Awaitable[None]]
"""Record that the values of these Secrets are shown to the client. Raises the errors of the log."""


@dataclass(slots=True)
class SecretValues:
    """The form of the values of Secrets in one answer.

    ``key``: of the masks (api/history/revisions.py).
    ``record``: records Secrets before their values are shown; None: they are masked.
    ``shown``: Secrets in the answer that are not recorded yet.
    """

    key: bytes = dataclasses.field(default_factory=lambda: secrets.token_bytes(KEY_BYTES))
    record: RecordShown | None = None
    shown: set[Key] = dataclasses.field(default_factory=set)

    async def finish(self) -> None:
        """Record what is shown, before the answer is sent."""
        if self.shown and self.record is not None:
            shown, self.shown = sorted(self.shown), set()
            await self.record(shown)


def matches(selected: RevisionSelection, record: Record, before: Record | None) -> bool:
    """Return True if a change has the selected labels and reason, and concerns the selected fields."""
    change = change_of(record, before)
    labels = selected.selection.labels
    if labels is not None and not labels.matches(change.labels):
        return False
    if not all(has_text(revisions.reason_of(change), term.value) is term.equal for term in selected.reasons):
        return False
    return all(revisions.concerns_field(change, term.value) is term.equal for term in selected.fields)


def plain_entry(record: Record, before: Record | None, form: PlainForm, database: str = "") -> Entry:
    """Return the revision of a change with its objects as the log holds them: nothing is decoded, shown or masked."""
    revision, namespace = record.revision, record.key.namespace
    key = Key(NAMESPACED if namespace else CLUSTER_SCOPED, namespace, str(revision))
    return Entry(key, "", revision, revision, 1, states_json(record, before, form, database), NOTHING, NOTHING)


def entry_of(
    record: Record,
    before: Record | None,
    content: Content,
    values: SecretValues,
    form: PlainForm,
    *,
    readable: bool,
    database: str = "",
) -> Entry:
    """Return the revision of a change. ``form``: with plain contents. ``readable``: the client may read the object.

    ``database``: whose log the change is in, if it is not the main one.
    """
    if content in PLAIN and readable:
        return plain_entry(record, before if content == "states" else None, form, database)
    namespace = record.key.namespace
    key = Key(NAMESPACED if namespace else CLUSTER_SCOPED, namespace, str(record.revision))
    change = change_of(record, before, database)
    if values.record is None:
        change = masked_change(change, values.key)
    elif record.key.resource == RESOURCE and readable:
        values.shown.add(record.key)
    revision = revisions.revision_object(change, content=content, readable=readable)
    labels = change.labels if readable else {}
    return Entry(key, "", record.revision, record.revision, 1, orjson.dumps(revision), labels, {})
