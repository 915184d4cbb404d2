"""The objects of every cluster, and the endpoints of the Service ``kubernetes`` that servers share."""

from __future__ import annotations

import socket
from functools import partial
from typing import Any, cast

import pytest
import trio
from in_process import InProcess
from in_process import open_server as open_any
from trio.testing import MockClock

from kubechronicle.actors.allocation.ranges import ServiceNetwork
from kubechronicle.actors.loops.bootstrap.system_objects import RECONCILE_INTERVAL, SYSTEM_NAMESPACES
from kubechronicle.eventlog.memory.memory_log import Fault, MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore

open_server = partial(open_any, address="10.1.0.1")  # reachable by others
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
CIDR = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes"
SERVICE = "/api/v1/namespaces/default/services/kubernetes"
ENDPOINTS = "/api/v1/namespaces/default/endpoints/kubernetes"
SLICE = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"


async def addresses(server: InProcess) -> tuple[list[str], list[str]]:
    """Return the addresses of the Endpoints, and those of the EndpointSlice."""
    endpoints, piece = await server.get(ENDPOINTS), await server.get(SLICE)
    in_endpoints = [one["ip"] for subset in endpoints.get("subsets") or [] for one in subset.get("addresses") or []]
    in_slice = [address for one in piece.get("endpoints") or [] for address in one["addresses"]]
    return in_endpoints, in_slice


async def leases(server: InProcess) -> list[dict[str, Any]]:
    """Return the identity Leases."""
    listing = await server.get(f"{LEASES}?labelSelector=apiserver.kubernetes.io/identity%3Dkube-apiserver")
    return cast("list[dict[str, Any]]", listing["items"])


async def test_objects_of_a_new_cluster(autojump_clock: MockClock) -> None:
    async with open_server(loops=True) as server:
        assert await server.names("/api/v1/namespaces") == sorted(SYSTEM_NAMESPACES)
        service = await server.get(SERVICE)
        assert service["spec"]["clusterIP"] == "10.96.0.1"
        assert service["spec"]["ports"] == [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]
        assert service["metadata"]["labels"] == {"component": "apiserver", "provider": "kubernetes"}
        assert await addresses(server) == (["10.1.0.1"], ["10.1.0.1"])
        piece = await server.get(SLICE)
        assert piece["metadata"]["labels"]["kubernetes.io/service-name"] == "kubernetes"
        assert piece["addressType"] == "IPv4"


async def test_a_node_port_and_endpoints_kept_by_others(autojump_clock: MockClock) -> None:
    async with open_server(loops=True, other={"service_node_port": 30443, "keeps_endpoints": False}) as server:
        service = await server.get(SERVICE)
        assert (service["spec"]["type"], service["spec"]["ports"][0]["nodePort"]) == ("NodePort", 30443)
        (await server.ask("GET", ENDPOINTS)).refused(404)
        assert len(await leases(server)) == 1


async def test_a_server_on_a_loopback_address_has_no_endpoints(autojump_clock: MockClock) -> None:
    async with open_server(loops=True, address="127.0.0.1") as server:
        assert (await server.get(SERVICE))["spec"]["clusterIP"] == "10.96.0.1"
        for target in (ENDPOINTS, SLICE):
            (await server.ask("GET", target)).refused(404)
        await server.assembly.own.bootstrap.withdraw()


async def test_a_second_pass_writes_only_the_lease(autojump_clock: MockClock) -> None:
    async with open_server(loops=True) as server:
        before = server.log.store.revision
        await trio.sleep(5.5 * RECONCILE_INTERVAL)
        assert server.log.store.revision == before + 5
        (lease,) = await leases(server)
        assert int(lease["metadata"]["resourceVersion"]) == before + 5


async def test_a_restarted_server_writes_only_the_lease(autojump_clock: MockClock) -> None:
    log = MemoryLog()
    async with open_server(log, loops=True):
        before = log.store.revision
    async with open_server(log, loops=True):
        assert log.store.revision == before + 1
    async with open_server(log, loops=True, address="127.0.0.1"):
        assert log.store.revision == before + 1


async def test_deleted_objects_are_created_again(autojump_clock: MockClock) -> None:
    async with open_server(loops=True) as server:
        for target in (ENDPOINTS, SLICE, SERVICE):
            await server.delete(target)
        emptied = await server.get("/api/v1/namespaces/kube-node-lease")
        assert emptied["status"]["phase"] == "Active"
        await trio.sleep(RECONCILE_INTERVAL + 1)
        await server.get(SERVICE)
        assert await addresses(server) == (["10.1.0.1"], ["10.1.0.1"])
        await server.patch(ENDPOINTS, {"subsets": None})
        await trio.sleep(RECONCILE_INTERVAL + 1)
        assert await addresses(server) == (["10.1.0.1"], ["10.1.0.1"])


async def test_two_servers_share_the_endpoints_and_withdraw_only_themselves(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with open_server(store, loops=True) as one:
        async with open_server(store, loops=True, address="10.1.0.2") as two:
            assert await addresses(one) == (["10.1.0.1", "10.1.0.2"], ["10.1.0.1", "10.1.0.2"])
            (subset,) = (await one.get(ENDPOINTS))["subsets"]
            assert subset["ports"] == [{"name": "https", "port": 6443, "protocol": "TCP"}]
            await two.assembly.own.bootstrap.withdraw()
            assert await addresses(one) == (["10.1.0.1"], ["10.1.0.1"])
        await trio.sleep(RECONCILE_INTERVAL * 3)
        assert await addresses(one) == (["10.1.0.1"], ["10.1.0.1"])
        await one.assembly.own.bootstrap.withdraw()
        assert await addresses(one) == ([], [])


async def test_a_withdrawn_server_does_not_return_by_itself(autojump_clock: MockClock) -> None:
    """The server still drains, and its loop runs."""
    async with open_server(loops=True) as server:
        await server.assembly.own.bootstrap.withdraw()
        await trio.sleep(RECONCILE_INTERVAL * 3)
        assert await addresses(server) == ([], [])


async def test_the_lease_of_a_server(autojump_clock: MockClock) -> None:
    async with open_server(loops=True) as server:
        (lease,) = await leases(server)
        assert lease["metadata"]["name"].startswith("apiserver-")
        assert lease["metadata"]["labels"]["kubernetes.io/hostname"] == socket.gethostname()[:63]
        assert lease["metadata"]["annotations"] == {"kubechronicle/advertised": "10.1.0.1:6443"}
        assert lease["spec"]["leaseDurationSeconds"] == 3600
        assert lease["spec"]["holderIdentity"].startswith(lease["metadata"]["name"] + "_")
        await trio.sleep(RECONCILE_INTERVAL + 1)
        (renewed,) = await leases(server)
        assert renewed["spec"]["renewTime"] > lease["spec"]["renewTime"]
        await server.assembly.own.bootstrap.withdraw()
        assert await leases(server) == []


@pytest.mark.parametrize("address", ["10.1.0.2", "fd00::2"])
async def test_the_address_of_a_killed_server_is_removed(address: str, autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with open_server(store, loops=True) as one:
        async with open_server(store, loops=True, address=address):
            assert len(await leases(one)) == 2
        assert address in (await addresses(one))[0]  # it stopped without withdrawing
        await trio.sleep(3 * RECONCILE_INTERVAL + 1)
        assert await addresses(one) == (["10.1.0.1"], ["10.1.0.1"])
        before = store.revision
        await trio.sleep(10 * RECONCILE_INTERVAL)
        assert store.revision == before + 10  # only its own lease
        assert len(await leases(one)) == 2


async def test_an_address_without_a_lease_is_removed_with_its_port(autojump_clock: MockClock) -> None:
    async with open_server(loops=True) as server:
        ours = (await server.get(ENDPOINTS))["subsets"]
        stale = {"addresses": [{"ip": "10.1.0.9"}], "ports": [{"name": "https", "port": 7443, "protocol": "TCP"}]}
        await server.patch(ENDPOINTS, {"subsets": [*ours, stale]})
        await trio.sleep(RECONCILE_INTERVAL + 1)
        assert (await addresses(server))[0] == ["10.1.0.1", "10.1.0.9"]
        await trio.sleep(2 * RECONCILE_INTERVAL)
        assert (await server.get(ENDPOINTS))["subsets"] == ours


async def test_an_expired_lease_is_deleted(autojump_clock: MockClock) -> None:
    labels = {"apiserver.kubernetes.io/identity": "kube-apiserver"}
    async with open_server(loops=True) as server:
        for name, renewed in (("old", "2026-01-01T00:00:00.000000Z"), ("ahead", "2999-01-01T00:00:00.000000Z")):
            spec = {"holderIdentity": name, "leaseDurationSeconds": 3600, "renewTime": renewed}
            await server.post(LEASES, {"metadata": {"name": name, "labels": labels}, "spec": spec})
        await trio.sleep(RECONCILE_INTERVAL + 1)
        names = [lease["metadata"]["name"] for lease in await leases(server)]
        assert "ahead" in names
        assert "old" not in names


async def test_servers_that_start_at_once(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    ready: list[InProcess] = []
    all_ready, done = trio.Event(), trio.Event()

    async def run(number: int) -> None:
        async with open_server(store, loops=True, address=f"10.1.0.{number}") as server:
            ready.append(server)
            if len(ready) == 3:
                all_ready.set()
            await done.wait()

    async with trio.open_nursery() as nursery:
        for number in (1, 2, 3):
            nursery.start_soon(run, number)
        with trio.fail_after(60):
            await all_ready.wait()
        expected = ["10.1.0.1", "10.1.0.2", "10.1.0.3"]
        in_endpoints, in_slice = await addresses(ready[0])
        assert sorted(in_endpoints) == sorted(in_slice) == expected
        done.set()


async def test_a_log_that_does_not_answer_at_first_delays_the_objects(autojump_clock: MockClock) -> None:
    log = MemoryLog()
    log.fail_next("append", *[Fault.UNAVAILABLE] * 20)
    async with open_server(log, loops=True) as server:
        await trio.sleep(60)
        assert await addresses(server) == (["10.1.0.1"], ["10.1.0.1"])
        assert server.tree.restarts_total == 0


async def test_a_log_that_fails_later_delays_only_the_next_pass(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_server(loops=True) as server:
        await server.patch(ENDPOINTS, {"subsets": None})
        server.log.fail_next("append", *[Fault.UNAVAILABLE] * 7)
        await trio.sleep(3 * RECONCILE_INTERVAL)
        assert await addresses(server) == (["10.1.0.1"], ["10.1.0.1"])
        assert server.tree.restarts_total == 0
    assert "could not be reconciled" in caplog.text


@pytest.mark.parametrize(
    ("ranges", "address", "families"),
    [
        (("10.96.0.0/16",), "10.96.0.1", ("IPv4",)),
        (("fd00:96::/108",), "fd00:96::1", ("IPv6",)),
        (("fd00:96::/108", "10.96.0.0/16"), "fd00:96::1", ("IPv6", "IPv4")),
    ],
)
async def test_addresses_of_both_families(
    ranges: tuple[str, ...], address: str, families: tuple[str, ...], autojump_clock: MockClock
) -> None:
    services = ServiceNetwork(ranges=ranges)
    assert (services.first_address, services.families) == (address, families)
    async with open_server(loops=True, services=services) as server:
        spec = (await server.get(SERVICE))["spec"]
        assert (spec["clusterIPs"], spec["ipFamilies"]) == ([address], [families[0]])
        made = await server.get(f"/apis/networking.k8s.io/v1/ipaddresses/{address}")
        assert made["spec"]["parentRef"] == {"resource": "services", "namespace": "default", "name": "kubernetes"}
        assert (await server.get(CIDR))["spec"]["cidrs"] == list(ranges)


async def test_a_server_runs_although_its_service_address_is_in_use(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    async with open_server(store, loops=True) as server:
        await server.delete(SERVICE)
    async with open_server(store, loops=True, services=ServiceNetwork(ranges=("10.97.0.0/16",))) as server:
        (await server.ask("GET", SERVICE)).refused(404)
        assert (await server.ask("GET", "/readyz")).status == 200
        assert await addresses(server) == (["10.1.0.1"], ["10.1.0.1"])
    assert "does not match the current range" in caplog.text


async def test_the_ranges_of_services(autojump_clock: MockClock) -> None:
    async with open_server(loops=True) as server:
        made = await server.get(CIDR)
        (condition,) = made["status"]["conditions"]
        assert condition.pop("lastTransitionTime")
        message = "Kubernetes default Service CIDR is ready"
        assert condition == {"type": "Ready", "status": "True", "reason": "", "message": message}
        await server.delete(CIDR)
        await trio.sleep(1.5 * RECONCILE_INTERVAL)
        assert (await server.get(CIDR))["metadata"]["uid"] != made["metadata"]["uid"]


async def test_a_second_family_is_added_and_another_range_is_not(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    async with open_server(store, loops=True):
        pass
    both = ServiceNetwork(ranges=("10.96.0.0/16", "fd00:96::/108"))
    async with open_server(store, loops=True, services=both) as server:
        assert (await server.get(CIDR))["spec"]["cidrs"] == ["10.96.0.0/16", "fd00:96::/108"]
    async with open_server(store, loops=True, services=ServiceNetwork(ranges=("10.97.0.0/16",))) as server:
        assert (await server.get(CIDR))["spec"]["cidrs"] == ["10.96.0.0/16", "fd00:96::/108"]
        assert (await server.get(SERVICE))["spec"]["clusterIP"] == "10.96.0.1"
    assert "the ServiceCIDR kubernetes has" in caplog.text


async def test_an_ipv6_server(autojump_clock: MockClock) -> None:
    async with open_server(loops=True, address="fd00::1") as server:
        assert (await server.get(SLICE))["addressType"] == "IPv6"
        assert await addresses(server) == (["fd00::1"], ["fd00::1"])
