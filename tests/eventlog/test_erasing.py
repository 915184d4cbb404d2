"""Erasing: what is erased is nowhere, what is left is proved, and whoever reads is told so."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest
import trio

from kubechronicle.eventlog import archives
from kubechronicle.eventlog.erasing import Eraser
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Transaction, Who
from kubechronicle.eventlog.verify import verify
from kubechronicle.ops import cli

Opener = Callable[[], Awaitable[Any]]
RunSql = Callable[..., str]
Command = Callable[..., Awaitable[tuple[int, str]]]

MARK = "hunter2"
JANE = Who(
    user="jane", groups=("dev", 'odd "group"'), extra={"k": ("v",)}, verb="update", user_agent="janes-laptop/1.0",
    source_address="198.51.100.7", request_uri="/api/v1/x?labelSelector=secret%3Dhunter2", audit_id="a-1",
)  # fmt: skip
BOB = Who(user="bob", impersonator="jane", verb="update")
ROWS_OF_WEB = 6
SPAN = 10  # revisions of a partition


class Shop:
    """A log of config maps: ``web`` is made, changed and deleted, ``other`` and those of other names stay."""

    def __init__(self, log: Any) -> None:
        self.log = log
        self.there: dict[Key, tuple[int, str]] = {}

    async def change(
        self, name: str, text: str | None, *, resource: str = "configmaps", uid: str = "", who: Who = JANE
    ) -> int:
        """Its revision. ``text`` None: deleted."""
        key = Key(resource, "shop", name)
        expected, last = self.there.get(key, (0, ""))
        operation = Operation.DELETE if text is None else Operation.UPDATE if expected else Operation.CREATE
        metadata = {"name": name, "namespace": "shop", "labels": {"of": "shop"}}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": text or last}}
        change = Change(
            key=key, uid=uid or f"uid-{name}", expected=expected, operation=operation, body=orjson.dumps(body)
        )
        result = await self.log.append(Batch(id=uuid4(), transactions=(Transaction(changes=(change,), who=who),)))
        self.there[key] = (result.head, text) if text is not None else (0, "")
        return int(result.head)


@pytest.fixture
async def shop(replicas: Opener, run_sql: RunSql) -> Shop:
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


@pytest.fixture
def command(database: str, capsys: pytest.CaptureFixture[str]) -> Command:
    async def run(name: str, *arguments: str) -> tuple[int, str]:
        code = await trio.to_thread.run_sync(cli.main, (name, "--database-url", database, *arguments))
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


WEB = ("configmap/web", "-n", "shop", "--reason", "asked for", "--yes")


def everything(run_sql: RunSql, directory: Path | None = None) -> str:
    """All rows of all tables, as text, and the archives."""
    tables = run_sql(
        "select c.oid::regclass from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where nspname = 'kubechronicle' and relkind = 'r'"
    ).split()
    found = [run_sql(*(f"select t::text from {table} t" for table in tables))]
    for file in sorted(directory.iterdir()) if directory is not None else ():
        found.append(gzip.decompress(file.read_bytes()).decode())
    return "\n".join(found)


async def verified(shop: Shop, directory: Path | None = None) -> Any:
    archived = archives.rows_of_all(archives.archives(directory)) if directory is not None else ()
    async with shop.log._maintenance() as session:
        return await verify(session, archived=archived)


async def test_what_was_deleted_is_erased(shop: Shop, command: Command, run_sql: RunSql) -> None:
    others = run_sql("select l::text from kubechronicle.log l where name <> 'web' order by revision")
    assert MARK in everything(run_sql)
    code, said = await command("erase", *WEB[:-1], "--dry-run")
    assert (code, "6 in the database" in said) == (0, True)
    assert MARK in everything(run_sql)
    code, said = await command("erase", *WEB)
    assert (code, "erased 6 revisions; revision 25 tells of it" in said) == (0, True), said
    assert MARK not in everything(run_sql)
    assert run_sql("select l::text from kubechronicle.log l where name <> 'web' and revision < 25 order by 1") == (
        "\n".join(sorted(others.splitlines()))
    )
    verdict = await verified(shop)
    assert (verdict.problem, verdict.rows) == (None, 25)
    ((erasure, revisions),) = verdict.erasures
    assert (erasure.count, erasure.reason, revisions) == (6, "asked for", "2, 4, 6, 8, 10, 12")
    code, said = await command("verify")
    assert (code, "erased: contents of configmaps shop/web in 6 revisions (2, 4, 6, 8, 10, 12)" in said) == (0, True)
    code, said = await command("erase", *WEB)
    assert (code, said) == (1, "there is nothing to erase of configmaps shop/web\n")
