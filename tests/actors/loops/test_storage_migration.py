"""Migrations of stored objects: their steps, failures, order, and what an interrupted one leaves.

StorageVersions that servers write: their entries, what all agree on, and servers that are gone.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trio
from custom.definitions import definition, version
from custom.serving import CRDS, WIDGETS, define, serving
from in_process import InProcess, open_server
from trio.testing import MockClock

from kubechronicle.actors.loops import storage_migration, storage_versions
from kubechronicle.actors.loops.server_endpoints import server_id
from kubechronicle.actors.loops.storage_migration import StorageMigrationLoop
from kubechronicle.actors.loops.storage_versions import LEASE_SECONDS, StorageVersionLoop, reported, stored_resources
from kubechronicle.api.errors import status
from kubechronicle.api.features.gates import DEFAULT, FeatureGates, effective_version
from kubechronicle.api.registry.registry import builtin_registry
from kubechronicle.api.registry.runtime_config import Emulation, registry_for
from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore

NAME = "widgets.example.com"
MIGRATIONS = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations"
ENABLED = "storagemigration.k8s.io/v1beta1=true"
LONG = 300.0


def versions(storage: str) -> list[dict[str, Any]]:
    return [version(name) | {"storage": name == storage} for name in ("v1", "v2")]


def migration(name: str, resource: str = "widgets", group: str = "example.com") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"resource": {"group": group, "resource": resource}}}


def serve(store: MemoryStore | None = None) -> Any:
    return serving(MemoryLog(store) if store is not None else None, runtime_config=ENABLED)


async def widgets(server: InProcess, *names: str) -> None:
    """Create Widgets that are stored in v1, and make v2 the storage version."""
    await define(server, definition(*versions("v1")))
    for name in names:
        await server.post(WIDGETS, {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}})
    await change_storage(server, "v2")


async def change_storage(server: InProcess, storage: str) -> None:
    held = await server.get(f"{CRDS}/{NAME}")
    held["spec"]["versions"] = versions(storage)
    await server.put(f"{CRDS}/{NAME}", held)


def stored(server: InProcess) -> dict[str, str]:
    entries = server.store.reads.entries(NAME, "")
    return {entry.key.name: entry.object()["apiVersion"].rpartition("/")[2] for entry in entries}


async def carry_out(server: InProcess, seconds: float = LONG) -> None:
    """Run the loop for some time."""
    with trio.move_on_after(seconds):
        await StorageMigrationLoop(server.store).run()


async def conditions(server: InProcess, path: str) -> dict[str, tuple[str, str, str]]:
    found = (await server.get(path))["status"].get("conditions") or ()
    return {one["type"]: (one["status"], one["reason"], one["message"]) for one in found}


async def test_objects_are_migrated(autojump_clock: MockClock) -> None:
    async with serve() as server:
        await widgets(server, "a", "b", "c")
        await server.post(MIGRATIONS, migration("m"))
        await carry_out(server)
        assert stored(server) == dict.fromkeys("abc", "v2")
        assert await conditions(server, f"{MIGRATIONS}/m") == {
            "Running": ("False", "MigrationCompleted", "Migration completed"),
            "Succeeded": ("True", "StorageVersionMigrationSucceeded", ""),
        }
        held = await server.get(f"{CRDS}/{NAME}")
        assert held["status"]["storedVersions"] == ["v2"]
        assert (await conditions(server, f"{CRDS}/{NAME}"))["StorageMigrating"] == (
            "False",
            "MigrationSucceeded",
            "The migration has succeeded and the stored versions have been updated",
        )
        revision = server.store.reads.applied
        await carry_out(server)
        assert server.store.reads.applied == revision


async def test_a_migration_continues_on_another_server(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    rewrite = StorageMigrationLoop._rewrite

    async def interrupted(loop: StorageMigrationLoop, rt: Any, entry: Any, cause: int) -> None:
        if entry.key.name == "b":
            await trio.sleep_forever()
        await rewrite(loop, rt, entry, cause)

    async with serve(store) as server:
        await widgets(server, "a", "b", "c")
        await server.post(MIGRATIONS, migration("m"))
        with monkeypatch.context() as patch:
            patch.setattr(StorageMigrationLoop, "_rewrite", interrupted)
            await carry_out(server)
        assert stored(server) == {"a": "v2", "b": "v1", "c": "v1"}
        assert list(await conditions(server, f"{MIGRATIONS}/m")) == ["Running"]
    async with serve(store) as server:
        await carry_out(server)
        assert stored(server) == dict.fromkeys("abc", "v2")
        assert (await conditions(server, f"{MIGRATIONS}/m"))["Succeeded"][0] == "True"


async def test_one_migration_of_a_resource_runs_at_a_time(autojump_clock: MockClock) -> None:
    async with serve() as server:
        await widgets(server, "a")
        for name in ("n", "m"):
            await server.post(MIGRATIONS, migration(name))
        await server.post(MIGRATIONS, migration("maps", "configmaps", ""))
        order: list[str] = []
        async with server.watch(f"{MIGRATIONS}?watch=1") as stream, trio.open_nursery() as nursery:
            nursery.start_soon(carry_out, server)
            while len(order) < 3:
                event = await stream.next()
                assert event is not None
                found = event["object"].get("status", {}).get("conditions") or ()
                name = event["object"]["metadata"]["name"]
                if any(one["type"] == "Succeeded" for one in found) and name not in order:
                    order.append(name)
        assert [name for name in order if name != "maps"] in (["m", "n"], ["n", "m"])
        for name in ("m", "n", "maps"):
            assert (await conditions(server, f"{MIGRATIONS}/{name}"))["Running"][0] == "False"


async def test_stored_versions_stay_after_a_change_of_the_definition(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite = StorageMigrationLoop._rewrite

    async with serve() as server:
        await widgets(server, "a")

        async def changed(loop: StorageMigrationLoop, rt: Any, entry: Any, cause: int) -> None:
            await change_storage(server, "v1")
            await rewrite(loop, rt, entry, cause)

        monkeypatch.setattr(StorageMigrationLoop, "_rewrite", changed)
        await server.post(MIGRATIONS, migration("m"))
        await carry_out(server)
        assert (await server.get(f"{CRDS}/{NAME}"))["status"]["storedVersions"] == ["v1", "v2"]
        assert (await conditions(server, f"{CRDS}/{NAME}"))["StorageMigrating"][2] == (
            "The migration has succeeded but the stored versions have not been updated due to a generation mismatch"
        )


@pytest.mark.parametrize(("code", "ended"), [(422, "Failed"), (503, "Succeeded"), (409, "Succeeded")])
async def test_errors_of_writes(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, code: int, ended: str
) -> None:
    rewrite, failures = StorageMigrationLoop._rewrite, [code]

    async def failing(loop: StorageMigrationLoop, rt: Any, entry: Any, cause: int) -> None:
        if failures:
            raise status.StatusError(failures.pop(), "", "it went wrong")
        await rewrite(loop, rt, entry, cause)

    monkeypatch.setattr(StorageMigrationLoop, "_rewrite", failing)
    async with serve() as server:
        await widgets(server, "a")
        await server.post(MIGRATIONS, migration("m"))
        await carry_out(server)
        found = await conditions(server, f"{MIGRATIONS}/m")
        assert found[ended][0] == "True"
        if ended == "Failed":
            assert found[ended][1:] == (
                "StorageVersionMigrationFailed",
                "migration encountered unhandled error: it went wrong",
            )
            assert (await server.get(f"{CRDS}/{NAME}"))["status"]["storedVersions"] == ["v1", "v2"]


@pytest.mark.parametrize(
    ("resource", "group", "text"),
    [
        (
            "tokenreviews",
            "authentication.k8s.io",
            'resource "authentication.k8s.io/v1, Resource=tokenreviews" does not support discovery operations: '
            "[update patch list]",
        ),
        ("gadgets", "example.com", "resource does not exist in discovery"),
    ],
)
async def test_resources_that_cannot_be_migrated(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, resource: str, group: str, text: str
) -> None:
    monkeypatch.setattr(storage_migration, "GRACE", timedelta(0))
    async with serve() as server:
        await server.post(MIGRATIONS, migration("m", resource, group))
        await carry_out(server)
        assert (await conditions(server, f"{MIGRATIONS}/m"))["Failed"] == (
            "True",
            "StorageVersionMigrationFailed",
            text,
        )


async def test_it_is_not_served_by_default(autojump_clock: MockClock) -> None:
    async with serving() as server:
        assert (await server.ask("GET", MIGRATIONS)).status == 404
        await carry_out(server, 5.0)


async def test_managed_fields_that_do_not_fit_the_schema_do_no_harm(autojump_clock: MockClock) -> None:
    def both(storage: str) -> list[dict[str, Any]]:
        found = []
        for name, field in (("v1", "one"), ("v2", "two")):
            fields = {"n": {"type": "integer"}, field: {"type": "integer", "default": 1}}
            schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
            found.append(version(name, schema={"openAPIV3Schema": schema}) | {"storage": name == storage})
        return found

    async with serve() as server:
        await define(server, definition(*both("v1")))
        obj = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"n": 1}}
        await server.post(WIDGETS, obj)
        for number, storage in enumerate(("v2", "v1", "v2")):
            held = await server.get(f"{CRDS}/{NAME}")
            held["spec"]["versions"] = both(storage)
            await server.put(f"{CRDS}/{NAME}", held)
            await server.post(MIGRATIONS, migration(f"m{number}"))
            await carry_out(server)
            assert (await conditions(server, f"{MIGRATIONS}/m{number}"))["Succeeded"][0] == "True"
            assert stored(server) == {"a": storage}


NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
GATES = FeatureGates(given={storage_versions.GATE: True, "APIServerIdentity": True})
VERSIONS = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
REGISTRY = registry_for({"internal.apiserver.k8s.io/v1alpha1": "true"}, Emulation(gates=GATES))
OPTIONS: dict[str, Any] = {"other": {"features": GATES, "registry": REGISTRY}, "namespaces": ("kube-system",)}


def test_a_server_is_named_after_its_host() -> None:
    """The digest of the id is that which Kubernetes' own tests expect in metrics."""
    digest = hashlib.sha256(server_id("testAPIServerID").encode()).hexdigest()
    assert digest == "3c607df3b2bf22c9d9f01d5314b4bbf411c48ef43ff44ff29b1d55b41367c795"


def test_how_resources_are_stored() -> None:
    stored = {each.name: each for each in stored_resources(builtin_registry(), GATES.versions)}
    assert stored["core.events"].decodable == ("v1", "events.k8s.io/v1")
    scaler = stored["autoscaling.horizontalpodautoscalers"]
    assert (scaler.encoding, scaler.served) == ("autoscaling/v2", ("autoscaling/v2", "autoscaling/v1"))
    assert "authorization.k8s.io.subjectaccessreviews" not in stored
    older = {each.name: each for each in stored_resources(builtin_registry(), effective_version(["1.36"], []))}
    taints = "storagemigration.k8s.io.storageversionmigrations"
    assert {stored[taints].encoding, older[taints].encoding} == {"storagemigration.k8s.io/v1beta1"}


def entry(server: str, encoding: str = "apps/v1") -> dict[str, Any]:
    return {"apiServerID": server, "encodingVersion": encoding, "decodableVersions": [], "servedVersions": []}


def test_what_all_servers_agree_on() -> None:
    first = reported({"metadata": {}}, entry("a"), {"a"}, NOW)["status"]
    assert first["commonEncodingVersion"] == "apps/v1"
    (condition,) = first["conditions"]
    assert (condition["status"], condition["lastTransitionTime"]) == ("True", "2026-11-29T12:00:00Z")
    later = NOW + timedelta(minutes=1)
    assert reported({"metadata": {}, "status": first}, entry("a"), {"a"}, later)["status"] == first
    second = reported({"metadata": {}, "status": first}, entry("b", "apps/v2"), {"a", "b"}, later)["status"]
    assert "commonEncodingVersion" not in second
    assert second["conditions"][0]["reason"] == "CommonEncodingVersionUnset"
    assert second["conditions"][0]["lastTransitionTime"] == "2026-11-29T12:01:00Z"
    third = reported({"metadata": {}, "status": second}, None, {"b"}, later)["status"]
    assert (third["storageVersions"], third["commonEncodingVersion"]) == ([entry("b", "apps/v2")], "apps/v2")


async def report(server: InProcess, host: str, *, at: datetime = NOW, seconds: float = 60) -> None:
    loop = StorageVersionLoop(server.store, host=host, versions=DEFAULT, now=lambda: at)
    with trio.move_on_after(seconds):
        await loop.run()


async def test_servers_report_and_are_forgotten(autojump_clock: MockClock) -> None:
    async with open_server(**OPTIONS) as server:
        await report(server, "one")
        await report(server, "two")
        held = await server.get(f"{VERSIONS}/apps.deployments")
        servers = [each["apiServerID"] for each in held["status"]["storageVersions"]]
        assert servers == [server_id("one"), server_id("two")]
        lease = await server.get(f"{LEASES}/{server_id('one')}")
        assert lease["metadata"]["labels"] == {
            "apiserver.kubernetes.io/identity": "kube-apiserver", "kubernetes.io/hostname": "one"
        }  # fmt: skip
        revision = held["metadata"]["resourceVersion"]
        await report(server, "two")  # nothing has changed
        assert (await server.get(f"{VERSIONS}/apps.deployments"))["metadata"]["resourceVersion"] == revision
        await report(server, "two", at=NOW + timedelta(seconds=LEASE_SECONDS + 1))
        held = await server.get(f"{VERSIONS}/apps.deployments")
        assert [each["apiServerID"] for each in held["status"]["storageVersions"]] == [server_id("two")]
        (await server.ask("GET", f"{LEASES}/{server_id('one')}")).refused(404)
