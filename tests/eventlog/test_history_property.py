"""Reads of the past equal a replay of the log.

For random histories, at every revision: get, lists with selectors, pages and watches. From memory and from the log, and
while history is being compacted.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from kubechronicle.actors.history.past_reads import PastReads
from kubechronicle.actors.reading.reads import Reads, Selection
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.registry.registry import ResourceType, builtin_registry
from kubechronicle.api.selectors.field_selectors import parse_field_selector, parse_label_selector
from kubechronicle.eventlog.entries import Entry, seal
from kubechronicle.eventlog.errors import BeforeHistory, Compacted
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.eventlog.postgres_log import open_postgres_log
from kubechronicle.eventlog.records import Key, Operation, Record
from kubechronicle.eventlog.testing import Stack, open_stack, put, transaction
from kubechronicle.eventlog.views.replay import ReplayOver

PODS = builtin_registry().known("", "v1", "pods")
assert PODS is not None
NAMES, NAMESPACES, LABELS, NODES = "abcd", ("x", "y"), ("", "web", "data"), ("", "n1", "n2")
SELECTORS = (
    {},
    {"labels": parse_label_selector("app=web")},
    {"labels": parse_label_selector("app!=web")},
    {"fields": parse_field_selector("spec.nodeName=n1", PODS)},
    {"fields": parse_field_selector("metadata.name=b", PODS)},
    {"labels": parse_label_selector("app"), "fields": parse_field_selector("spec.nodeName!=n2", PODS)},
)

name, namespace = st.sampled_from(NAMES), st.sampled_from(NAMESPACES)
CHANGE = st.one_of(
    st.tuples(st.just("put"), namespace, name, st.sampled_from(LABELS), st.sampled_from(NODES)),
    st.tuples(st.just("put"), namespace, name, st.sampled_from(LABELS), st.sampled_from(NODES)),
    st.tuples(st.just("delete"), namespace, name),
)
HISTORY = st.lists(CHANGE, min_size=1, max_size=30)
State = dict[tuple[str, str], Record]


def described(resource: str, decoded: Mapping[str, Any]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    metadata, node = decoded["metadata"], decoded.get("spec", {}).get("nodeName", "")
    return metadata.get("labels", {}), {"metadata.name": metadata["name"], "spec.nodeName": node}


class Run:
    """One history on one log. ``rows``: the committed records; ``mark``: the highest possible compacted revision."""

    def __init__(self, stack: Stack, rt: ResourceType, choice: random.Random) -> None:
        self.stack, self.rt, self.choice = stack, rt, choice
        self.reads = Reads(log=stack.log, views=stack.views, consistency=stack.reads, describe=described)
        self.rows: list[Record] = []
        self.mark = 0

    async def commit(self, changes: Sequence[tuple[str, ...]]) -> None:
        for kind, *where in changes:
            key = Key(self.rt.resource, where[0], where[1])
            entry = self.stack.views[key.resource].get(key.namespace, key.name)
            expected = entry.revision if entry else 0
            if kind == "put":
                labels = {"app": where[2]} if where[2] else {}
                change = put(key, expected=expected, labels=labels, node=where[3], text=str(len(self.rows)))
            elif entry is None:
                continue
            else:
                change = structs.replace(put(key, expected=expected), operation=Operation.DELETE)
            self.rows += await self.stack.appender.append(transaction(change), deadline=trio.current_time() + 30)

    def state(self, revision: int) -> State:
        found: State = {}
        for row in self.rows:
            if row.revision <= revision:
                found[row.key[1:]] = row
        return {key: row for key, row in sorted(found.items()) if row.operation is not Operation.DELETE}

    async def past(self, revision: int, **options: Any) -> PastReads:
        return PastReads(self.reads, await self.reads.past.moment(revision), **options)

    async def check(self, revision: int) -> None:
        """Compare all reads at the revision with the replay; a compacted revision must raise Compacted."""
        try:
            past = await self.past(revision)
            await self._check_gets(past, revision)
            await self._check_lists(past, revision)
            await self._check_watch(revision)
        except (BeforeHistory, Compacted):
            expired = True
        except StatusError as error:
            expired = error.reason == "Expired"
        else:
            return
        assert expired
        assert revision < self.mark

    async def _check_gets(self, past: PastReads, revision: int) -> None:
        state = self.state(revision)
        for where, one in itertools.product(NAMESPACES, NAMES):
            entry = await past.get(self.rt, where, one)
            row = state.get((where, one))
            assert (entry and entry.json) == (row and seal(row.body, row.revision))

    async def _check_lists(self, past: PastReads, revision: int) -> None:
        for selector in SELECTORS:
            where, limit = self.choice.choice(("", *NAMESPACES)), self.choice.choice((0, 1, 2, 3))
            selection = Selection(namespace=where, **selector)
            expected = self._selected(selection, revision)
            found: list[Entry] = []
            token = ""
            while True:
                page = await past.list(self.rt, selection, limit=limit, continue_token=token)
                found += page.entries
                assert page.revision == revision
                assert not limit or len(page.entries) <= limit
                if page.remaining is not None:
                    assert page.remaining == len(expected) - len(found)
                token = page.continue_token
                if not token:
                    break
            assert [(entry.key[1:], entry.json) for entry in found] == expected

    def _selected(self, selection: Selection, revision: int) -> list[tuple[tuple[str, str], bytes]]:
        matches = selection.matcher() or (lambda entry: True)
        entries = [self.stack.views.describe_record(row) for row in self.state(revision).values()]
        inside = [entry for entry in entries if selection.namespace in ("", entry.key.namespace)]
        return [(entry.key[1:], entry.json) for entry in inside if matches(entry)]

    async def _check_watch(self, revision: int) -> None:
        """A watch from the state at the revision to any later one leads to the state there."""
        until = self.choice.choice([row.revision for row in self.rows if row.revision >= revision] or [revision])
        selection = Selection(**self.choice.choice(SELECTORS))
        past = await self.past(revision, until=until)
        watching = await past.watch(self.rt, selection, revision=None, initial=True, bookmarks=True)
        known = {entry.key[1:]: entry.json for entry in watching.initial}
        assert list(known.items()) == self._selected(selection, revision)
        try:
            while True:
                for event in await watching.cursor.next_batch(trio.current_time() + 30):
                    classified = watching.classify(event)
                    if classified is None:
                        continue
                    kind, entry = classified
                    assert (kind == "ADDED") == (entry.key[1:] not in known)
                    if kind == "DELETED":
                        del known[entry.key[1:]]
                    else:
                        known[entry.key[1:]] = entry.json
        except ReplayOver:
            assert watching.cursor.revision >= min(until, self.rows[-1].revision)
        assert sorted(known.items()) == self._selected(selection, until)


async def checked(
    log: RevisionLog,
    compact: Callable[[int], Any],
    resource: str,
    changes: Sequence[tuple[str, ...]],
    *,
    seed: int,
    forgetful: bool,
) -> None:
    """Write the history and check all of it; then again, while it is compacted step by step."""
    assert PODS is not None
    async with open_stack(log, describe=described) as stack:
        run = Run(stack, replace(PODS, plural=resource, resource=resource), random.Random(seed))
        await run.commit(changes)
        if not run.rows:
            return
        revisions = range(run.rows[0].revision, run.rows[-1].revision + 1)
        for revision in revisions:
            if forgetful:  # as if the events had scrolled out of memory long ago
                stack.views[resource].window.reset(stack.views.applied)
            await run.check(revision)

        async def compacting() -> None:
            for mark in sorted(run.choice.choices(revisions, k=3)):
                if mark > run.mark:
                    run.mark = mark  # first: reads below it may be rejected from now on
                    await compact(mark)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(compacting)
            for revision in revisions:
                if forgetful:
                    stack.views[resource].window.reset(stack.views.applied)
                await run.check(revision)
        for revision in revisions:
            await run.check(revision)


SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


@given(changes=HISTORY, seed=st.integers(0, 2**16), forgetful=st.booleans())
@settings(SETTINGS, max_examples=60)
def test_in_memory(changes: list[tuple[str, ...]], seed: int, forgetful: bool) -> None:
    store = MemoryStore()

    async def compact(revision: int) -> None:
        store.compact(revision)
        await trio.lowlevel.checkpoint()

    async def example() -> None:
        await checked(MemoryLog(store), compact, "pods", changes, seed=seed, forgetful=forgetful)

    trio.run(example)


def test_in_postgres(database: str) -> None:
    numbers = itertools.count()

    async def small_partitions() -> None:
        async with open_session(database) as session:
            await session.execute(
                """
                select from kubechronicle.head for update;
                drop table kubechronicle.log_long_1, kubechronicle.log_short_1;
                update kubechronicle.retention_classes set span = 25, partitioned_until = 1;
                update kubechronicle.head set partitioned_until = 1;
                select kubechronicle.make_partition('long'), kubechronicle.make_partition('short');
                """
            )

    @asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        async with open_postgres_log(database, instance="test") as log:
            yield log

    @given(changes=HISTORY, seed=st.integers(0, 2**16))
    @settings(SETTINGS, max_examples=8)
    def histories(changes: list[tuple[str, ...]], seed: int) -> None:
        async def example() -> None:
            async with opened() as log:
                await checked(log, log.compact, f"pods{next(numbers)}", changes, seed=seed, forgetful=True)

        trio.run(example)

    trio.run(small_partitions)
    histories()
