"""Erasing in a MemoryStore, as `kubechronicle erase` does in Postgres: for tests of whoever reads what is left."""

from __future__ import annotations

from uuid import uuid4

from msgspec import structs

from kubechronicle.eventlog.integrity import erasures
from kubechronicle.eventlog.integrity.erasures import Erasure
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Record, Transaction, Who


def erase(store: MemoryStore, key: Key, *, last: int = 2**63) -> list[int]:
    """Erase what the object was up to a revision, but for what it is now; the revisions erased. The entry of the log
    follows, and everybody is notified."""
    live = store.current(key)
    name = str(uuid4())
    gone = {
        row.revision: _tombstone(row, name)
        for row in store._history.get(key, ())
        if row.revision <= last and row is not live and not row.erased
    }
    store._rows = [gone.get(row.revision, row) for row in store._rows]
    store._history[key] = [gone.get(row.revision, row) for row in store._history.get(key, ())]
    found = sorted(gone)
    erasure = Erasure(
        id=name,
        what="contents",
        resource=key.resource,
        namespace=key.namespace,
        name=key.name,
        resources=(key.resource,),
        reason="asked for",
        by="operator",
        os_user="operator",
        role="postgres",
        count=len(found),
        first=found[0],
        last=found[-1],
        digest=b"",
    )
    entry = Change(
        key=Key(erasures.RESOURCE, "", name),
        uid=name,
        expected=0,
        operation=Operation.CREATE,
        body=erasure.body(gone[found[0]].committed_at),
    )
    who = Who(user="operator", verb="erase")
    store.commit(Batch(id=uuid4(), transactions=(Transaction(changes=(entry,), who=who),)))
    return found


def _tombstone(row: Record, erasure: str) -> Record:
    columns = {
        "object": row.body.decode(),
        "name": row.key.name,
        "namespace": row.key.namespace,
        "uid": row.uid,
        "request_uri": "",
    }
    return structs.replace(row, body=erasures.without(columns, "contents", erasure)["object"].encode())
