"""Random histories with erasures, compaction and archiving in between.

The chain verifies, other data is read as before, erased data is nowhere, and a changed byte is detected.
"""

from __future__ import annotations

import gzip
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubechronicle.actors.history.log_changes import LogChanges
from kubechronicle.actors.history.past_reads import PastReads
from kubechronicle.actors.history.revisions import ChangeReads
from kubechronicle.actors.large_work import LargeWork
from kubechronicle.actors.reading.reads import Reads, Selection
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.registry.registry import ResourceType, builtin_registry
from kubechronicle.eventlog.entries import seal
from kubechronicle.eventlog.erasure.eraser import Eraser
from kubechronicle.eventlog.erasure.plan import ErasureAuthor, ErasureRequest
from kubechronicle.eventlog.integrity.verify import verify
from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.eventlog.postgres_log import open_postgres_log
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Transaction, Who
from kubechronicle.eventlog.retention import archives
from kubechronicle.eventlog.testing import Stack, open_stack
from kubechronicle.eventlog.views.replay import ReplayOver
from kubechronicle.ops.maintenance.hold import matcher_of

MAPS = builtin_registry().known("", "v1", "configmaps")
assert MAPS is not None
REVISIONS = builtin_registry().known("history.kubechronicle.dev", "v1", "revisions")
NAMES, USERS = "abc", ("jane", "bob")
SIGNED = ErasureAuthor(by="operator", os_user="operator", program="test", reason="asked for")

STEPS = 40
WEIGHTS = {"put": 26, "delete": 5, "erase": 5, "anonymize": 1, "forget": 1, "compact": 2}


def history(draw: random.Random) -> Iterator[tuple[Any, ...]]:
    """Yield steps: a kind and its arguments. Numbers in hundredths are of the history so far."""
    for kind in draw.choices(list(WEIGHTS), list(WEIGHTS.values()), k=STEPS):
        hundredths = draw.choice((20, 40, 60, 80, 100))
        rest = {
            "forget": (draw.choice(USERS),),
            "compact": (hundredths // 2,),
            "erase": (draw.choice(NAMES), hundredths),
        }
        changed = (draw.choice(NAMES), draw.choice(USERS))
        yield (kind, *rest.get(kind, changed[:1] if kind == "anonymize" else changed))


@dataclass
class Row:
    """A change. ``mark``: a text that occurs only in its body."""

    revision: int
    key: Key
    user: str
    mark: str
    body: bytes
    deleted: bool
    erased: bool = False


class Run:
    """One history. ``before``: the newest revision of earlier examples."""

    def __init__(self, url: str, log: Any, stack: Stack, directory: Path, seed: int, before: int) -> None:
        self.url, self.log, self.stack, self.directory = url, log, stack, directory
        self.draw = random.Random(seed)
        self.resource = f"configmaps{seed}x{before}"
        assert MAPS is not None
        self.rt = replace(MAPS, plural=self.resource, resource=self.resource)
        self.reads = Reads(log=log, views=stack.views, consistency=stack.reads, describe=_described)
        self.rows: list[Row] = []
        self.users = {user: f"{user}-{uuid4()}" for user in USERS}
        self.forgotten: set[str] = set()
        self.before = self.mark = before

    def newest(self, key: Key, revision: int = 2**62) -> Row | None:
        found = [row for row in self.rows if row.key == key and row.revision <= revision]
        return found[-1] if found else None

    # -- steps ---------------------------------------------------------------------------------------------------------

    async def do(self, kind: str, *rest: Any) -> None:
        if kind in ("put", "delete"):
            await self._change(kind, *rest)
        elif kind == "forget":
            user = self.users[rest[0]]
            await self._erase(ErasureRequest(scope="who", user=user))
            self.users[rest[0]] = f"{rest[0]}-{uuid4()}"
            self.forgotten.add(user)
        elif kind == "compact":
            head = (await self.log.head()).revision
            mark = self.before + (head - self.before) * rest[0] // 100
            if mark > self.mark:
                await self.log.compact(mark, archive=self.directory)
                self.mark = mark
        else:
            await self._erase_object(Key(self.resource, "shop", rest[0]), None if kind == "anonymize" else rest[1])
        await self.stack.reads.wait()

    async def _change(self, kind: str, name: str, user: str) -> None:
        key = Key(self.resource, "shop", name)
        last = self.newest(key)
        expected = last.revision if last is not None and not last.deleted else 0
        if kind == "delete" and not expected:
            return
        mark = f"mark-{uuid4()}"
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}, "text": mark}
        operation = Operation.DELETE if kind == "delete" else Operation.UPDATE if expected else Operation.CREATE
        change = Change(key=key, uid=f"u-{name}", expected=expected, operation=operation, body=orjson.dumps(body))
        who = Who(user=self.users[user], groups=(f"{self.users[user]}-group",), verb="x", request_uri=f"/x?{mark}")
        result = await self.log.append(Batch(id=uuid4(), transactions=(Transaction(changes=(change,), who=who),)))
        self.rows.append(Row(result.head, key, self.users[user], mark, change.body, kind == "delete"))

    async def _erase_object(self, key: Key, before: int | None) -> None:
        newest = self.newest(key)
        if newest is None or (before is None and not newest.deleted):
            return
        first, last = self.rows[0].revision, self.rows[-1].revision
        until = last if before is None else first + (last - first) * before // 100
        erased = await self._erase(
            ErasureRequest(
                scope="object" if before is None else "contents",
                resource=key.resource,
                namespace=key.namespace,
                name=key.name,
                last=until,
                whole=before is None,
            )
        )
        for row in self.rows:
            if row.key == key and row.revision <= until and (row is not newest or row.deleted):
                row.erased = True
                if before is None:
                    row.key = Key(key.resource, key.namespace, erased)

    async def _erase(self, request: ErasureRequest) -> str:
        async with (
            open_session(self.url) as session,
            Eraser.locked(session, request, archive=self.directory, selector_of=matcher_of) as eraser,
        ):
            if (await eraser.plan()).nothing:
                return ""
            done = await eraser.erase(SIGNED)
            assert done.erasure is not None
            return done.erasure.name

    # -- checks --------------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        await self._check_chain()
        await self._check_nowhere()
        for revision in {self.draw.choice(self.rows).revision for _ in range(3)} | {self.rows[-1].revision}:
            if revision >= self.mark:
                await self._check_moment(revision)
        await self._check_changes()

    async def _check_chain(self) -> None:
        async with open_session(self.url) as session:
            rows = archives.rows_of_all(archives.archives(self.directory))
            verdict = await verify(session, archived=rows)
            assert (verdict.problem, verdict.unerased) == (None, 0)
            assert (await verify(session)).problem is None

    async def _check_nowhere(self) -> None:
        found = "\n".join(gzip.decompress(file.read_bytes()).decode() for file in self.directory.iterdir())
        async with open_session(self.url) as session:
            tables = await session.fetch(
                "select c.oid::regclass::text from pg_class c where relkind in ('r', 'v')"
                " and relnamespace in (to_regnamespace('kubechronicle'), to_regnamespace('chronicle'))"
            )
            for (table,) in tables:
                found += "\n".join(row[0] for row in await session.fetch(f"select t::text from {table} t"))
        assert not [user for user in self.forgotten if user in found]
        for row in self.rows:
            assert (row.mark in found) is not row.erased

    async def _check_moment(self, revision: int) -> None:
        """Compare gets, a list, and a watch up to the present."""
        past = PastReads(self.reads, await self.reads.past.moment(revision), until=self.rows[-1].revision)
        keys = {row.key for row in self.rows}
        state = {key: row for key in keys if (row := self.newest(key, revision)) is not None and not row.deleted}
        for key in keys:
            row = state.get(key)
            if row is not None and row.erased:
                with pytest.raises(StatusError, match="was erased from history"):
                    await past.get(self.rt, key.namespace, key.name)
            else:
                entry = await past.get(self.rt, key.namespace, key.name)
                assert (entry and entry.json) == (row and seal(row.body, row.revision))
        left = {row.key.name: row.mark for row in state.values() if not row.erased}
        for limit in (0, 2):
            listing = await past.list(self.rt, Selection(namespace="shop"), limit=limit)
            if not limit:
                assert {entry.key.name: entry.object()["text"] for entry in listing.entries} == left
                assert listing.erased == len(state) - len(left)
            assert not any(entry.erased for entry in listing.entries)
        watching = await past.watch(self.rt, Selection(namespace="shop"), revision=None, initial=True)
        known = {entry.key.name: entry.object()["text"] for entry in watching.initial}
        assert known == left
        watched = ""
        try:
            while True:
                for event in await watching.cursor.next_batch(trio.current_time() + 30):
                    classified = watching.classify(event)
                    assert classified is not None
                    watched += classified[1].json.decode()
                    if classified[0] == "DELETED":
                        known.pop(classified[1].key.name, None)
                    else:
                        assert (classified[0] == "ADDED") == (
                            classified[1].key.name not in known or event.previous.erased
                        )  # type: ignore[union-attr]
                        known[classified[1].key.name] = classified[1].object()["text"]
        except ReplayOver:
            pass
        assert not [row for row in self.rows if row.erased and row.mark in watched]
        now = {key: self.newest(key) for key in keys}
        assert known == {key.name: row.mark for key, row in now.items() if row is not None and not row.deleted}

    async def _check_changes(self) -> None:
        async def readable(*_: str) -> bool:
            return True

        async def deleted() -> list[ResourceType]:
            return []

        assert REVISIONS is not None
        turn = LargeWork().turn("test")
        made = LogChanges(self.reads, builtin_registry(), deleted, readable=readable, content="full", turn=turn)

        async def make(_: Reads) -> LogChanges:
            return made

        changes = ChangeReads(self.reads, make)
        found = (await changes.list(REVISIONS, Selection(namespace="shop"), limit=500)).entries
        recorded = {int(entry.key.name): entry.object() for entry in found}
        for row in self.rows:
            if row.revision in recorded:
                revision = recorded[row.revision]
                assert revision.get("erased", False) is row.erased
                assert (row.mark in str(revision)) is not row.erased
                assert revision["who"]["username"] == ("<erased>" if row.user in self.forgotten else row.user)

    async def check_a_flip(self) -> None:
        """Change one byte of one column of one row, expect a problem, and restore it."""
        async with open_session(self.url) as session:
            table = self.draw.choice(("log", "kept", "erased"))
            found = await session.fetch(f"select * from kubechronicle.{table} order by 1")
            if not found:
                return
            row = dict(self.draw.choice(found))
            column = self.draw.choice(
                ("was", "remains") if table == "erased" else ("object", "name", "uid", "user_name")
            )
            if table == "log" and self.draw.random() < 0.4:
                column = self.draw.choice(("digest", "hash"))
            old = row[column]
            if isinstance(old, bytes):
                place = self.draw.randrange(len(old))
                new: Any = bytes([*old[:place], old[place] ^ 1, *old[place + 1 :]])
            else:
                new = f"{old} "
            where = "revision = $2" + (" and erasure = $3" if table == "erased" else "")
            arguments = (row["revision"], *((row["erasure"],) if table == "erased" else ()))
            statement = f"update kubechronicle.{table} set {column} = $1 where {where}"
            await session.fetch(statement, new, *arguments)
            assert (await verify(session)).problem is not None, (table, column, row["revision"])
            await session.fetch(statement, old, *arguments)
            assert (await verify(session)).problem is None


def _described(resource: str, decoded: Any) -> tuple[dict[str, str], dict[str, str]]:
    return {}, {"metadata.name": decoded["metadata"]["name"]}


async def small_partitions(url: str) -> None:
    async with open_session(url) as session:
        await session.execute(
            """
            drop table kubechronicle.log_long_1, kubechronicle.log_short_1;
            update kubechronicle.retention_classes set span = 12, partitioned_until = 1;
            update kubechronicle.head set partitioned_until = 1;
            select kubechronicle.make_partition('long'), kubechronicle.make_partition('short');
            """
        )


def test_histories_with_erasures(database: str) -> None:
    trio.run(small_partitions, database)
    with tempfile.TemporaryDirectory() as directory:

        @given(seed=st.integers(0, 2**32))
        @settings(deadline=None, max_examples=3, suppress_health_check=[HealthCheck.too_slow])
        def histories(seed: int) -> None:
            async def example() -> None:
                async with open_postgres_log(database, instance="test") as log, open_stack(log) as stack:
                    run = Run(database, log, stack, Path(directory), seed, (await log.head()).revision)
                    for step in history(random.Random(seed)):
                        await run.do(*step)
                    if run.rows:
                        await run.check()
                        for _ in range(2):
                            await run.check_a_flip()

            trio.run(example)

        histories()
