"""Node ports of Services: chosen or requested, shared by protocols, kept by name, and the one for health checks."""

from __future__ import annotations

from typing import Any

from services import MERGE, SERVICES, WEB, has, held, holds, open_services, refused, service
from trio.testing import MockClock


async def test_node_ports_are_chosen_from_the_upper_band(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        ports = [{"name": str(port), "port": port} for port in range(1, 40)]
        made = await server.post(SERVICES, service(type="NodePort", ports=ports))
        numbers = [port["nodePort"] for port in made["spec"]["ports"]]
        assert len(set(numbers)) == 39
        assert all(30086 <= number <= 32767 for number in numbers)
        holds(server, made)


async def test_requested_node_ports(autojump_clock: MockClock) -> None:
    async with open_services(node_ports=range(31000, 31010)) as server:
        made = await server.post(SERVICES, service("a", type="NodePort", ports=[{"port": 1, "nodePort": 31005}]))
        for number, why in (
            (31005, "provided port is already allocated"),
            (30999, "provided port is not in the valid range. The range of valid ports is 31000-31009"),
            (31010, "provided port is not in the valid range. The range of valid ports is 31000-31009"),
        ):
            body = service("b", type="NodePort", ports=[{"port": 1, "nodePort": number}])
            assert await refused(server, "POST", SERVICES, body) == [
                ("spec.ports[0].nodePort", f"Invalid value: {number}: {why}")
            ]
        holds(server, made)


async def test_one_number_for_two_protocols(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        both = [{"name": "t", "port": 53}, {"name": "u", "port": 53, "protocol": "UDP"}]
        made = await server.post(SERVICES, service(type="NodePort", ports=both))
        first, second = (port["nodePort"] for port in made["spec"]["ports"])
        assert first == second
        holds(server, made)
        for port, number in zip(both, (30500, 30500), strict=True):
            port["nodePort"] = number
        changed = await server.patch(WEB, {"spec": {"ports": both}})
        assert held(server) == {changed["spec"]["clusterIP"]: "web", "30500": "web"}
        clash = [{"name": "t", "port": 1, "nodePort": 30600}, {"name": "u", "port": 2, "nodePort": 30600}]
        assert await refused(server, "POST", SERVICES, service("b", type="NodePort", ports=clash)) == [
            ("spec.ports[1].nodePort", "Invalid value: 30600: provided port is already allocated")
        ]
        answer = (await server.ask("PATCH", WEB, {"spec": {"ports": clash}}, headers=MERGE)).refused(500)
        assert answer["message"] == "duplicate nodePort: {TCP 30600}"


async def test_a_number_of_another_type_was_never_allocated(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        ports = [{"port": 1, "nodePort": 30001}]
        await server.post(SERVICES, service("first", type="ExternalName", externalName="x.org", ports=ports))
        assert held(server) == {}
        owner = await server.post(SERVICES, service(type="NodePort", ports=ports))
        changed = {"spec": {"type": "NodePort", "externalName": None}}
        assert await refused(server, "PATCH", f"{SERVICES}/first", changed, headers=MERGE) == [
            ("spec.ports[0].nodePort", "Invalid value: 30001: provided port is already allocated")
        ]
        await server.delete(f"{SERVICES}/first")
        holds(server, owner)


async def test_a_full_range_of_ports_is_an_error(autojump_clock: MockClock) -> None:
    async with open_services(node_ports=range(31000, 31002)) as server:
        await server.post(SERVICES, service("a", type="NodePort"))
        await server.post(SERVICES, service("b", type="NodePort"))
        answer = (await server.ask("POST", SERVICES, service(type="NodePort"))).refused(500)
        assert answer["message"] == "Internal error occurred: failed to allocate a nodePort: range is full"
        assert "web" not in held(server).values()
        await server.delete(f"{SERVICES}/b")
        await server.post(SERVICES, service(type="NodePort"))


async def test_ports_are_kept_by_name(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        ports: list[dict[str, Any]] = [{"name": "a", "port": 1}, {"name": "b", "port": 2}]
        made = await server.post(SERVICES, service(type="NodePort", ports=ports))
        a, b = (port["nodePort"] for port in made["spec"]["ports"])
        again = await server.put(WEB, service(type="NodePort", ports=ports))
        assert again["spec"] == made["spec"]
        renamed = [{"name": "b", "port": 9}, {"name": "c", "port": 1}]
        moved = await server.put(WEB, service(type="NodePort", ports=renamed))
        kept, new = (port["nodePort"] for port in moved["spec"]["ports"])
        assert kept == b
        assert new not in (a, b)
        holds(server, moved)
        swapped = [{"name": "b", "port": 9}, {"name": "c", "port": 1, "nodePort": kept}]
        exchanged = await server.put(WEB, service(type="NodePort", ports=swapped))
        assert exchanged["spec"]["ports"][1]["nodePort"] == kept
        assert exchanged["spec"]["ports"][0]["nodePort"] not in (kept, 0)
        holds(server, exchanged)


async def test_a_load_balancer_may_decline_node_ports(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        ports = [{"name": "a", "port": 1}, {"name": "b", "port": 2, "nodePort": 30002}]
        made = await server.post(
            SERVICES, service(type="LoadBalancer", ports=ports, allocateLoadBalancerNodePorts=False)
        )
        assert [port.get("nodePort") for port in made["spec"]["ports"]] == [None, 30002]
        holds(server, made)
        more = await server.patch(WEB, {"spec": {"allocateLoadBalancerNodePorts": True}})
        assert all(port.get("nodePort") for port in more["spec"]["ports"])
        holds(server, more)


async def test_the_health_check_port(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        local = {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}
        made = await server.post(SERVICES, service(**local))
        assert made["spec"]["healthCheckNodePort"]
        holds(server, made)
        assert (await server.put(WEB, service(**local)))["spec"] == made["spec"]
        open_ = await server.patch(WEB, {"spec": {"externalTrafficPolicy": "Cluster"}})
        assert "healthCheckNodePort" not in open_["spec"]
        holds(server, open_)
        again = await server.patch(WEB, {"spec": {"externalTrafficPolicy": "Local", "healthCheckNodePort": 30009}})
        assert again["spec"]["healthCheckNodePort"] == 30009
        holds(server, again)
        answer = (await server.ask("POST", SERVICES, service("b", **local, healthCheckNodePort=30009))).refused(500)
        why = "failed to allocate requested HealthCheck NodePort 30009: provided port is already allocated"
        assert answer["message"] == f"Internal error occurred: {why}"
        inner = await server.patch(WEB, {"spec": {"type": "ClusterIP"}})
        holds(server, inner)
        assert has(inner) == {inner["spec"]["clusterIP"]}


async def test_a_service_may_take_all_numbers(autojump_clock: MockClock) -> None:
    async with open_services(node_ports=range(31000, 31100)) as server:
        requested = [{"name": "first", "port": 1, "nodePort": 31050}]
        ports = [*requested, *({"name": str(port), "port": port} for port in range(2, 101))]
        made = await server.post(SERVICES, service(type="NodePort", ports=ports))
        assert {port["nodePort"] for port in made["spec"]["ports"]} == set(range(31000, 31100))
        holds(server, made)
        answer = (await server.ask("POST", SERVICES, service("b", type="NodePort"))).refused(500)
        assert answer["message"] == "Internal error occurred: failed to allocate a nodePort: range is full"
