"""Many objects at once: copies of one the server made, appended to the log by its own function.

So each is as long as if it had been created through the API, its managed fields and all, at a tenth of the time. The
server must not run meanwhile.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path

from kubechronicle.eventlog.postgres_log import open_postgres_log
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Record, Transaction, Who
from kubechronicle.ops.postgres.embedded_postgres import embedded_postgres

AT_ONCE = 1000  # changes in a batch
WHO = Who(user="bench", uid="bench", groups=("system:masters",), verb="create", user_agent="kubechronicle-bench")


async def fill_nodes(data_dir: Path, *, named: str, count: int) -> None:
    """Nodes 1 to ``count - 1`` as copies of node 0, which is there, with its Lease and its pods; named as the load
    generator names them."""
    first = f"node-{named}-00000"
    async with embedded_postgres(data_dir) as url, open_postgres_log(url, instance="bench") as log:
        head = (await log.head()).revision
        originals: list[Record] = []
        for resource in ("nodes", "leases.coordination.k8s.io", "pods"):  # the Node's uid is in its Lease
            found = await log.list_at(resource, revision=head, limit=AT_ONCE)
            originals += [record for record in found if record.key.name.startswith(first)]
        assert originals, f"there is no {first}"
        for number in range(1, count):
            names = (first.encode(), f"node-{named}-{number:05d}".encode())
            uids = {record.uid.encode(): str(uuid.uuid4()).encode() for record in originals}
            changes = tuple(_renamed(record, names, uids) for record in originals)
            await log.append(Batch(id=uuid.uuid4(), transactions=(Transaction(changes=changes, who=WHO),)))


def _renamed(of: Record, names: tuple[bytes, bytes], uids: Mapping[bytes, bytes]) -> Change:
    body = of.body.replace(*names)
    for old, new in uids.items():
        if old in body:
            body = body.replace(old, new)
    key = Key(of.key.resource, of.key.namespace, of.key.name.encode().replace(*names).decode())
    return Change(key=key, uid=uids[of.uid.encode()].decode(), expected=0, operation=Operation.CREATE, body=body)


async def fill(data_dir: Path, *, namespace: str, count: int) -> None:
    """ConfigMaps fill-000000 to fill-(count - 1), as the load generator names them; the first must be there."""
    async with embedded_postgres(data_dir) as url, open_postgres_log(url, instance="bench") as log:
        head = (await log.head()).revision
        (first,) = await log.list_at("configmaps", revision=head, namespace=namespace, limit=1)
        have = await log.count_at("configmaps", revision=head, namespace=namespace)
        for begin in range(have, count, AT_ONCE):
            changes = tuple(copy(first, number) for number in range(begin, min(begin + AT_ONCE, count)))
            transaction = Transaction(changes=changes, who=WHO)
            await log.append(Batch(id=uuid.uuid4(), transactions=(transaction,)))


def copy(of: Record, number: int) -> Change:
    name, uid = f"fill-{number:06d}", str(uuid.uuid4())
    body = of.body.replace(f'"{of.key.name}"'.encode(), f'"{name}"'.encode()).replace(of.uid.encode(), uid.encode())
    key = Key(of.key.resource, of.key.namespace, name)
    return Change(key=key, uid=uid, expected=0, operation=Operation.CREATE, body=body)
