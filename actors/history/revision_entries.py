"""Changes of the log as entries of lists and watches, with the values of Secrets masked or shown."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson

from kubechronicle.actors.history.change_records import PlainForm, change_of, states_json
from kubechronicle.actors.history.revision_selection import RevisionSelection
from kubechronicle.api.history import revisions
from kubechronicle.api.history.masking import masked_change
from kubechronicle.api.history.reasons import has_text
from kubechronicle.api.history.revisions import PLAIN, Content
from kubechronicle.api.history.secret_values import RESOURCE
from kubechronicle.eventlog.entries import NOTHING, Entry
from kubechronicle.eventlog.records import Key, Record

KEY_BYTES: Final = 16

NAMESPACED: Final = f"revisions.{revisions.GROUP}"
CLUSTER_SCOPED: Final = f"clusterrevisions.{revisions.GROUP}"
"""The resources of Revisions and ClusterRevisions."""

RecordShown = Callable[[Sequence[Key]], Awaitable[None]]
"""Record that the values of these Secrets are shown to the client. Raises the errors of the log."""


@dataclass(slots=True)
class SecretValues:
    """The form of the values of Secrets in one answer.

    ``key``: of the masks (api/history/masking.py).
    ``record``: records Secrets before their values are shown; None: they are masked.
    ``shown``: Secrets in the answer that are not recorded yet.
    """

    key: bytes = field(default_factory=lambda: secrets.token_bytes(KEY_BYTES))
    record: RecordShown | None = None
    shown: set[Key] = field(default_factory=set)

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
