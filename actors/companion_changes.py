"""Companion changes: changes of other objects that are committed in the same transaction as a write.

      + update resourcequotas/default/q   charges the quota
      + create ipaddresses/10.96.0.17     allocates the address
    create services/default/web           the write

Another replica may take the address or charge the quota first. Then the log rejects that key and commits nothing, and
the write is prepared again on the newest state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubechronicle.api.meta.encoding import encode_stored
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Change, Key, Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionChange:
    """A change of another object, committed together with the write.

    ``old``: the entry it was computed on; None: the key must be absent.
    ``object``: the new object, in its storage version and without resourceVersion; None: delete ``old``.
    ``follows``: its revision is above the write's. A charge or an allocation precedes the write, as in Kubernetes;
    a release follows it.
    """

    key: Key
    old: Entry | None
    object: dict[str, Any] | None
    follows: bool = False

    def change(self) -> Change:
        """Return the change for the log. ValueError: a deletion without an old object."""
        if self.object is not None:
            operation = Operation.CREATE if self.old is None else Operation.UPDATE
            return _change(self.key, self.old, operation, self.object)
        if self.old is None:
            raise ValueError(f"{self.key} has neither an old object nor a new one")
        last = self.old.object()
        del last["metadata"]["resourceVersion"]
        return _change(self.key, self.old, Operation.DELETE, last)


def _change(key: Key, old: Entry | None, operation: Operation, obj: dict[str, Any]) -> Change:
    return Change(
        key=key,
        uid=obj["metadata"].get("uid", ""),
        expected=0 if old is None else old.revision,
        operation=operation,
        body=encode_stored(obj),
        decoded=obj,
    )
