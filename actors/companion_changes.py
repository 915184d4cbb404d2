"""What commits together with a write, or not at all: changes of other objects that the write rests on or uses up.

    create services/default/web           the write
      + create ipaddresses/10.96.0.17     beside it: the address is taken in the same transaction
      + update resourcequotas/default/q   beside it: the quota is charged in the same transaction

If the log refuses any of the keys, because another replica was faster with the address or the quota, nothing of the
write happens, and it is prepared again from the newest state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubechronicle.api.meta.encoding import encode_stored
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Change, Key, Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionChange:
    """A change of another object that commits together with the write.

    ``old`` is the entry it was computed on (None: the key must be absent), ``object`` what is to be stored: the whole
    object in its storage version, without resourceVersion; None deletes ``old``.
    """

    key: Key
    old: Entry | None
    object: dict[str, Any] | None

    def change(self) -> Change:
        """This as the log takes it. ValueError for a deletion of nothing."""
        if self.object is not None:
            operation = Operation.CREATE if self.old is None else Operation.UPDATE
            return _change(self.key, self.old, operation, self.object)
        if self.old is None:
            raise ValueError(f"{self.key} is neither there nor to be made")
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
