"""The repair loops: differences between Services and their addresses and ports are repaired or reported."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trio
from in_process import InProcess, open_server
from services import ADDRESSES, CIDRS, EVENTS, SERVICES, address, cidr, has, held, open_services, service
from trio.testing import MockClock, wait_all_tasks_blocked

from kubechronicle.actors.allocation.addresses import address_key
from kubechronicle.actors.allocation.pending_allocations import AllocationOwner
from kubechronicle.actors.allocation.ports import new_port, port_key
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.loops.service_repair import INTERVAL, ClusterIPRepair, NodePortRepair, ports_of
from kubechronicle.actors.store import system_caller
from kubechronicle.eventlog.memory.memory_log import Fault
from kubechronicle.eventlog.memory.store import MemoryStore

MANAGED = {
    "ipaddress.kubernetes.io/ip-family": "IPv4",
    "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
}


async def write_to_log(server: InProcess, key: Any, obj: Any) -> None:
    """Change the log directly, past the server, as an operator may."""
    old = server.store.reads.peek(*key)
    assert await server.store.writes.commit_own_changes(
        system_caller("test", "update", cause=0), [CompanionChange(key=key, old=old, object=obj)]
    )


async def rewrite(server: InProcess, resource: str, name: str, **spec: Any) -> None:
    """Change a Service without validation."""
    key = (resource, "default", name)
    entry = server.store.reads.peek(*key)
    assert entry is not None
    obj = entry.object()
    del obj["metadata"]["resourceVersion"]
    obj["spec"].update(spec)
    await write_to_log(server, entry.key, obj)


async def reports(server: InProcess) -> set[tuple[str, str, str]]:
    """Return (kind and name, reason, message) of each Event."""
    items = (await server.get(EVENTS))["items"]
    return {
        (f"{item['involvedObject']['kind']}/{item['involvedObject']['name']}", item["reason"], item["message"])
        for item in items
    }


def repair_of(server: InProcess, *, now: datetime | None = None) -> ClusterIPRepair:
    return ClusterIPRepair(server.store, now=lambda: now or datetime.now(UTC))


# -- cluster IPs ------------------------------------------------------------------------------------------------------


async def test_a_pass_without_errors_writes_nothing(autojump_clock: MockClock) -> None:
    async with open_services("10.96.0.0/24", "fd00:96::/112") as server:
        await server.post(SERVICES, service("a", type="LoadBalancer", externalTrafficPolicy="Local"))
        await server.post(SERVICES, service("b", ipFamilyPolicy="RequireDualStack"))
        await server.post(SERVICES, service("c", clusterIP="None"))
        await server.post(ADDRESSES, address("192.0.2.7", resource="gateways", owner="edge"))
        before, repair, ports = server.log.store.revision, repair_of(server), server.assembly.own.node_ports
        for _ in range(4):
            await repair.check_all()
            await ports.check_all()
        assert server.log.store.revision == before
        assert not repair.metrics.errors
        assert not ports.metrics.errors


async def test_a_missing_address_is_created_again(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        ip = (await server.post(SERVICES, service()))["spec"]["clusterIP"]
        await server.delete(f"{ADDRESSES}/{ip}")
        await repair_of(server).check_all()
        assert held(server) == {ip: "web"}
        made = await server.get(f"{ADDRESSES}/{ip}")
        assert made["metadata"]["labels"] == MANAGED
        message = f"Cluster IP [IPv4]: {ip} is not allocated; repairing"
        assert await reports(server) == {("Service/web", "ClusterIPNotAllocated", message)}


@pytest.mark.parametrize("reference", [{"resource": "gateways"}, {"owner": "gone"}])
async def test_an_address_with_a_wrong_reference_is_repaired(
    reference: dict[str, str], autojump_clock: MockClock
) -> None:
    async with open_services() as server:
        ip = (await server.post(SERVICES, service()))["spec"]["clusterIP"]
        await server.delete(f"{ADDRESSES}/{ip}")
        await server.post(ADDRESSES, address(ip, **reference))
        await repair_of(server).check_all()
        made = await server.get(f"{ADDRESSES}/{ip}")
        assert made["spec"]["parentRef"] == {"resource": "services", "namespace": "default", "name": "web"}
        assert made["metadata"]["labels"] == MANAGED
        message = f"the ClusterIP [IPv4]: {ip} for Service default/web has a wrong reference; repairing"
        assert await reports(server) == {("Service/web", "ClusterIPNotAllocated", message)}


async def test_labels_are_repaired(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        ip = (await server.post(SERVICES, service()))["spec"]["clusterIP"]
        await server.patch(f"{ADDRESSES}/{ip}", {"metadata": {"labels": {**dict.fromkeys(MANAGED), "mine": "yes"}}})
        await repair_of(server).check_all()
        assert (await server.get(f"{ADDRESSES}/{ip}"))["metadata"]["labels"] == {**MANAGED, "mine": "yes"}


async def test_of_two_services_with_one_address_the_second_is_reported(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        ip = (await server.post(SERVICES, service("a")))["spec"]["clusterIP"]
        second = (await server.post(SERVICES, service("b")))["spec"]["clusterIP"]
        await rewrite(server, "services", "b", clusterIP=ip, clusterIPs=[ip])
        repair = repair_of(server)
        await repair.check_all()
        message = f"Cluster IP [IPv4]: {ip} was assigned to multiple services; please recreate service"
        wrong = f"IPAddress: {second} for Service default/b has a wrong reference; cleaning up"
        assert await reports(server) == {
            ("Service/b", "ClusterIPAlreadyAllocated", message),
            (f"IPAddress/{second}", "IPAddressWrongReference", wrong),
        }
        assert held(server) == {ip: "a"}
        assert repair.metrics.errors == {"duplicate": 1, "leak": 1}
        # A repeated report is counted.
        await repair.check_all()
        (event,) = [one for one in (await server.get(EVENTS))["items"] if one["reason"] == "ClusterIPAlreadyAllocated"]
        assert event["count"] == 2
        # After the first is deleted, the second keeps the address.
        await server.delete(f"{SERVICES}/a")
        await repair.check_all()
        assert held(server) == {ip: "b"}


async def test_addresses_out_of_range_or_invalid_are_reported(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        for name, wrong in (("a", "10.9.9.9"), ("b", "ten")):
            await server.post(SERVICES, service(name))
            await rewrite(server, "services", name, clusterIP=wrong, clusterIPs=[wrong])
        await repair_of(server).check_all()
        outside = "Cluster IP [IPv4]: 10.9.9.9 is not within any configured Service CIDR; please recreate service"
        invalid = "Cluster IP ten is not a valid IP; please recreate Service"
        assert {
            ("Service/a", "ClusterIPOutOfRange", outside),
            ("Service/b", "ClusterIPNotValid", invalid),
        } <= await reports(server)
        await server.post(CIDRS, cidr("more", "10.9.0.0/16"))
        await repair_of(server).check_all()
        assert held(server)["10.9.9.9"] == "a"


async def test_an_address_without_a_service_is_deleted_after_the_grace_period(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        await server.post(ADDRESSES, address("10.96.0.7", owner="gone", labels=MANAGED))
        await server.post(ADDRESSES, address("10.96.0.8", resource="gateways", labels=MANAGED))
        await server.post(ADDRESSES, address("10.96.0.9", owner="gone"))
        await repair_of(server).check_all()
        assert set(held(server)) == {"10.96.0.7", "10.96.0.9"}
        await repair_of(server, now=datetime.now(UTC) + timedelta(seconds=62)).check_all()
        assert set(held(server)) == {"10.96.0.9"}
        leaked = "IPAddress: 10.96.0.7 for Service default/gone appears to have leaked: cleaning up"
        assert ("IPAddress/10.96.0.7", "IPAddressNotAllocated", leaked) in await reports(server)


async def test_an_event_about_an_ipv6_address(autojump_clock: MockClock) -> None:
    async with open_services("fd00:96::/112") as server:
        await server.post(ADDRESSES, address("fd00:96::7", resource="gateways", labels=MANAGED))
        await repair_of(server).check_all()
        assert held(server) == {}
        assert {claimed for claimed, _, _ in await reports(server)} == {"IPAddress/fd00:96::7"}


async def test_a_cluster_from_before_the_allocator(autojump_clock: MockClock) -> None:
    """Services were restored from a backup, without their addresses and ports."""
    async with open_services() as server:
        made = [await server.post(SERVICES, service(name, type="NodePort")) for name in ("a", "b", "c")]
        for claimed in held(server):
            await write_to_log(server, address_key(claimed) if "." in claimed else port_key(int(claimed)), None)
        assert held(server) == {}
        await repair_of(server).check_all()
        await server.assembly.own.node_ports.check_all()
        assert held(server) == {claimed: one["metadata"]["name"] for one in made for claimed in has(one)}


# -- node ports -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"ports": [{"nodePort": 1, "protocol": "TCP"}, {"nodePort": 1, "protocol": "UDP"}]}, [1]),
        ({"ports": [{"nodePort": 1, "protocol": "TCP"}, {"nodePort": 1, "protocol": "TCP"}]}, [1, 1]),
        ({"ports": [{"nodePort": 1, "protocol": "UDP"}], "healthCheckNodePort": 1}, [1]),
        ({"ports": [{"nodePort": 1, "protocol": "TCP"}], "healthCheckNodePort": 1}, [1, 1]),
        ({"ports": [{"port": 80}], "healthCheckNodePort": 2}, [2]),
    ],
)
def test_the_ports_of_a_service(spec: Any, expected: list[int]) -> None:
    assert ports_of(spec) == expected


async def test_a_leaked_port_is_freed_by_the_third_pass(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        await write_to_log(server, port_key(30007), new_port(30007, AllocationOwner("default", "gone")))
        repair = server.assembly.own.node_ports
        for _ in range(2):
            await repair.check_all()
            assert held(server) == {"30007": "gone"}
        await repair.check_all()
        assert held(server) == {}
        assert repair.metrics.errors == {"leak": 1}


async def test_a_port_that_is_used_again_is_no_leak(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        await write_to_log(server, port_key(30007), new_port(30007, AllocationOwner("default", "web")))
        repair = server.assembly.own.node_ports
        await repair.check_all()
        await repair.check_all()
        made = await server.post(SERVICES, service(type="NodePort"))
        await rewrite(server, "services", "web", ports=[{**made["spec"]["ports"][0], "nodePort": 30007}])
        for _ in range(4):
            await repair.check_all()
        assert held(server) == {made["spec"]["clusterIP"]: "web", "30007": "web"}


async def test_ports_that_are_missing_shared_or_out_of_range(autojump_clock: MockClock) -> None:
    async with open_services(node_ports=range(31000, 31010)) as server:
        for name, number in (("a", 31001), ("b", 31002), ("c", 31003)):
            await server.post(SERVICES, service(name, type="NodePort", ports=[{"port": 1, "nodePort": number}]))
        await write_to_log(server, port_key(31001), None)
        await rewrite(server, "services", "b", ports=[{"port": 1, "protocol": "TCP", "nodePort": 31001}])
        await rewrite(server, "services", "c", ports=[{"port": 1, "protocol": "TCP", "nodePort": 80}])
        repair = server.assembly.own.node_ports
        await repair.check_all()
        again = "please recreate service"
        assert await reports(server) == {
            ("Service/a", "PortNotAllocated", "Port 31001 is not allocated; repairing"),
            ("Service/b", "PortAlreadyAllocated", f"Port 31001 was assigned to multiple services; {again}"),
            ("Service/c", "PortOutOfRange", f"Port 80 is not within the port range 31000-31009; {again}"),
        }
        assert held(server)["31001"] == "a"
        assert repair.metrics.errors == {"repair": 1, "duplicate": 1, "outOfRange": 1}
        # The Service that the object names keeps the port, although it comes second.
        await write_to_log(server, port_key(31001), new_port(31001, AllocationOwner("default", "b")))
        await repair.check_all()
        shared = ("Service/a", "PortAlreadyAllocated", f"Port 31001 was assigned to multiple services; {again}")
        assert shared in await reports(server)
        assert held(server)["31001"] == "b"


async def test_a_port_object_with_a_wrong_owner_is_repaired(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        made = await server.post(SERVICES, service(type="NodePort"))
        number = made["spec"]["ports"][0]["nodePort"]
        await write_to_log(server, port_key(number), new_port(number, AllocationOwner("default", "gone")))
        wrong = server.store.reads.peek(*port_key(number))
        await server.assembly.own.node_ports.check_all()
        mended = server.store.reads.peek(*port_key(number))
        assert held(server)[str(number)] == "web"
        assert wrong is not None
        assert mended is not None
        assert (mended.uid, mended.version) == (wrong.uid, wrong.version + 1)


# -- the loops --------------------------------------------------------------------------------------------------------


async def test_a_server_checks_before_it_is_ready(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with open_services(store=store) as server:
        ip = (await server.post(SERVICES, service(type="NodePort")))["spec"]["clusterIP"]
        number = next(one for one in held(server) if "." not in one)
        await write_to_log(server, address_key(ip), None)
        await write_to_log(server, port_key(int(number)), None)
    async with open_server(store, loops=True) as server:
        assert (held(server)[ip], held(server)[number]) == ("web", "web")
        verbose = (await server.ask("GET", "/readyz?verbose")).body
        assert b"[+]poststarthook/start-service-ip-repair-controllers ok" in verbose
        assert b"[+]poststarthook/start-kubernetes-service-cidr-controller ok" in verbose


async def test_a_server_is_not_ready_before_the_first_pass(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        server.assembly.own.cluster_ips.ready = False
        assert (await server.ask("GET", "/readyz/poststarthook/start-service-ip-repair-controllers")).status == 500
        server.assembly.own.cluster_ips.ready = True
        server.assembly.own.flow_control.done = True
        assert (await server.ask("GET", "/readyz")).status == 200
        server.assembly.own.bootstrap.has_ranges = False
        assert (await server.ask("GET", "/readyz")).status == 500


async def test_a_changed_service_is_checked_at_once(autojump_clock: MockClock) -> None:
    async with open_server(loops=True) as server:
        ip = (await server.post(SERVICES, service()))["spec"]["clusterIP"]
        await server.delete(f"{ADDRESSES}/{ip}")
        await wait_all_tasks_blocked()
        assert held(server)[ip] == "web"
        await server.post(ADDRESSES, address("10.96.0.9", labels=MANAGED))
        await wait_all_tasks_blocked()
        assert "10.96.0.9" not in held(server)


async def test_all_services_are_checked_every_few_minutes(autojump_clock: MockClock) -> None:
    async with open_server(loops=True) as server:
        await write_to_log(server, port_key(30007), new_port(30007, AllocationOwner("default", "gone")))
        await trio.sleep(2 * INTERVAL)
        assert "30007" in held(server)
        await trio.sleep(1.5 * INTERVAL)
        assert "30007" not in held(server)
        leaks = await server.metric("apiserver_nodeport_repair_port_errors_total", type="leak")
        assert leaks == 1


async def test_a_pass_that_fails_is_counted_and_repeated(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        ip = (await server.post(SERVICES, service()))["spec"]["clusterIP"]
        await server.delete(f"{ADDRESSES}/{ip}")
        repair = repair_of(server)
        server.log.fail_next("head", *[Fault.UNAVAILABLE] * 2)
        async with trio.open_nursery() as nursery:
            await nursery.start(lambda *, task_status: repair.run(task_status=task_status))
            assert not repair.ready
            await trio.sleep(5)
            assert repair.ready
            assert held(server) == {ip: "web"}
            nursery.cancel_scope.cancel()
        assert repair.metrics.failures > 0


async def test_two_servers_repair_side_by_side(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with open_services(store=store) as one, open_services(store=store) as other:
        made = [await one.post(SERVICES, service(f"s{number}", type="NodePort")) for number in range(5)]
        for claimed in held(one):
            await write_to_log(one, address_key(claimed) if "." in claimed else port_key(int(claimed)), None)
        await other.get(SERVICES)
        async with trio.open_nursery() as nursery:
            for server in (one, other):
                nursery.start_soon(repair_of(server).check_all)
                nursery.start_soon(NodePortRepair(server.store, range(30000, 32768)).check_all)
        await one.get(SERVICES)
        assert held(one) == {claimed: each["metadata"]["name"] for each in made for claimed in has(each)}
