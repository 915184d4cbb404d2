"""Simulated nodes, their pods and the scheduler, in a server in process with the built-in Stages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import trio
from in_process import PODS, InProcess, open_server, pod
from trio.testing import MockClock

from kubechronicle.actors.loops.simulated_nodes import Simulation
from kubechronicle.api.codecs import yaml
from kubechronicle.api.simulation.scheduling import SIMULATED
from kubechronicle.api.simulation.stages import Stage, stages_of
from kubechronicle.ops.server.simulation.simulated import STAGES

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
NODES = "/api/v1/nodes"
SETTLED = 5.0  # virtual seconds


def built_in() -> list[Stage]:
    return stages_of(yaml.decode_all(STAGES.read_bytes()))


def simulating(nodes: int = 2, *, schedules: bool = True, stages: str = "") -> Any:
    chosen = stages_of(yaml.decode_all(stages.encode())) if stages else []
    simulation = Simulation(nodes=nodes, schedules=schedules, stages=(*built_in(), *chosen))
    return open_server(loops=True, controllers=frozenset(), other={"simulation": simulation})


def condition(obj: Mapping[str, Any], kind: str) -> Any:
    return next((each for each in obj["status"].get("conditions") or () if each["type"] == kind), None)


async def made(server: InProcess, name: str, **spec: Any) -> Any:
    """Create a pod, and return it when everything has settled."""
    body = pod(name)
    body["spec"].update(spec)
    await server.post(PODS, body)
    await trio.sleep(SETTLED)
    return await server.get(f"{PODS}/{name}")


async def test_nodes_become_ready_and_renew_their_leases(autojump_clock: MockClock) -> None:
    async with simulating() as server:
        await trio.sleep(SETTLED)
        nodes = (await server.get(NODES))["items"]
        assert [each["metadata"]["name"] for each in nodes] == ["node-0", "node-1"]
        assert {condition(each, "Ready")["status"] for each in nodes} == {"True"}
        assert nodes[0]["status"]["nodeInfo"]["kubeletVersion"].startswith("kubechronicle-")
        before = await server.get(f"{LEASES}/node-0")
        assert before["spec"]["holderIdentity"] == "node-0"
        assert before["metadata"]["ownerReferences"][0]["uid"] == nodes[0]["metadata"]["uid"]
        await trio.sleep(20)
        assert (await server.get(f"{LEASES}/node-0"))["spec"]["renewTime"] > before["spec"]["renewTime"]
        assert (await server.get(f"{NODES}/node-0"))["metadata"]["resourceVersion"] == (
            nodes[0]["metadata"]["resourceVersion"]
        )


async def test_a_pod_is_bound_and_runs_and_its_deletion_ends(autojump_clock: MockClock) -> None:
    async with simulating() as server:
        running = await made(server, "a")
        status = running["status"]
        assert running["spec"]["nodeName"] in ("node-0", "node-1")
        assert (status["phase"], status["podIP"], status["hostIP"]) == ("Running", "10.244.0.1", "127.0.0.1")
        assert status["podIPs"] == [{"ip": "10.244.0.1"}]
        assert {each["type"]: each["status"] for each in status["conditions"]} == dict.fromkeys(
            ("PodScheduled", "Initialized", "ContainersReady", "Ready"), "True"
        )
        assert status["containerStatuses"][0]["name"] == "main"
        assert status["containerStatuses"][0]["ready"]
        await server.delete(f"{PODS}/a")
        await trio.sleep(SETTLED)
        assert (await server.ask("GET", f"{PODS}/a")).status == 404
        assert (await made(server, "b"))["status"]["podIP"] == "10.244.0.2"


async def test_a_pod_of_a_job_succeeds(autojump_clock: MockClock) -> None:
    async with simulating() as server:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "once", "uid": "1", "controller": True}
        body = pod("once-x", ownerReferences=[owner])
        body["spec"]["restartPolicy"] = "Never"
        await server.post(PODS, body)
        await trio.sleep(SETTLED)
        status = (await server.get(f"{PODS}/once-x"))["status"]
        assert status["phase"] == "Succeeded"
        assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
        assert condition({"status": status}, "Ready")["status"] == "False"


async def test_pods_are_spread_and_wait_for_room(autojump_clock: MockClock) -> None:
    half = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "5"}}}]
    async with simulating() as server:
        places = {(await made(server, name, containers=half))["spec"]["nodeName"] for name in ("a", "b")}
        assert places == {"node-0", "node-1"}
        waiting = await made(server, "c", containers=half)
        assert (waiting["status"]["phase"], waiting["spec"].get("nodeName")) == ("Pending", None)
        scheduled = condition(waiting, "PodScheduled")
        assert (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
        assert scheduled["message"] == "0/2 nodes are available: 2 Insufficient cpu."
        events = (await server.get("/api/v1/namespaces/default/events"))["items"]
        assert [each["reason"] for each in events] == ["FailedScheduling"]
        await server.delete(f"{PODS}/a?gracePeriodSeconds=0")
        await trio.sleep(SETTLED)
        bound = await server.get(f"{PODS}/c")
        assert bound["status"]["phase"] == "Running"
        assert condition(bound, "PodScheduled")["status"] == "True"


async def test_a_new_node_takes_pods_that_wait_for_it(autojump_clock: MockClock) -> None:
    async with simulating(nodes=0) as server:
        waiting = await made(server, "a", nodeSelector={"disk": "ssd"})
        assert condition(waiting, "PodScheduled")["message"] == "no nodes available to schedule pods"
        node = {
            "metadata": {"name": "fast", "labels": {"disk": "ssd"}, "annotations": {SIMULATED: "fake"}},
            "status": {"allocatable": {"cpu": "1", "pods": "10"}},
        }
        await server.post(NODES, node)
        await trio.sleep(SETTLED)
        assert (await server.get(f"{PODS}/a"))["spec"]["nodeName"] == "fast"
        assert (await server.get(f"{LEASES}/fast"))["spec"]["holderIdentity"] == "fast"


async def test_pods_of_real_nodes_and_of_other_schedulers_are_left_alone(autojump_clock: MockClock) -> None:
    async with simulating() as server:
        await server.post(NODES, {"metadata": {"name": "real"}})
        await server.post(PODS, pod("on-a-real-node", node="real"))
        assert (await made(server, "other", schedulerName="mine"))["spec"].get("nodeName") is None
        assert (await server.get(f"{PODS}/on-a-real-node"))["status"]["phase"] == "Pending"
        assert condition(await server.get(f"{NODES}/real"), "Ready") is None


async def test_without_the_scheduler_only_bound_pods_run(autojump_clock: MockClock) -> None:
    async with simulating(schedules=False) as server:
        assert (await made(server, "a"))["spec"].get("nodeName") is None
        assert (await made(server, "b", nodeName="node-1"))["status"]["phase"] == "Running"


LATE = """
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: fails-after-a-minute}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchLabels: {fails: "yes"}
    matchExpressions: [{key: .status.phase, operator: In, values: [Running]}]
  delay: {durationMilliseconds: 60000}
  next:
    finalizers: {add: [{value: example.com/seen}]}
    event: {type: Warning, reason: Broken, message: it broke}
    patches:
    - {subresource: status, root: status, template: "phase: Failed"}
    - {type: merge, template: "metadata: {annotations: {node: {{ .spec.nodeName | Quote }} }}"}
"""


async def test_a_stage_has_a_delay_patches_finalizers_and_an_event(autojump_clock: MockClock) -> None:
    async with simulating(stages=LATE) as server:
        body = pod("a", labels={"fails": "yes"})
        await server.post(PODS, body)
        await trio.sleep(55)
        assert (await server.get(f"{PODS}/a"))["status"]["phase"] == "Running"
        await trio.sleep(10)
        failed = await server.get(f"{PODS}/a")
        assert failed["status"]["phase"] == "Failed"
        assert failed["metadata"]["finalizers"] == ["example.com/seen"]
        assert failed["metadata"]["annotations"]["node"] == failed["spec"]["nodeName"]
        events = (await server.get("/api/v1/namespaces/default/events"))["items"]
        assert [(each["type"], each["reason"], each["message"]) for each in events] == [
            ("Warning", "Broken", "it broke")
        ]


async def test_a_template_that_fails_makes_an_event(autojump_clock: MockClock) -> None:
    wrong = LATE.replace("{{ .spec.nodeName | Quote }}", "{{ index .spec.containers 7 }}")
    async with simulating(stages=wrong) as server:
        await server.post(PODS, pod("a", labels={"fails": "yes"}))
        await trio.sleep(90)
        events = (await server.get("/api/v1/namespaces/default/events"))["items"]
        assert "StageFailed" in {each["reason"] for each in events}


@pytest.mark.parametrize("count", [30])
async def test_many_pods_run(autojump_clock: MockClock, count: int) -> None:
    async with simulating() as server:
        for number in range(count):
            await server.post(PODS, pod(f"p{number}"))
        await trio.sleep(SETTLED)
        pods = (await server.get(PODS))["items"]
        assert {each["status"]["phase"] for each in pods} == {"Running"}
        assert len({each["status"]["podIP"] for each in pods}) == count
        places = [each["spec"]["nodeName"] for each in pods]
        assert places.count("node-0") == places.count("node-1")
