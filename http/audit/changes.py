"""Changes by writes, as annotations of their audit events. The server adds them if --audit-changes is given.

    audit.kubechronicle.dev/revision    the revision of the change, under which the log has the whole of it
    audit.kubechronicle.dev/effect      instead: ``no-op`` for a write that left its object as it was, or ``dry-run``
    audit.kubechronicle.dev/changes     the difference, as a JSON patch with the old values; ``[...]`` if it is too long

The difference has contents, so only events of the levels Request and RequestResponse have it. Values of Secrets are
masks, which tell equal from different within one event.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

import orjson

from kubechronicle.api.history import revisions, secret_values
from kubechronicle.api.history.differences import differences
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry

REVISION: Final = "audit.kubechronicle.dev/revision"
EFFECT: Final = "audit.kubechronicle.dev/effect"
CHANGES: Final = "audit.kubechronicle.dev/changes"
NO_OP, DRY_RUN = "no-op", "dry-run"
MOST_COMPARED: Final = 64 * 1024
"""Bytes of both states up to which they are compared: about a millisecond."""
MOST_SHOWN: Final = 16 * 1024
"""Bytes of a difference in an event."""
TOO_LONG: Final = "[...]"


class AuditedChange:
    """The change of one object. ``after``: the stored object, or that of a dry run."""

    __slots__ = ("_after", "_before", "_resource")

    def __init__(self, resource: str, before: Entry, after: Entry | Object) -> None:
        self._resource = resource
        self._before = before
        self._after = after

    @property
    def size(self) -> int:
        """The bytes that the change keeps in memory, about."""
        return 2 * len(self._before.json)

    def shown(self) -> str:
        """Return the annotation."""
        stored = self._after.json if isinstance(self._after, Entry) else orjson.dumps(self._after)
        if max(len(self._before.json), len(stored)) > MOST_COMPARED:
            return TOO_LONG
        after = self._after.object() if isinstance(self._after, Entry) else self._after
        before: Any = self._before.object()
        if self._resource == secret_values.RESOURCE:
            key = secrets.token_bytes(16)
            before, after = revisions.masked_secret(before, key), revisions.masked_secret(after, key)
        found = orjson.dumps([each.operation() for each in differences(before, after)])
        return found.decode() if len(found) <= MOST_SHOWN else TOO_LONG
