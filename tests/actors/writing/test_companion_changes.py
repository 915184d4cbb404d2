"""Companion changes are committed with their write or not at all, also under concurrent charges."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from in_process import MAPS, InProcess, configmap, open_server
from trio.testing import MockClock, wait_all_tasks_blocked

from kubechronicle.actors import companion_changes
from kubechronicle.actors.admission import plugins
from kubechronicle.actors.admission.chain import AdmissionPlugin, AdmissionState, Attributes, forbidden
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.writing import write_loop
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.errors import LogUnavailable
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.records import Key, Operation

SECRETS = "/api/v1/namespaces/default/secrets"
METER = Key("configmaps", "default", "meter")
LIMIT = 7
Replicas = tuple[InProcess, InProcess]


class Meter(AdmissionPlugin):
    """Counts created secrets in a ConfigMap, and rejects those above a limit."""

    name = "Meter"
    resources = frozenset({"secrets"})
    operations = frozenset({"CREATE"})
    locking = True

    def validate(self, attributes: Attributes, state: AdmissionState) -> None:
        entry = state.peek(*METER)
        assert entry is not None
        meter = entry.object()
        del meter["metadata"]["resourceVersion"]
        used = int(meter["data"]["used"]) + 1
        if used > LIMIT:
            raise forbidden(attributes, "too many")
        meter["data"]["used"] = str(used)
        attributes.companions.append(CompanionChange(key=METER, old=entry, object=meter))

    def locked_keys(self, rt: ResourceType, operation: str, namespace: str, state: AdmissionState) -> Sequence[Key]:
        return [METER] if self.locking else []


@asynccontextmanager
async def metered(monkeypatch: pytest.MonkeyPatch, *, locking: bool = True) -> AsyncIterator[Replicas]:
    usual = plugins.plugins_in_order
    monkeypatch.setattr(plugins, "plugins_in_order", lambda *given, **more: [*usual(*given, **more), Meter()])
    monkeypatch.setattr(Meter, "locking", locking)
    store = MemoryStore()
    async with open_server(store) as one, open_server(store) as two:
        await one.post(MAPS, configmap("meter", used="0"))
        await two.get(f"{MAPS}/meter")
        yield one, two


def secret(name: str) -> dict[str, Any]:
    value = base64.b64encode(b"x").decode()
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"a": value}}


@pytest.mark.parametrize("locking", [True, False])
async def test_two_replicas_never_exceed_the_limit(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, locking: bool
) -> None:
    async with metered(monkeypatch, locking=locking) as (one, two):
        codes: list[int] = []

        async def make(server: InProcess, name: str) -> None:
            codes.append((await server.ask("POST", SECRETS, secret(name))).status)

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(make, one, f"one-{number}")
                nursery.start_soon(make, two, f"two-{number}")
        assert sorted(codes) == [201] * LIMIT + [403] * (20 - LIMIT)
        assert (await one.get(f"{MAPS}/meter"))["data"] == {"used": str(LIMIT)}
        assert len((await two.get(SECRETS))["items"]) == LIMIT


async def test_both_changes_have_adjacent_revisions_and_one_author(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with metered(monkeypatch) as (one, _):
        made = await one.post(SECRETS, secret("a"))
        rows = list(one.log.store.rows(after=int(made["metadata"]["resourceVersion"]) - 2))
        assert [(row.key.resource, row.operation) for row in rows] == [
            ("configmaps", Operation.UPDATE),
            ("secrets", Operation.CREATE),
        ]
        assert one.log.store.who[rows[0].revision] == one.log.store.who[rows[1].revision]


async def test_a_dry_run_charges_nothing(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with metered(monkeypatch) as (one, _):
        (await one.ask("POST", f"{SECRETS}?dryRun=All", secret("a"))).ok()
        assert (await one.get(f"{MAPS}/meter"))["data"] == {"used": "0"}


async def test_a_name_that_is_taken_charges_nothing(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with metered(monkeypatch) as (one, two):
        await one.post(SECRETS, secret("a"))
        (await two.ask("POST", SECRETS, secret("a"))).refused(409)
        assert (await one.get(f"{MAPS}/meter"))["data"] == {"used": "1"}


def test_a_deletion_needs_an_old_object() -> None:
    with pytest.raises(ValueError, match="neither"):
        companion_changes.CompanionChange(key=METER, old=None, object=None).change()


async def test_locks_are_removed_with_their_last_user(autojump_clock: MockClock) -> None:
    locks = write_loop.KeyLocks()
    other = Key("configmaps", "default", "a")
    order: list[str] = []

    async def hold(name: str, *keys: Key) -> None:
        async with locks.hold(keys, deadline=trio.current_time() + 1):
            order.append(name)
            await trio.lowlevel.checkpoint()
            order.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold, "a", METER, other)
        nursery.start_soon(hold, "b", other, METER)
        nursery.start_soon(hold, "c", METER)
    assert order[0::2] == order[1::2]
    assert len(locks) == 0


async def test_a_lock_is_awaited_until_the_deadline(autojump_clock: MockClock) -> None:
    locks = write_loop.KeyLocks()
    async with trio.open_nursery() as nursery:

        async def sit() -> None:
            async with locks.hold([METER], deadline=trio.current_time() + 1):
                await trio.sleep_forever()

        nursery.start_soon(sit)
        await wait_all_tasks_blocked()
        with pytest.raises(LogUnavailable):
            async with locks.hold([METER], deadline=trio.current_time() + 1):
                raise AssertionError("another task holds the lock")
        nursery.cancel_scope.cancel()
    assert len(locks) == 0
