"""Allocation for Services: families, addresses and node ports, at creation and at every kind of change."""

from __future__ import annotations

from typing import Any

import pytest
from services import (
    ADDRESSES,
    CIDRS,
    DUAL,
    MERGE,
    SERVICES,
    WEB,
    address,
    cidr,
    held,
    holds,
    open_services,
    refused,
    service,
)
from trio.testing import MockClock

# -- creation ---------------------------------------------------------------------------------------------------------


async def test_a_new_service_gets_an_address_of_the_upper_band(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        made = await server.post(SERVICES, service())
        spec = made["spec"]
        assert spec["clusterIPs"] == [spec["clusterIP"]]
        assert (spec["ipFamilies"], spec["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")
        _, _, third, fourth = map(int, spec["clusterIP"].split("."))
        assert third * 256 + fourth > 256
        holds(server, made)
        ip = await server.get(f"{ADDRESSES}/{spec['clusterIP']}")
        assert ip["metadata"]["labels"] == {
            "ipaddress.kubernetes.io/ip-family": "IPv4",
            "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
        }
        assert ip["spec"] == {"parentRef": {"resource": "services", "namespace": "default", "name": "web"}}
        (entry,) = ip["metadata"]["managedFields"]
        assert (entry["manager"], entry["operation"]) == ("kube-apiserver", "Update")
        assert "f:parentRef" in entry["fieldsV1"]["f:spec"]


async def test_a_service_and_its_allocations_are_one_transaction(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        made = await server.post(SERVICES, service(type="NodePort"))
        revision = int(made["metadata"]["resourceVersion"])
        ip = await server.get(f"{ADDRESSES}/{made['spec']['clusterIP']}")
        assert int(ip["metadata"]["resourceVersion"]) == revision - 2
        assert server.log.store.revision == revision


async def test_an_address_refers_to_the_generated_name(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        body = service()
        body["metadata"] = {"generateName": "web-"}
        made = await server.post(SERVICES, body)
        assert made["metadata"]["name"].startswith("web-")
        holds(server, made)


async def test_headless_and_external_services_get_no_address(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        headless = await server.post(SERVICES, service("a", clusterIP="None", selector={"a": "b"}))
        assert headless["spec"]["clusterIPs"] == ["None"]
        assert (headless["spec"]["ipFamilies"], headless["spec"]["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")
        unselective = await server.post(SERVICES, service("b", clusterIP="None"))
        assert unselective["spec"]["ipFamilies"] == ["IPv4", "IPv6"]
        assert unselective["spec"]["ipFamilyPolicy"] == "RequireDualStack"
        single = await server.post(SERVICES, service("c", clusterIP="None", ipFamilyPolicy="SingleStack"))
        assert single["spec"]["ipFamilies"] == ["IPv4"]
        external = await server.post(SERVICES, service("d", ports=(), type="ExternalName", externalName="x.org"))
        assert not {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"} & set(external["spec"])
        assert held(server) == {}


async def test_requested_addresses(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        made = await server.post(SERVICES, service("a", clusterIP="10.96.0.5"))
        holds(server, made)
        taken = ("spec.clusterIPs", 'Invalid value: ["10.96.0.5"]: failed to allocate IP 10.96.0.5: ')
        elsewhere = "the provided network does not match the current range"
        assert await refused(server, "POST", SERVICES, service("b", clusterIP="10.96.0.5")) == [
            (taken[0], taken[1] + "provided IP is already allocated")
        ]
        for wrong in ("10.97.0.1", "10.96.0.0", "10.96.255.255"):
            ((field, message),) = await refused(server, "POST", SERVICES, service("b", clusterIP=wrong))
            assert (field, message.rpartition(": ")[2]) == ("spec.clusterIPs", elsewhere)
        assert await refused(server, "POST", SERVICES, service("b", clusterIP="fd00::1")) == [
            ("spec.clusterIPs[0]", 'Invalid value: ["fd00::1"]: IPv6 is not configured on this cluster')
        ]
        assert await refused(server, "POST", SERVICES, service("b", clusterIPs=["10.96.0.6"])) == [
            ("spec.clusterIPs", 'Invalid value: ["10.96.0.6"]: must be empty when `clusterIP` is not specified')
        ]
        holds(server, made)


@pytest.mark.parametrize("requested", [{}, {"clusterIP": "10.96.0.5"}])
async def test_an_address_needs_the_name_of_its_service(autojump_clock: MockClock, requested: Any) -> None:
    async with open_services() as server:
        ((field, message),) = await refused(server, "POST", SERVICES, service("a/b", **requested))
        assert field == "spec.clusterIPs"
        assert "failed to allocate IP" in message
        assert message.endswith("""spec.parentRef.name: Invalid value: "a/b": may not contain '/'""")


async def test_an_address_created_by_a_user_is_taken(autojump_clock: MockClock) -> None:
    async with open_services("10.96.0.0/29") as server:
        for number in (1, 2, 3, 4, 5):
            await server.post(ADDRESSES, address(f"10.96.0.{number}", resource="gateways", owner="edge"))
        ((_, message),) = await refused(server, "POST", SERVICES, service(clusterIP="10.96.0.3"))
        assert message.endswith("provided IP is already allocated")
        assert (await server.post(SERVICES, service()))["spec"]["clusterIP"] == "10.96.0.6"
        answer = (await server.ask("POST", SERVICES, service("more"))).refused(500)
        assert answer["reason"] == "InternalError"
        assert answer["message"] == "Internal error occurred: failed to allocate a serviceIP: range is full"
        await server.delete(f"{ADDRESSES}/10.96.0.2")
        assert (await server.post(SERVICES, service("more")))["spec"]["clusterIP"] == "10.96.0.2"


async def test_a_dry_run_allocates_nothing(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        made = await server.post(f"{SERVICES}?dryRun=All", service(type="NodePort", ports=[{"port": 1, "name": "a"}]))
        assert (made["spec"]["clusterIP"], made["spec"]["ports"][0]["nodePort"]) == ("10.96.0.0", 32769)
        real = await server.post(SERVICES, service(type="NodePort", ports=[{"port": 1, "nodePort": 30001}]))
        again = service("other", clusterIP=real["spec"]["clusterIP"])
        assert (await server.post(f"{SERVICES}?dryRun=All", again))["spec"]["clusterIP"] == real["spec"]["clusterIP"]
        outside = service("other", clusterIP="10.96.0.0")
        ((_, message),) = await refused(server, "POST", f"{SERVICES}?dryRun=All", outside)
        why = "the provided IP (10.96.0.0) is not in the valid range. The range of valid IPs is 10.96.0.0/16"
        assert message.endswith(why)
        port = service("other", type="NodePort", ports=[{"port": 1, "nodePort": 30001}])
        assert await refused(server, "POST", f"{SERVICES}?dryRun=All", port) == [
            ("spec.ports[0].nodePort", "Invalid value: 30001: provided port is already allocated")
        ]
        await server.delete(f"{WEB}?dryRun=All")
        holds(server, real)


# -- families ---------------------------------------------------------------------------------------------------------


async def test_families_of_a_dual_stack_cluster(autojump_clock: MockClock) -> None:
    async with open_services(*DUAL) as server:
        made = [
            await server.post(SERVICES, service(name, **spec))
            for name, spec in {
                "plain": {},
                "prefer": {"ipFamilyPolicy": "PreferDualStack"},
                "require": {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6"]},
                "six": {"ipFamilies": ["IPv6"]},
                "given": {"clusterIP": "fd00:96::5"},
                "both": {
                    "clusterIP": "10.96.0.9",
                    "clusterIPs": ["10.96.0.9", "fd00:96::9"],
                    "ipFamilyPolicy": "PreferDualStack",
                },
            }.items()
        ]
        assert [one["spec"]["ipFamilies"] for one in made] == [
            ["IPv4"],
            ["IPv4", "IPv6"],
            ["IPv6", "IPv4"],
            ["IPv6"],
            ["IPv6"],
            ["IPv4", "IPv6"],
        ]
        for one in made:
            families = ["IPv6" if ":" in ip else "IPv4" for ip in one["spec"]["clusterIPs"]]
            assert (families, one["spec"]["clusterIP"]) == (one["spec"]["ipFamilies"], one["spec"]["clusterIPs"][0])
        holds(server, *made)


async def test_the_first_range_determines_the_default_family(autojump_clock: MockClock) -> None:
    async with open_services(*reversed(DUAL)) as server:
        assert (await server.post(SERVICES, service()))["spec"]["ipFamilies"] == ["IPv6"]


POLICY = "spec.ipFamilyPolicy"
NOT_DUAL = 'Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services'
MANY = "Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when multiple {} are specified"
TO_RELEASE = "Invalid value: \"PreferDualStack\": must be 'SingleStack' to release the secondary {}"
EXPECTED_SIX = 'Invalid value: "10.96.0.1": expected an IPv6 value as indicated by `ipFamilies[0]`'


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"ipFamilyPolicy": "RequireDualStack"}, [(POLICY, NOT_DUAL)]),
        ({"ipFamilies": ["IPv6"]}, [("spec.ipFamilies[0]", 'Invalid value: "IPv6": not configured on this cluster')]),
        ({"ipFamilies": ["IPv4", "IPv6"]}, [(POLICY, MANY.format("IP families"))]),
        (
            {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"]},
            [
                (POLICY, MANY.format("cluster IPs")),
                (
                    "spec.clusterIPs[1]",
                    'Invalid value: ["10.96.0.1","fd00::1"]: IPv6 is not configured on this cluster',
                ),
            ],
        ),
        ({"clusterIP": "10.96.0.1", "ipFamilies": ["IPv6"]}, [("spec.clusterIPs[0]", EXPECTED_SIX)]),
    ],
)
async def test_families_the_cluster_lacks_are_rejected(
    spec: Any, expected: list[tuple[str, str]], autojump_clock: MockClock
) -> None:
    async with open_services() as server:
        assert await refused(server, "POST", SERVICES, service(**spec)) == expected
        assert held(server) == {}


async def test_a_second_family_is_added_and_removed(autojump_clock: MockClock) -> None:
    async with open_services(*DUAL) as server:
        made = await server.post(SERVICES, service())
        first = made["spec"]["clusterIP"]
        dual = await server.patch(WEB, {"spec": {"ipFamilyPolicy": "PreferDualStack"}})
        assert dual["spec"]["ipFamilies"] == ["IPv4", "IPv6"]
        assert dual["spec"]["clusterIPs"][0] == first
        holds(server, dual)
        fewer = {"spec": {"clusterIPs": [first], "ipFamilies": ["IPv4"]}}
        assert await refused(server, "PATCH", WEB, fewer, headers=MERGE) == [
            (POLICY, TO_RELEASE.format("cluster IP")),
            (POLICY, TO_RELEASE.format("IP family")),
        ]
        single = await server.patch(WEB, {"spec": {"ipFamilyPolicy": "SingleStack"}})
        assert (single["spec"]["clusterIPs"], single["spec"]["ipFamilies"]) == ([first], ["IPv4"])
        holds(server, single)
        spec = {"ipFamilyPolicy": "RequireDualStack", "clusterIPs": [first, "fd00:96::7"]}
        assert (await server.patch(WEB, {"spec": spec}))["spec"]["clusterIPs"] == [first, "fd00:96::7"]
        assert held(server) == {first: "web", "fd00:96::7": "web"}


async def test_prefer_dual_stack_keeps_its_families_in_a_changed_cluster(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        made = await server.post(SERVICES, service(ipFamilyPolicy="PreferDualStack"))
        assert made["spec"]["ipFamilies"] == ["IPv4"]
        async with open_services(*DUAL, store=server.log.store) as wider:
            kept = await wider.patch(WEB, {"metadata": {"labels": {"a": "b"}}})
            assert kept["spec"] == made["spec"]


# -- changes of type --------------------------------------------------------------------------------------------------


async def test_changes_of_type_allocate_and_release(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        made = await server.post(SERVICES, service())
        node = await server.patch(WEB, {"spec": {"type": "NodePort"}})
        assert node["spec"]["clusterIP"] == made["spec"]["clusterIP"]
        assert node["spec"]["externalTrafficPolicy"] == "Cluster"
        holds(server, node)
        balancer = await server.patch(WEB, {"spec": {"type": "LoadBalancer"}})
        assert balancer["spec"]["ports"] == node["spec"]["ports"]
        await server.patch(f"{WEB}/status", {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}})
        plain = await server.patch(WEB, {"spec": {"type": "ClusterIP"}})
        assert plain["spec"] == made["spec"]
        assert plain["status"] == {"loadBalancer": {}}
        holds(server, plain)
        external = await server.patch(WEB, {"spec": {"type": "ExternalName", "externalName": "x.org"}})
        assert not {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"} & set(external["spec"])
        assert held(server) == {}
        back = await server.patch(WEB, {"spec": {"type": "NodePort", "externalName": None}})
        assert back["spec"]["clusterIP"]
        assert back["spec"]["ipFamilies"] == ["IPv4"]
        holds(server, back)
        await server.delete(WEB)
        assert held(server) == {}


async def test_an_update_without_an_address_keeps_it(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        made = await server.post(SERVICES, service())
        first = made["spec"]["clusterIP"]
        for body in ({"spec": {"clusterIP": None}}, {"spec": {"clusterIP": "", "clusterIPs": []}}):
            assert (await server.patch(WEB, body))["spec"] == made["spec"]
        assert (await server.put(WEB, service()))["spec"] == made["spec"]
        wanted = {"spec": {"clusterIP": "10.96.0.77"}}
        assert await refused(server, "PATCH", WEB, wanted, headers=MERGE) == [
            ("spec.clusterIPs[0]", 'Invalid value: ["10.96.0.77"]: may not change once set')
        ]
        assert held(server) == {first: "web"}


async def test_a_put_creates_a_service_and_an_apply_keeps_its_allocations(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        made = await server.put(WEB, service(type="NodePort"))
        holds(server, made)
        headers = {"content-type": "application/apply-patch+yaml"}
        body = service(type="NodePort")
        applied = await server.ask("PATCH", f"{WEB}?fieldManager=me&force=true", body, headers=headers)
        assert applied.ok()["spec"] == made["spec"]
        fresh = await server.ask("PATCH", f"{SERVICES}/api?fieldManager=me", service("api"), headers=headers)
        holds(server, made, fresh.ok())


async def test_a_stale_update_is_a_conflict_and_allocates_nothing(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        stale = await server.post(SERVICES, service())
        current = await server.patch(WEB, {"metadata": {"labels": {"a": "b"}}})
        stale["spec"].update(type="NodePort", ports=[{"port": 80, "nodePort": 1}])
        assert (await server.ask("PUT", WEB, stale)).refused(409)["reason"] == "Conflict"
        holds(server, current)


async def test_another_uid_does_not_stop_the_allocation(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        made = await server.post(SERVICES, service())
        uid = "11111111-2222-3333-4444-555555555555"
        wanted: Any = {"metadata": {"uid": uid}, "spec": {"ipFamilies": None}}
        causes = await refused(server, "PATCH", WEB, wanted, headers=MERGE)
        assert set(causes) == {("metadata.uid", f'Invalid value: "{uid}": field is immutable')}
        wanted["spec"] = {"type": "NodePort", "ports": [{"port": 80, "nodePort": 1}]}
        ((field, _),) = await refused(server, "PATCH", WEB, wanted, headers=MERGE)
        assert field == "spec.ports[0].nodePort"
        assert (await server.ask("PUT", WEB, {**wanted, "metadata": {"name": "web", "uid": uid}})).refused(409)
        holds(server, made)


async def test_a_balancer_without_node_ports_keeps_none_by_name(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        ports = [{"name": "a", "port": 1}, {"name": "b", "port": 2}]
        await server.post(SERVICES, service(ports=ports, type="LoadBalancer"))
        twice: Any = {"spec": {"ports": [*ports, ports[1]]}}
        error = (await server.ask("PATCH", WEB, twice, headers=MERGE)).refused(500)
        assert error["message"].startswith("duplicate nodePort: {TCP ")
        twice["spec"]["allocateLoadBalancerNodePorts"] = False
        fields = [field for field, _ in await refused(server, "PATCH", WEB, twice, headers=MERGE)]
        assert fields == ["spec.ports[2].name", "spec.ports[2]"]


async def test_an_external_name_shows_no_internal_traffic_policy(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        outer = service(ports=(), type="ExternalName", externalName="example.com", internalTrafficPolicy="Local")
        assert "internalTrafficPolicy" not in (await server.post(SERVICES, outer))["spec"]
        changed = await server.patch(WEB, {"spec": {"internalTrafficPolicy": "Cluster"}})
        assert "internalTrafficPolicy" not in changed["spec"]
        wrong = {"spec": {"internalTrafficPolicy": "x"}}
        assert [field for field, _ in await refused(server, "PATCH", WEB, wrong, headers=MERGE)] == [
            "spec.internalTrafficPolicy"
        ]


# -- deletion ---------------------------------------------------------------------------------------------------------


async def test_a_deletion_releases_allocations(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        for name in ("a", "b", "c"):
            await server.post(SERVICES, service(name, type="NodePort", labels={"of": "many"}))
        stays = await server.post(SERVICES, service())
        await server.delete(f"{SERVICES}?labelSelector=of=many")
        holds(server, stays)
        await server.patch(WEB, {"metadata": {"finalizers": ["example.com/wait"]}})
        await server.delete(WEB)
        holds(server, stays)
        await server.patch(WEB, {"metadata": {"finalizers": None}})
        assert held(server) == {}


async def test_endpoints_are_deleted_with_their_service(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        target = "/api/v1/namespaces/default/endpoints"
        await server.post(SERVICES, service())
        await server.post(target, {"metadata": {"name": "web"}})
        await server.post(target, {"metadata": {"name": "other"}})
        await server.delete(f"{WEB}?dryRun=All")
        assert await server.names(target) == ["other", "web"]
        await server.delete(WEB)
        assert await server.names(target) == ["other"]


async def test_allocations_of_others_are_not_released(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        made = await server.post(SERVICES, service())
        ip = made["spec"]["clusterIP"]
        await server.delete(f"{ADDRESSES}/{ip}")
        await server.post(ADDRESSES, address(ip, resource="gateways", owner="edge"))
        await server.delete(WEB)
        assert held(server) == {ip: "edge"}


# -- ranges -----------------------------------------------------------------------------------------------------------


async def test_added_ranges_are_used_and_ending_ones_are_not(autojump_clock: MockClock) -> None:
    async with open_services("10.96.0.0/29") as server:
        for number in range(6):
            await server.post(SERVICES, service(f"s{number}"))
        (await server.ask("POST", SERVICES, service())).refused(500)
        wider = cidr("wider", "10.97.0.0/24")
        wider["metadata"]["finalizers"] = ["example.com/wait"]
        await server.post(CIDRS, wider)
        made = await server.post(SERVICES, service())
        assert made["spec"]["clusterIP"].startswith("10.97.0.")
        await server.delete(f"{CIDRS}/wider")
        (await server.ask("POST", SERVICES, service("next"))).refused(500)
        ((_, message),) = await refused(server, "POST", SERVICES, service("next", clusterIP="10.97.0.9"))
        assert message.endswith("the provided network does not match the current range")
        await server.post(CIDRS, cidr("same", "10.97.0.0/24"))
        assert (await server.post(SERVICES, service("next", clusterIP="10.97.0.9")))["spec"]["clusterIP"] == "10.97.0.9"


async def test_a_range_that_is_not_ready_is_not_used(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        not_ready = {"type": "Ready", "status": "False", "reason": "Broken", "message": "", "lastTransitionTime": None}
        not_ready["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        await server.patch(f"{CIDRS}/kubernetes/status", {"status": {"conditions": [not_ready]}})
        answer = (await server.ask("POST", SERVICES, service())).refused(500)
        assert answer["message"].endswith("range is full")
        answer = (await server.ask("POST", f"{SERVICES}?dryRun=All", service())).refused(500)
        assert answer["message"].endswith("allocator not ready")


# -- visibility -------------------------------------------------------------------------------------------------------


async def test_node_ports_are_not_served(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        await server.post(SERVICES, service(type="NodePort"))
        assert "kubechronicle" not in {group["name"] for group in (await server.get("/apis"))["groups"]}
        assert all(rt.resource != "nodeports.kubechronicle" for rt in server.store.registry.stored())
        assert await server.metric("apiserver_resource_objects", group="", resource="services") == 1
        assert await server.metric("apiserver_resource_objects", group="kubechronicle", resource="nodeports") is None


async def test_metrics(autojump_clock: MockClock) -> None:
    async with open_services("10.96.0.0/29", node_ports=range(31000, 31010)) as server:
        made = await server.post(SERVICES, service(type="NodePort"))
        await server.ask("POST", SERVICES, service("b", clusterIP=made["spec"]["clusterIP"]))
        ips, ports = "kube_apiserver_clusterip_allocator", "kube_apiserver_nodeport_allocator"
        net = "10.96.0.0/29"
        assert await server.metric(f"{ips}_allocated_ips", cidr=net) == 1
        assert await server.metric(f"{ips}_available_ips", cidr=net) == 5
        assert await server.metric(f"{ips}_allocation_total", cidr=net, scope="dynamic") == 1
        assert await server.metric(f"{ips}_allocation_errors_total", cidr=net, scope="static") >= 1  # type: ignore[operator]
        assert await server.metric(f"{ips}_allocation_duration_seconds_count", cidr=net) == 1
        assert await server.metric(f"{ports}_allocated_ports") == 1
        assert await server.metric(f"{ports}_available_ports") == 9
        assert await server.metric(f"{ports}_allocation_total", scope="dynamic") == 1
        assert (await server.ask("GET", "/metrics")).status == 200
        await server.post(CIDRS, cidr("more", "10.96.0.0/28"))
        assert await server.metric(f"{ips}_allocated_ips", cidr="10.96.0.0/28") == 1
        assert await server.metric(f"{ips}_available_ips", cidr="10.96.0.0/28") == 13
