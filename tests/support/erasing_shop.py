"""A shop with a log for tests of erasure, and helpers to verify it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson

from kubechronicle.eventlog.integrity.verify import verify
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Transaction, Who
from kubechronicle.eventlog.retention import archives

Opener = Callable[[], Awaitable[Any]]
RunSql = Callable[..., str]
Command = Callable[..., Awaitable[tuple[int, str]]]

MARK = "hunter2"
JANE = Who(
    user="jane",
    groups=("dev", 'odd "group"'),
    extra={"k": ("v",)},
    verb="update",
    user_agent="janes-laptop/1.0",
    source_address="198.51.100.7",
    request_uri="/api/v1/x?labelSelector=secret%3Dhunter2",
    audit_id="audit-4711",
)
BOB = Who(user="bob", impersonator="jane", verb="update", reason="as Jane asked")
ROWS_OF_WEB = 6
SPAN = 10  # revisions of a partition
WEB = ("configmap/web", "-n", "shop", "--reason", "asked for", "--yes")


class Shop:
    """A log of ConfigMaps: ``web`` is created, updated and deleted; ``other`` and all others stay.

    ``live``: revision and text of existing objects.
    """

    def __init__(self, log: Any) -> None:
        self.log = log
        self.live: dict[Key, tuple[int, str]] = {}

    async def change(
        self, name: str, text: str | None, *, resource: str = "configmaps", uid: str = "", who: Who = JANE
    ) -> int:
        """Append a change and return its revision. ``text`` None: delete."""
        key = Key(resource, "shop", name)
        expected, last = self.live.get(key, (0, ""))
        operation = Operation.DELETE if text is None else Operation.UPDATE if expected else Operation.CREATE
        metadata = {"name": name, "namespace": "shop", "labels": {"of": "shop"}}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": text or last}}
        change = Change(
            key=key, uid=uid or f"uid-{name}", expected=expected, operation=operation, body=orjson.dumps(body)
        )
        result = await self.log.append(Batch(id=uuid4(), transactions=(Transaction(changes=(change,), who=who),)))
        self.live[key] = (result.head, text) if text is not None else (0, "")
        return int(result.head)


async def open_shop(replicas: Opener, run_sql: RunSql) -> Shop:
    """Return a shop with 24 changes in partitions of SPAN revisions."""
    run_sql(
        "drop table kubechronicle.log_long_1, kubechronicle.log_short_1",
        f"update kubechronicle.retention_classes set span = {SPAN}, partitioned_until = 1",
        "update kubechronicle.head set partitioned_until = 1",
        "select kubechronicle.make_partition('long'), kubechronicle.make_partition('short')",
    )
    shop = Shop(await replicas())
    await shop.change("old", "stays", who=BOB)
    for number in range(ROWS_OF_WEB - 1):
        await shop.change("web", f"{MARK}-{number}")
        await shop.change("other", f"text-{number}", who=BOB)
    await shop.change("web", None)
    for number in range(12):
        await shop.change(f"more-{number}", "text", who=BOB)
    return shop


async def verified(shop: Shop, directory: Path | None = None) -> Any:
    archived = archives.rows_of_all(archives.archives(directory)) if directory is not None else ()
    async with shop.log._maintenance() as session:
        return await verify(session, archived=archived)
