"""States: equal to the changes of the log, from both logs, in both directions, and for any size of reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from log_history import Opener, filled

from kubechronicle.eventlog.postgres import log_reads
from kubechronicle.eventlog.queries.changes import ChangeQuery
from kubechronicle.eventlog.queries.states import StatePair, mentions
from kubechronicle.eventlog.records import Record

QUERIES: tuple[tuple[ChangeQuery, ...], ...] = (
    (ChangeQuery(),),
    (ChangeQuery(after=40, until=90, resources=("events", "nodes")),),
    (ChangeQuery(resources=("nodes",)), ChangeQuery(resources=("events",), namespace="shop")),
    (
        ChangeQuery(resources=("configmaps",), namespace="shop-2", rare=True),
        ChangeQuery(resources=("nodes",)),
        ChangeQuery(resources=("deployments.apps",), name="b"),
    ),
    (ChangeQuery(revisions=(5, 6, 70)),),
)
TEXTS = ((), ('"name":"a"',), ('"n":1', '"n":77}'))


def expected(
    everything: Sequence[tuple[Record, Record | None]], queries: Sequence[ChangeQuery], texts: Sequence[str]
) -> list[Any]:
    found = [pair for pair in everything if any(query.matches(pair[0]) for query in queries)]
    if queries[0].newest_first:
        found.reverse()
    with_replaced = queries[0].with_replaced
    return [(_shown(one, texts), _shown(before, texts) if before and with_replaced else None) for one, before in found]


def _shown(record: Record, texts: Sequence[str]) -> tuple[Any, ...]:
    body = record.body if mentions(record.body, texts) else b""
    return record.revision, record.key, record.previous_revision, record.operation, body


def summary(pairs: Sequence[StatePair]) -> list[Any]:
    def shown(state: Any) -> tuple[Any, ...]:
        return state.revision, state.key, state.previous_revision, state.operation, state.body

    return [(shown(state), None if before is None else shown(before)) for state, before in pairs]


async def read(log: Any, queries: Sequence[ChangeQuery], limit: int, texts: Sequence[str]) -> list[StatePair]:
    """Read all states in chunks."""
    found: list[StatePair] = []
    while True:
        chunk = await log.states(queries, limit=limit, texts=texts)
        found += chunk
        if chunk.is_last(limit):
            return found
        last = chunk[-1][0].revision
        newest_first = queries[0].newest_first
        queries = [replace(each, until=last - 1) if newest_first else replace(each, after=last) for each in queries]


@pytest.mark.parametrize("size", ["usual", "tiny"])
async def test_states_are_those_of_the_changes(replicas: Opener, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubechronicle.eventlog.memory.memory_log import MemoryLog

    if size == "tiny":  # reads end after a few objects, and small answers turn out to be large
        monkeypatch.setattr(log_reads, "STATE_BYTES", 700)
        monkeypatch.setattr(log_reads, "PART", 4)
        monkeypatch.setattr(log_reads, "SMALL_BYTES", 3000)
    log, memory = await replicas(), MemoryLog()
    await filled(memory)
    await filled(log)
    everything = await memory.changes(ChangeQuery(newest_first=False), limit=1000)
    for queries in QUERIES:
        for newest_first in (True, False):
            for with_replaced in (True, False):
                asked = [replace(each, newest_first=newest_first, with_replaced=with_replaced) for each in queries]
                for texts in TEXTS:
                    wanted = expected(everything, asked, texts)
                    assert summary(await read(log, asked, 50, texts)) == wanted
                    assert summary(await read(memory, asked, 50, texts)) == wanted
    users = {state.revision: state.user for state, _ in await read(log, [ChangeQuery()], 100, ())}
    assert users == {record.revision: record.who.user for record, _ in everything if record.who is not None}


def test_bodies_that_do_not_show_their_texts_are_wanted() -> None:
    for body in (b'{"erased":"x"}', b'{"encrypted":"k"}', b'{"apiVersion":"v1","a":"uma"}'):
        assert mentions(body, ("uma",))
    assert not mentions(b'{"apiVersion":"v1","a":"una"}', ("uma",))
