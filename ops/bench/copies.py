"""Many objects at once: copies of one the server made, appended to the log by its own function.

So each is as long as if it had been created through the API, its managed fields and all, at a tenth of the time. The
server must not run meanwhile.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from kubechronicle.eventlog.postgres import open_postgres_log
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Record, Transaction, Who
from kubechronicle.ops.embedded_postgres import embedded_postgres

AT_ONCE = 1000  # changes in a batch
WHO = Who(user="bench", uid="bench", groups=("system:masters",), verb="create", user_agent="kubechronicle-bench")


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
