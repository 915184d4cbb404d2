"""The admission chain, NamespaceLifecycle and Priority."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from in_process import MAPS, PODS, configmap, open_server, pod
from trio.testing import MockClock, wait_all_tasks_blocked

from kubechronicle.actors.admission.chain import AdmissionChain, AdmissionState, Attributes
from kubechronicle.actors.large_work import LargeWork
from kubechronicle.api.errors import status
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.registry.registry import ResourceType, builtin_registry
from kubechronicle.api.registry.runtime_config import Emulation, registry_for
from kubechronicle.eventlog.memory.store import MemoryStore

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def type_of(plural: str) -> ResourceType:
    rt = builtin_registry().lookup("", "v1", plural)
    assert rt is not None
    return rt


# -- the chain --------------------------------------------------------------------------------------------------------


class Plugin:
    def __init__(self, name: str, called: list[str], *, refuses: bool = False) -> None:
        self.name = name
        self.called = called
        self.refuses = refuses

    def admit(self, attributes: Attributes, state: AdmissionState) -> None:
        self.called.append(self.name)
        if attributes.object is not None:
            attributes.object.setdefault("seen", []).append(self.name)
        if self.refuses:
            raise status.forbidden("pods", "p", self.name)


async def test_plugins_run_in_order_until_one_rejects() -> None:
    called: list[str] = []
    plugins = [Plugin("a", called), Plugin("b", called, refuses=True), Plugin("c", called)]
    chain = AdmissionChain(plugins, AdmissionState(peek=lambda *_: None, entries=lambda *_: ()))
    obj: dict[str, Any] = {}
    attributes = Attributes(rt=type_of("pods"), operation="CREATE", namespace="a", name="p", object=obj)
    with pytest.raises(status.StatusError):
        await chain.admit(attributes, LargeWork().turn("joe"))
    assert called == obj["seen"] == ["a", "b"]


# -- NamespaceLifecycle -----------------------------------------------------------------------------------------------


async def test_an_object_needs_its_namespace(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        target = "/api/v1/namespaces/nowhere/configmaps"
        for query in ("", "?dryRun=All"):
            error = (await server.ask("POST", target + query, configmap("a", "nowhere"))).refused(404)
            assert error["message"] == 'namespaces "nowhere" not found'
            assert error["details"] == {"name": "nowhere", "kind": "namespaces"}
        lease = "/apis/coordination.k8s.io/v1/namespaces/nowhere/leases/l"
        (await server.ask("PUT", lease, {"metadata": {"name": "l"}, "spec": {}})).refused(404)
        await server.post("/api/v1/nodes", {"metadata": {"name": "n"}})  # needs none


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_system_namespaces_cannot_be_deleted(autojump_clock: MockClock, name: str) -> None:
    async with open_server(loops=True) as server:
        for query in ("", "?dryRun=All", "?gracePeriodSeconds=0"):
            error = (await server.ask("DELETE", f"/api/v1/namespaces/{name}{query}")).refused(403)
            assert error["message"] == f'namespaces "{name}" is forbidden: this namespace may not be deleted'
        assert (await server.get(f"/api/v1/namespaces/{name}"))["status"]["phase"] == "Active"


async def test_objects_can_be_deleted_without_their_namespace(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        (await server.ask("DELETE", "/api/v1/namespaces/nowhere/configmaps/a")).refused(404)
        await server.delete("/api/v1/namespaces/nowhere/configmaps")
        await server.post(MAPS, configmap("a"))


# -- Priority ---------------------------------------------------------------------------------------------------------


def priority_class(name: str, value: int, **fields: Any) -> Any:
    return {"metadata": {"name": name}, "value": value, **fields}


async def test_a_pods_class_gives_its_priority(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(CLASSES, priority_class("high", 1000, preemptionPolicy="Never"))
        body = pod("a")
        body["spec"]["priorityClassName"] = "high"
        made = await server.post(PODS, body)
        assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (1000, "Never")
        plain = await server.post(PODS, pod("b"))
        assert (plain["spec"]["priority"], plain["spec"]["preemptionPolicy"]) == (0, "PreemptLowerPriority")
        assert "priorityClassName" not in plain["spec"]


async def test_the_default_class_applies_to_pods_without_one(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(CLASSES, priority_class("usual", 10, globalDefault=True))
        await server.post(CLASSES, priority_class("unused", 99))
        made = await server.post(PODS, pod("a"))
        assert (made["spec"]["priorityClassName"], made["spec"]["priority"]) == ("usual", 10)


async def test_a_missing_class_and_a_priority_set_by_the_client_are_rejected(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        body = pod("a")
        body["spec"]["priorityClassName"] = "missing"
        error = (await server.ask("POST", PODS, body)).refused(403)
        assert error["message"] == 'pods "a" is forbidden: no PriorityClass with name missing was found'
        body = pod("a")
        body["spec"]["priority"] = 7
        error = (await server.ask("POST", PODS, body)).refused(403)
        assert "the integer value of priority (7) must not be provided in pod spec" in error["message"]
        body["spec"]["priority"] = 0
        assert (await server.post(PODS, body))["spec"]["priority"] == 0


GATES = FeatureGates(given=dict.fromkeys(("AllAlpha", "AllBeta"), True))
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"


def pod_group(name: str, **spec: Any) -> Any:
    return {"metadata": {"name": name}, "spec": {"schedulingPolicy": {"basic": {}}, **spec}}


async def test_a_group_of_pods_is_protected_and_has_the_priority_of_its_class(autojump_clock: MockClock) -> None:
    registry = registry_for({"api/all": "true"}, Emulation(gates=GATES))
    plugins = frozenset({"Priority", "PodGroupProtection"})
    async with open_server(other={"features": GATES, "registry": registry}, admission=plugins) as server:
        await server.post(CLASSES, priority_class("high", 1000, preemptionPolicy="Never"))
        made = await server.post(GROUPS, pod_group("a"))
        assert made["metadata"]["finalizers"] == ["scheduling.k8s.io/podgroup-protection"]
        assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (0, "PreemptLowerPriority")
        error = (await server.ask("POST", GROUPS, pod_group("b", priority=7))).refused(403)
        assert error["message"].endswith(
            "priority set in the pod group (7) must match the priority computed (0) based on the priority class set in "
            "the spec"
        )
        # The default of the policy is another one than that of the class.
        error = (await server.ask("POST", GROUPS, pod_group("b", priorityClassName="high"))).refused(403)
        assert error["message"].endswith(
            "the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided in pod group spec; "
            "priority admission controller computed Never from the given PriorityClass name"
        )
        never = pod_group("b", priorityClassName="high", preemptionPolicy="Never")
        assert (await server.post(GROUPS, never))["spec"]["priority"] == 1000
        await server.put(f"{GROUPS}/a/status", {**made, "status": {"conditions": []}})


async def test_a_put_without_the_priority_keeps_it(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        made = await server.post(PODS, pod("a"))
        del made["spec"]["priority"], made["spec"]["preemptionPolicy"]
        made["metadata"]["labels"] = {"x": "1"}
        kept = await server.put(f"{PODS}/a", made)
        assert (kept["spec"]["priority"], kept["spec"]["preemptionPolicy"]) == (0, "PreemptLowerPriority")


async def test_a_class_made_on_another_replica_counts(autojump_clock: MockClock) -> None:
    """A missing class rejects a pod only after a consistent read."""
    store = MemoryStore()
    async with open_server(store) as one, open_server(store) as two:
        await two.get(PODS)
        body = pod("a")
        body["spec"]["priorityClassName"] = "new"
        answers: list[Any] = []

        async def create() -> None:
            answers.append(await two.ask("POST", PODS, body))

        with two.log.hold("read") as gate:
            await one.post(CLASSES, priority_class("new", 5))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(create)
                await wait_all_tasks_blocked()
                gate.release()
        assert answers[0].ok()["spec"]["priority"] == 5


async def test_without_namespace_lifecycle_nothing_asks_for_the_namespace() -> None:
    """Neither before the write nor after it: a watcher sees one event, and the object stays."""
    path = "/api/v1/namespaces/missing/configmaps"
    async with open_server(admission=frozenset()) as server:
        async with server.watch(f"{path}?watch=1") as stream:
            await server.post(path, {"metadata": {"name": "m"}})
            assert (await stream.event())[0] == "ADDED"
        assert (await server.get(f"{path}/m"))["metadata"]["namespace"] == "missing"
