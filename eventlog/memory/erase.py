"""Erasure in a MemoryStore, as by `kubechronicle erase` in Postgres: for tests of readers of erased history."""

from __future__ import annotations

from uuid import uuid4

from msgspec import structs

from kubechronicle.eventlog.integrity import erasures
from kubechronicle.eventlog.integrity.erasures import Erasure
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Record, Transaction, Who


def erase(store: MemoryStore, key: Key, *, last: int = 2**63) -> list[int]:
    """Erase the object's contents up to a revision, except its present state; return the erased revisions.

    Then the entry about the erasure is committed, and all replicas are notified.
    """
    live = store.current(key)
    erasure_id = str(uuid4())
    tombstones = {
        row.revision: _tombstone(row, erasure_id)
        for row in store._history.get(key, ())
        if row.revision <= last and row is not live and not row.erased
    }
    store._rows = [tombstones.get(row.revision, row) for row in store._rows]
    store._history[key] = [tombstones.get(row.revision, row) for row in store._history.get(key, ())]
    revisions = sorted(tombstones)
    for revision in revisions:
        store.who[revision] = structs.replace(store.who[revision], reason="")
    erasure = Erasure(
        id=erasure_id,
        scope="contents",
        resource=key.resource,
        namespace=key.namespace,
        name=key.name,
        resources=(key.resource,),
        reason="asked for",
        by="operator",
        os_user="operator",
        role="postgres",
        count=len(revisions),
        first=revisions[0],
        last=revisions[-1],
        digest=b"",
    )
    entry = Change(
        key=Key(erasures.RESOURCE, "", erasure_id),
        uid=erasure_id,
        expected=0,
        operation=Operation.CREATE,
        body=erasure.body(tombstones[revisions[0]].committed_at),
    )
    who = Who(user="operator", verb="erase")
    store.commit(Batch(id=uuid4(), transactions=(Transaction(changes=(entry,), who=who),)))
    return revisions


def _tombstone(row: Record, erasure: str) -> Record:
    columns = {
        "object": row.body.decode(),
        "name": row.key.name,
        "namespace": row.key.namespace,
        "uid": row.uid,
        "request_uri": "",
    }
    return structs.replace(row, body=erasures.erased_columns(columns, "contents", erasure)["object"].encode())
