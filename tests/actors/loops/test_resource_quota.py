"""Quotas on a whole server: charged by creations, counted by their loop, never overdrawn by two replicas."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from in_process import ADMISSION, MAPS, PODS, InProcess, configmap, open_server, pod
from trio.testing import MockClock

from kubechronicle.actors.loops import resource_quota
from kubechronicle.actors.loops.resource_quota import RESYNC_INTERVAL, SETTLE_INTERVAL
from kubechronicle.eventlog.memory.store import MemoryStore

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
SERVICES = "/api/v1/namespaces/default/services"
Object = dict[str, Any]


async def make_quota(server: InProcess, name: str = "q", *, spec: Object | None = None, **hard: str) -> None:
    """Create a quota with the status that its controller writes while nothing is used."""
    hard = {name.replace("__", "/").replace("_", "."): value for name, value in hard.items()}
    await server.post(QUOTAS, {"metadata": {"name": name}, "spec": {"hard": hard, **(spec or {})}})
    status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
    await server.patch(f"{QUOTAS}/{name}/status", {"status": status})


async def used(server: InProcess, name: str = "q") -> Any:
    return (await server.get(f"{QUOTAS}/{name}"))["status"]["used"]


def sized(name: str, cpu: str, **metadata: Any) -> Any:
    made = pod(name, **metadata)
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return made


# -- admission --------------------------------------------------------------------------------------------------------


async def test_creations_are_charged_until_the_quota_is_used_up(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await make_quota(server, requests_cpu="1", count__pods="5")
        await server.post(PODS, sized("a", "600m"))
        assert await used(server) == {"requests.cpu": "600m", "count/pods": "1"}
        refusal = (await server.ask("POST", PODS, sized("b", "600m"))).refused(403)
        assert refusal["message"] == (
            'pods "b" is forbidden: exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=600m, '
            "limited: requests.cpu=1"
        )
        assert refusal["details"] == {"name": "b", "kind": "pods"}
        assert await used(server) == {"requests.cpu": "600m", "count/pods": "1"}


async def test_large_quotas_are_locked_unread_and_charged_as_small_ones(autojump_clock: MockClock) -> None:
    """Reading a hundred quotas of 45 KB before each creation would hold the event loop for 67 ms."""
    async with open_server() as server:
        names = {f"count__objects{number}_example_com": "9" for number in range(600)}
        await make_quota(server, count__configmaps="1", **names)
        await server.post(MAPS, configmap("a"))
        assert (await used(server))["count/configmaps"] == "1"
        (await server.ask("POST", MAPS, configmap("b"))).refused(403)
        await server.post(PODS, pod("another-kind"))


async def test_the_charge_is_in_the_transaction_of_the_write(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await make_quota(server, count__configmaps="5")
        made = await server.post(MAPS, configmap("a"))
        revision = int(made["metadata"]["resourceVersion"])
        rows = list(server.log.store.rows(after=revision - 2))
        assert [(row.key.resource, row.key.name) for row in rows] == [("resourcequotas", "q"), ("configmaps", "a")]
        entries = (await server.get(f"{QUOTAS}/q"))["metadata"]["managedFields"]
        charged = [entry for entry in entries if entry["manager"] == "kube-apiserver"]
        assert [(entry["operation"], entry["subresource"]) for entry in charged] == [("Update", "status")]


async def test_a_dry_run_is_checked_and_not_charged(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await make_quota(server, count__configmaps="1")
        (await server.ask("POST", f"{MAPS}?dryRun=All", configmap("a"))).ok()
        assert await used(server) == {"count/configmaps": "0"}
        await server.post(MAPS, configmap("a"))
        (await server.ask("POST", f"{MAPS}?dryRun=All", configmap("b"))).refused(403)


async def test_a_write_rejected_by_another_rule_is_not_charged(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await make_quota(server, count__configmaps="5")
        await server.post(MAPS, configmap("a"))
        (await server.ask("POST", MAPS, configmap("a"))).refused(409)
        (await server.ask("POST", MAPS, configmap("A!"))).refused(422)
        assert await used(server) == {"count/configmaps": "1"}


async def test_a_creation_with_a_revision_is_checked_and_not_charged(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await make_quota(server, count__configmaps="1")
        body = configmap("a")
        body["metadata"]["resourceVersion"] = "1"
        (await server.ask("POST", MAPS, body)).refused(500)
        assert await used(server) == {"count/configmaps": "0"}
        await server.post(MAPS, configmap("b"))
        assert "exceeded quota" in (await server.ask("POST", MAPS, body)).refused(403)["message"]


async def test_one_write_is_charged_to_all_quotas_or_none(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await make_quota(server, "a", count__configmaps="5")
        await make_quota(server, "b", configmaps="1")
        await server.post(MAPS, configmap("a"))
        assert (await used(server, "a"), await used(server, "b")) == ({"count/configmaps": "1"}, {"configmaps": "1"})
        (await server.ask("POST", MAPS, configmap("b"))).refused(403)
        assert await used(server, "a") == {"count/configmaps": "1"}


async def test_an_update_that_uses_more_is_charged_the_difference(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        addresses = {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/16"]}}
        await server.post("/apis/networking.k8s.io/v1/servicecidrs", addresses)
        await make_quota(server, services="2", services_nodeports="2")
        spec = {"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]}
        await server.post(SERVICES, {"metadata": {"name": "s"}, "spec": spec})
        assert await used(server) == {"services": "1", "services.nodeports": "0"}
        await server.patch(f"{SERVICES}/s", {"spec": {"type": "NodePort"}})
        assert await used(server) == {"services": "1", "services.nodeports": "2"}
        more = {"metadata": {"name": "t"}, "spec": {"type": "NodePort", "ports": [{"port": 1}]}}
        refusal = (await server.ask("POST", SERVICES, more)).refused(403)
        assert "requested: services.nodeports=1, used: services.nodeports=2" in refusal["message"]


async def test_scopes_choose_what_is_charged(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await make_quota(server, "ended", spec={"scopes": ["Terminating"]}, pods="1")
        high = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
        await make_quota(server, "high", spec={"scopeSelector": {"matchExpressions": [high]}}, pods="1")
        await server.post("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 5})
        await server.post(PODS, pod("plain"))
        important = pod("important")
        important["spec"]["priorityClassName"] = "high"
        await server.post(PODS, important)
        assert (await used(server, "ended"), await used(server, "high")) == ({"pods": "0"}, {"pods": "1"})
        await server.patch(f"{PODS}/plain", {"spec": {"activeDeadlineSeconds": 60}})
        assert await used(server, "ended") == {"pods": "1"}


async def test_rejections_name_the_generated_name(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await make_quota(server, count__configmaps="0")
        body = {"metadata": {"generateName": "web-"}}
        refusal = (await server.ask("POST", MAPS, body)).refused(403)
        assert refusal["details"]["name"].startswith("web-")


async def test_the_status_of_a_quota_decides_not_its_spec(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "0"}}})
        await server.post(MAPS, configmap("a"))
        await server.patch(f"{QUOTAS}/q/status", {"status": {"hard": {"count/configmaps": "5"}}})
        refusal = (await server.ask("POST", MAPS, configmap("b"))).refused(403)
        assert refusal["message"].endswith("status unknown for quota: q, resources: count/configmaps")


# -- two replicas -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def replicas(**options: Any) -> AsyncIterator[tuple[InProcess, InProcess]]:
    store = MemoryStore()
    async with open_server(store, **options) as one, open_server(store, **options) as two:
        yield one, two


LIMIT = 7


async def test_two_replicas_never_overdraw_a_quota(autojump_clock: MockClock) -> None:
    async with replicas() as (one, two):
        await make_quota(one, "a", pods=str(LIMIT), requests_cpu="100")
        await make_quota(one, "b", count__pods="100")
        await two.get(QUOTAS)  # both know both
        codes: list[int] = []

        async def make(server: InProcess, name: str) -> None:
            codes.append((await server.ask("POST", PODS, sized(name, "100m"))).status)

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(make, one, f"one-{number}")
                nursery.start_soon(make, two, f"two-{number}")
        assert sorted(codes) == [201] * LIMIT + [403] * (20 - LIMIT)
        assert await used(one, "a") == await used(two, "a") == {"pods": str(LIMIT), "requests.cpu": "700m"}
        assert await used(one, "b") == {"count/pods": str(LIMIT)}
        assert len((await two.get(PODS))["items"]) == LIMIT


async def test_counting_and_charging_at_the_same_time_lose_nothing(autojump_clock: MockClock) -> None:
    async with replicas(loops=True, controllers=frozenset({"resourcequota"})) as (one, two):
        await wait_until_counted()
        await one.post(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": str(LIMIT)}}})
        await wait_until_counted()
        there: set[str] = set()
        most = 0

        async def churn(server: InProcess, prefix: str) -> None:
            nonlocal most
            for number in range(30):
                name = f"{prefix}-{number}"
                if (await server.ask("POST", MAPS, configmap(name))).status == 201:
                    there.add(name)
                    most = max(most, len(there))
                if number % 3 and there:
                    gone = there.pop()
                    (await server.ask("DELETE", f"{MAPS}/{gone}")).ok()
                await trio.sleep(SETTLE_INTERVAL / 3)

        async with trio.open_nursery() as nursery:
            for server, prefix in ((one, "a"), (two, "b"), (two, "c")):
                nursery.start_soon(churn, server, prefix)
        await wait_until_counted()
        assert most <= LIMIT
        assert await used(one) == {"count/configmaps": str(len((await one.get(MAPS))["items"]))}


# -- the loop ---------------------------------------------------------------------------------------------------------


async def wait_until_counted() -> None:
    await trio.sleep(20 * SETTLE_INTERVAL)


@asynccontextmanager
async def counting(store: MemoryStore | None = None) -> AsyncIterator[InProcess]:
    async with open_server(store, loops=True, controllers=frozenset({"resourcequota"})) as server:
        await wait_until_counted()
        yield server


async def test_a_new_quota_is_counted(autojump_clock: MockClock) -> None:
    async with counting() as server:
        for name in ("a", "b"):
            await server.post(PODS, sized(name, "100m"))
        hard = {"pods": "5", "requests.cpu": "2", "count/configmaps": "9", "count/nonsense.example.com": "1"}
        await server.post(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
        await wait_until_counted()
        status = (await server.get(f"{QUOTAS}/q"))["status"]
        assert status["hard"] == hard
        assert status["used"] == {"pods": "2", "requests.cpu": "200m", "count/configmaps": "0"}


async def test_a_changed_quota_is_counted_again(autojump_clock: MockClock) -> None:
    async with counting() as server:
        await server.post(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5", "secrets": "1"}}})
        await wait_until_counted()
        await server.post(PODS, pod("a"))
        await server.patch(f"{QUOTAS}/q", {"spec": {"hard": {"count/pods": "3", "secrets": None}}})
        await wait_until_counted()
        status = {"hard": {"pods": "5", "count/pods": "3"}, "used": {"pods": "1", "count/pods": "1"}}
        assert (await server.get(f"{QUOTAS}/q"))["status"] == status


async def test_deleted_and_finished_objects_are_released(autojump_clock: MockClock) -> None:
    async with counting() as server:
        await server.post(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2", "count/pods": "9"}}})
        await wait_until_counted()
        for name in ("a", "b"):
            await server.post(PODS, pod(name))
        (await server.ask("POST", PODS, pod("c"))).refused(403)
        await server.delete(f"{PODS}/a")
        await wait_until_counted()
        assert await used(server) == {"pods": "1", "count/pods": "1"}
        await server.patch(f"{PODS}/b/status", {"status": {"phase": "Succeeded"}})
        await wait_until_counted()
        assert await used(server) == {"pods": "0", "count/pods": "1"}


async def test_ports_a_service_no_longer_needs_are_released(autojump_clock: MockClock) -> None:
    async with counting() as server:
        await server.post(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"services.nodeports": "2"}}})
        await wait_until_counted()
        spec = {"type": "NodePort", "ports": [{"port": 1}]}
        await server.post(SERVICES, {"metadata": {"name": "s"}, "spec": spec})
        assert await used(server) == {"services.nodeports": "1"}
        await server.patch(f"{SERVICES}/s", {"spec": {"type": "ClusterIP"}})
        await wait_until_counted()
        assert await used(server) == {"services.nodeports": "0"}


async def test_scopes_choose_what_is_counted(autojump_clock: MockClock) -> None:
    async with counting() as server:
        await server.post(PODS, pod("a"))
        await server.post(PODS, sized("b", "100m"))
        spec = {"hard": {"pods": "5"}, "scopes": ["BestEffort"]}
        await server.post(QUOTAS, {"metadata": {"name": "q"}, "spec": spec})
        await wait_until_counted()
        assert await used(server) == {"pods": "1"}


async def test_creations_on_a_replica_that_lacks_the_quota_are_counted(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    unaware = ADMISSION - {"ResourceQuota"}
    async with open_server(store, admission=unaware) as two, counting(store) as one:
        await one.post(QUOTAS, {"metadata": {"name": "first"}, "spec": {"hard": {"configmaps": "5"}}})
        await wait_until_counted()
        async with one.watch(f"{QUOTAS}?watch=1&fieldSelector=metadata.name=q") as stream:
            await one.post(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "5"}}})
            for _ in range(2):  # created and counted
                assert await stream.next() is not None
        assert await used(one) == {"count/configmaps": "0"}
        await two.post(MAPS, configmap("a"))
        await wait_until_counted()
        assert await used(one) == {"count/configmaps": "1"}


async def test_a_correct_status_is_not_written(autojump_clock: MockClock) -> None:
    async with counting() as server:
        await server.post(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}}})
        await wait_until_counted()
        await server.post(PODS, pod("a"))
        before = await server.get(f"{QUOTAS}/q")
        await trio.sleep(3 * RESYNC_INTERVAL)
        assert await server.get(f"{QUOTAS}/q") == before


async def test_a_wrong_status_is_repaired_by_the_resync(autojump_clock: MockClock) -> None:
    async with counting() as server:
        await server.post(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}}})
        await wait_until_counted()
        await server.patch(f"{QUOTAS}/q/status", {"status": {"used": {"pods": "4"}}})
        await trio.sleep(2 * RESYNC_INTERVAL)
        assert await used(server) == {"pods": "0"}


async def test_objects_that_have_not_changed_are_not_measured_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with counting() as server:
        for number in range(5):
            await server.post(PODS, pod(f"p-{number}"))
        await server.post(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "9"}}})
        await wait_until_counted()
        evaluator = resource_quota.evaluator_of("pods")
        assert evaluator is not None
        measured: list[str] = []
        usual = evaluator.measure

        def measure(obj: Object, facts: Any) -> Any:
            measured.append(obj["metadata"]["name"])
            return usual(obj, facts)

        monkeypatch.setattr(evaluator, "measure", measure)
        await server.delete(f"{PODS}/p-0")
        await wait_until_counted()
        assert await used(server) == {"pods": "4"}
        assert set(measured) <= {"p-0"}
