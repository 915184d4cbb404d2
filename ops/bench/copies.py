"""Fill a log with copies of an object that the server created, by the log's own append function.

Each copy has the size of an object created through the API, managed fields included, and takes a tenth of the time. The
server must not run meanwhile.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path

from kubechronicle.eventlog.postgres_log import open_postgres_log
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Record, Transaction, Who
from kubechronicle.ops.postgres.embedded_postgres import embedded_postgres

BATCH_SIZE = 1000
WHO = Who(user="bench", uid="bench", groups=("system:masters",), verb="create", user_agent="kubechronicle-bench")


async def fill_nodes(data_dir: Path, *, named: str, count: int) -> None:
    """Create the Nodes 1 to ``count - 1`` as copies of Node 0 with its Lease and Pods.

    The names are those of the load generator.
    """
    first = f"node-{named}-00000"
    async with embedded_postgres(data_dir) as url, open_postgres_log(url, instance="bench") as log:
        head = (await log.head()).revision
        originals: list[Record] = []
        for resource in ("nodes", "leases.coordination.k8s.io", "pods"):  # the Node's uid is in its Lease
            records = await log.list_at(resource, revision=head, limit=BATCH_SIZE)
            originals += [record for record in records if record.key.name.startswith(first)]
        assert originals, f"there is no {first}"
        for number in range(1, count):
            names = (first.encode(), f"node-{named}-{number:05d}".encode())
            uids = {record.uid.encode(): str(uuid.uuid4()).encode() for record in originals}
            changes = tuple(_renamed(record, names, uids) for record in originals)
            await log.append(Batch(id=uuid.uuid4(), transactions=(Transaction(changes=changes, who=WHO),)))


def _renamed(original: Record, names: tuple[bytes, bytes], uids: Mapping[bytes, bytes]) -> Change:
    body = original.body.replace(*names)
    for old, new in uids.items():
        if old in body:
            body = body.replace(old, new)
    key = Key(original.key.resource, original.key.namespace, original.key.name.encode().replace(*names).decode())
    return Change(key=key, uid=uids[original.uid.encode()].decode(), expected=0, operation=Operation.CREATE, body=body)


async def fill(data_dir: Path, *, namespace: str, count: int) -> None:
    """Create the ConfigMaps up to fill-(count - 1), as the load generator names them. The first must exist."""
    async with embedded_postgres(data_dir) as url, open_postgres_log(url, instance="bench") as log:
        head = (await log.head()).revision
        (first,) = await log.list_at("configmaps", revision=head, namespace=namespace, limit=1)
        existing = await log.count_at("configmaps", revision=head, namespace=namespace)
        for begin in range(existing, count, BATCH_SIZE):
            changes = tuple(copy(first, number) for number in range(begin, min(begin + BATCH_SIZE, count)))
            transaction = Transaction(changes=changes, who=WHO)
            await log.append(Batch(id=uuid.uuid4(), transactions=(transaction,)))


def copy(original: Record, number: int) -> Change:
    name, uid = f"fill-{number:06d}", str(uuid.uuid4())
    body = original.body.replace(f'"{original.key.name}"'.encode(), f'"{name}"'.encode())
    body = body.replace(original.uid.encode(), uid.encode())
    key = Key(original.key.resource, original.key.namespace, name)
    return Change(key=key, uid=uid, expected=0, operation=Operation.CREATE, body=body)
