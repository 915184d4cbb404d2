"""One database under two minor versions of Kubernetes: at once, one after the other, and in the past.

The gate VolumeLimitScaling, and with it a field of CSIDrivers with a default, is on by default since v1.37. So is the
gate MaxUnavailableStatefulSet. The version storagemigration.k8s.io/v1 is new in v1.37.
"""

from __future__ import annotations

from typing import Any

import pytest
from kinds.releases import open_release
from trio.testing import MockClock

from kubechronicle.eventlog.memory.store import MemoryStore

FORMER = "1.36"
DRIVERS = "/apis/storage.k8s.io/v1/csidrivers"
SETS = "/apis/apps/v1/namespaces/default/statefulsets"
MIGRATIONS = "/apis/storagemigration.k8s.io/{}/storageversionmigrations"
FIELD = "preventPodSchedulingIfMissing"
MIGRATOR = {"StorageVersionMigrator": True}
BETA = "storagemigration.k8s.io/v1beta1=true"
MIGRATION: dict[str, Any] = {"metadata": {"name": "m"}, "spec": {"resource": {"resource": "secrets"}}}


def driver(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


def stateful_set(name: str) -> dict[str, Any]:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template, "updateStrategy": strategy}
    return {"metadata": {"name": name}, "spec": {**spec, "serviceName": "s"}}


async def test_two_servers_at_once(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with open_release(emulated=FORMER, log=store) as former, open_release(log=store) as present:
        await present.post(DRIVERS, driver("of-present", **{FIELD: True}))
        await former.post(DRIVERS, driver("of-former", **{FIELD: True}))
        held = await former.get(f"{DRIVERS}/of-present")
        assert held["spec"][FIELD] is True  # what is stored is shown
        assert FIELD not in (await present.get(f"{DRIVERS}/of-former"))["spec"]  # and what is not served is not stored
        held["metadata"]["labels"] = {"a": "b"}
        revision = int((await former.put(f"{DRIVERS}/of-present", held))["metadata"]["resourceVersion"])
        changed = await present.get(f"{DRIVERS}/of-present")
        assert (changed["spec"][FIELD], changed["metadata"]["labels"]) == (True, {"a": "b"})
        for server in (former, present):
            async with server.watch(f"{DRIVERS}?watch=1&resourceVersion={revision - 1}") as stream:
                assert (await stream.next())["object"]["metadata"]["labels"] == {"a": "b"}


async def test_a_database_is_served_by_the_next_minor_and_by_the_former_one_again(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with open_release(MIGRATOR, emulated=FORMER, log=store, runtime_config=BETA) as former:
        await former.post(SETS, stateful_set("s"))
        await former.post(DRIVERS, driver("d"))
        await former.post(MIGRATIONS.format("v1beta1"), MIGRATION)
        (await former.ask("GET", MIGRATIONS.format("v1"))).refused(404)
    async with open_release(log=store, namespaces=()) as present:
        held = await present.get(f"{SETS}/s")
        await present.put(f"{SETS}/s", held)
        assert (await present.get(f"{SETS}/s"))["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == 1
        migration = await present.get(f"{MIGRATIONS.format('v1')}/m")
        migration["metadata"]["labels"] = {"a": "b"}
        await present.put(f"{MIGRATIONS.format('v1')}/m", migration)
        await present.post(DRIVERS, driver("e"))
        assert (await present.get(f"{DRIVERS}/e"))["spec"][FIELD] is False
    async with open_release(MIGRATOR, emulated=FORMER, log=store, runtime_config=BETA, namespaces=()) as former:
        held = await former.get(f"{SETS}/s")
        assert held["spec"]["updateStrategy"]["rollingUpdate"] == {"partition": 0, "maxUnavailable": 1}
        held["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] = 2  # in use, so it stays a field
        assert (await former.put(f"{SETS}/s", held))["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == 2
        migration = await former.get(f"{MIGRATIONS.format('v1beta1')}/m")
        assert (migration["apiVersion"], migration["metadata"]["labels"]) == (
            "storagemigration.k8s.io/v1beta1", {"a": "b"}
        )  # fmt: skip


@pytest.mark.parametrize("reader", ["", FORMER])
async def test_the_past_has_the_fields_that_were_stored_then(reader: str, autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with open_release(emulated=FORMER, log=store) as former:
        before = (await former.post(DRIVERS, driver("d")))["metadata"]["resourceVersion"]
    async with open_release(log=store, namespaces=()) as present:
        held = await present.get(f"{DRIVERS}/d")
        held["spec"][FIELD] = True
        after = (await present.put(f"{DRIVERS}/d", held))["metadata"]["resourceVersion"]
    async with open_release(emulated=reader, log=store, namespaces=()) as server:
        for revision, value in ((before, None), (after, True)):
            found = await server.get(f"/history/at/{revision}{DRIVERS}/d")
            assert found["spec"].get(FIELD) is value
        listed = await server.get(f"{DRIVERS}?resourceVersion={before}&resourceVersionMatch=Exact")
        assert FIELD not in listed["items"][0]["spec"]
