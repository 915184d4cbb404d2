"""The garbage collector's rules: objects to process after a change of the graph, and decisions about an object."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubechronicle.actors.loops.garbage.decisions import NOTHING as DO_NOTHING
from kubechronicle.actors.loops.garbage.decisions import Act, GarbageDecision, OwnerState, decide, owner_state
from kubechronicle.actors.loops.garbage.graph import (
    NOTHING,
    Graph,
    GraphNode,
    OwnerReference,
    foreign_owner,
    node_of,
    reference_of,
)
from kubechronicle.api.registry.registry import builtin_registry
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Key

SOLID, GONE, WAITING = OwnerState.SOLID, OwnerState.GONE, OwnerState.WAITING
UNKNOWN, INVALID = OwnerState.UNKNOWN_KIND, OwnerState.INVALID


def key(name: str, namespace: str = "default", resource: str = "configmaps") -> Key:
    return Key(resource, namespace, name)


def ref(name: str, *, blocks: bool = False, kind: str = "ConfigMap", api_version: str = "v1") -> OwnerReference:
    """Return a reference to the object with uid ``uid-NAME``."""
    return OwnerReference(api_version, kind, name, f"uid-{name}", blocks)


def node(name: str, *owners: OwnerReference, namespace: str = "default", **more: bool) -> GraphNode:
    return GraphNode(key=key(name, namespace), uid=f"uid-{name}", owners=owners, **more)


def waiting(name: str, *owners: OwnerReference) -> GraphNode:
    return node(name, *owners, deleting=True, foreground=True)


def put(graph: Graph, one: GraphNode | str, namespace: str = "default") -> Any:
    """Put a node, or an object (by name) that needs no node."""
    if isinstance(one, str):
        return graph.put(key(one, namespace), f"uid-{one}", None)
    return graph.put(one.key, one.uid, one)


def entry(name: str, *, namespace: str = "default", resource: str = "configmaps", **metadata: Any) -> Entry:
    uid = f"uid-{name}"
    body = {"kind": "ConfigMap", "metadata": {"name": name, "uid": uid, **metadata}}
    encoded = json.dumps(body, separators=(",", ":")).encode()
    return Entry(key(name, namespace, resource), uid, 7, 7, 1, encoded, {}, {})


# -- nodes ------------------------------------------------------------------------------------------------------------

OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "uid-o"}


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, None),
        ({"ownerReferences": []}, None),
        ({"ownerReferences": [OWNER]}, node("a", ref("o"))),
        ({"ownerReferences": [{**OWNER, "blockOwnerDeletion": True}]}, node("a", ref("o", blocks=True))),
        ({"ownerReferences": [{**OWNER, "controller": True}]}, node("a", ref("o"))),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/x"]}, None),
        ({"finalizers": ["orphan", "foregroundDeletion"]}, None),
        (
            {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["foregroundDeletion"]},
            node("a", deleting=True, foreground=True),
        ),
        (
            {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x.y/z", "orphan"]},
            node("a", deleting=True, orphan=True),
        ),
        ({"ownerReferences": [OWNER], "finalizers": ["orphan"]}, node("a", ref("o"), orphan=True)),
        ({"annotations": {"x": '"ownerReferences":[]'}}, None),
    ],
)
def test_nodes(metadata: dict[str, Any], expected: GraphNode | None) -> None:
    assert node_of(entry("a", **metadata)) == expected


def test_references_of_odd_shape() -> None:
    assert reference_of({"uid": "u", "blockOwnerDeletion": None}) == OwnerReference("", "", "", "u")


# -- the graph --------------------------------------------------------------------------------------------------------


def test_an_object_without_owners_has_no_node() -> None:
    graph = Graph()
    assert put(graph, "a") is NOTHING
    assert put(graph, "a") is NOTHING
    assert graph.remove(key("a"), "uid-a") is NOTHING


def test_new_owners_are_checked() -> None:
    graph = Graph()
    put(graph, "o")
    first = node("a", ref("o"))
    assert put(graph, first).check == first
    assert put(graph, first).check is None
    second = node("a", ref("o"), ref("p"))
    assert put(graph, second).check == second
    assert put(graph, node("a", ref("o"))).check is None


def test_dependents_of_a_deleted_owner_are_processed() -> None:
    graph = Graph()
    put(graph, "o")
    for one in (node("a", ref("o")), node("b", ref("o"), ref("p")), node("c", ref("p"))):
        put(graph, one)
    assert set(graph.remove(key("o"), "uid-o").to_process) == {key("a"), key("b")}
    put(graph, node("a", ref("p")))
    put(graph, "b")
    assert set(graph.dependents("uid-p")) == {node("a", ref("p")), node("c", ref("p"))}
    assert not graph.dependents("uid-o")


def test_a_recreated_owner_is_another_object() -> None:
    graph = Graph()
    put(graph, "o")
    put(graph, node("a", ref("o")))
    assert graph.put(key("o"), "other", None) is NOTHING
    assert not graph.dependents("other")
    replaced = GraphNode(key=key("a"), uid="other-a", owners=(ref("p"),))
    put(graph, node("x", OwnerReference("v1", "ConfigMap", "a", "uid-a")))
    assert set(graph.put(key("a"), "other-a", replaced).to_process) == {key("x")}
    assert set(graph.dependents("uid-p")) == {replaced}
    assert not graph.dependents("uid-o")


def test_a_foreground_deletion() -> None:
    graph = Graph()
    put(graph, "o")
    for name in "abc":
        put(graph, node(name, ref("o", blocks=name != "c")))
    assert set(put(graph, waiting("o")).to_process) == {key("o"), key("a"), key("b"), key("c")}
    assert graph.is_waiting("uid-o")
    assert not put(graph, waiting("o")).to_process, "once"
    assert set(graph.remove(key("a"), "uid-a").to_process) == {key("o")}
    assert set(put(graph, node("b", ref("o"))).to_process) == {key("o")}, "no longer blocks"
    assert not put(graph, "b").to_process
    assert set(graph.remove(key("o"), "uid-o").to_process) == {key("c")}
    assert not graph.is_waiting("uid-o")


def test_a_dependent_created_late_is_checked() -> None:
    graph = Graph()
    put(graph, waiting("o"))
    late = node("a", ref("o", blocks=True))
    assert put(graph, late).check == late
    assert graph.is_waiting("uid-o")


def test_a_deletion_that_orphans() -> None:
    graph = Graph()
    put(graph, node("a", ref("o")))
    orphaning = node("o", deleting=True, orphan=True)
    assert set(put(graph, orphaning).to_process) == {key("o")}
    assert not put(graph, orphaning).to_process
    assert not put(graph, "o").to_process


def test_a_finalizer_alone_is_no_deletion() -> None:
    graph = Graph()
    put(graph, node("a", ref("o"), foreground=True))
    assert not graph.is_waiting("uid-a")
    assert set(put(graph, waiting("a", ref("o"))).to_process) == {key("a")}


def test_owners_in_other_namespaces_are_reported_once() -> None:
    graph = Graph()
    put(graph, "o", "one")
    far = node("a", ref("o"), ref("p"), namespace="two")
    assert put(graph, far).foreign == [(far, ref("o"))]
    assert not put(graph, far).foreign
    assert put(graph, "p", "one").foreign == [(far, ref("p"))], "an owner seen after its dependent"
    assert put(graph, "p", "one") is NOTHING
    near = node("b", ref("o"), namespace="one")
    assert not put(graph, near).foreign
    clusterwide = node("c", ref("o"), namespace="")
    assert put(graph, clusterwide).foreign == [(clusterwide, ref("o"))]
    put(graph, "n", "")
    assert not put(graph, node("d", ref("n"), namespace="two")).foreign


def test_a_resource_that_is_no_longer_served() -> None:
    graph = Graph()
    graph.put(key("o", resource="widgets"), "uid-o", None)
    graph.put(key("w", resource="widgets"), "uid-w", waiting("w", ref("p")))
    put(graph, node("a", ref("o"), ref("w", blocks=True)))
    graph.forget("widgets")
    assert not graph.is_waiting("uid-w")
    assert not graph.dependents("uid-p")
    assert graph.dependents("uid-o")
    assert not put(graph, "a").to_process


# -- decisions --------------------------------------------------------------------------------------------------------

A, B, C = ref("a"), ref("b"), ref("c")
BACKGROUND, FOREGROUND = (
    GarbageDecision(Act.DELETE, policy="Background"),
    GarbageDecision(Act.DELETE, policy="Foreground"),
)
CHILD = node("child", ref("x"))
CHILD_WAITS = waiting("child", ref("x"))


@pytest.mark.parametrize(
    ("owners", "dependents", "expected"),
    [
        ([], [], DO_NOTHING),
        ([SOLID], [], DO_NOTHING),
        ([SOLID, SOLID], [CHILD], DO_NOTHING),
        ([GONE], [], BACKGROUND),
        ([GONE, GONE], [CHILD], BACKGROUND),
        ([GONE, SOLID], [], GarbageDecision(Act.DROP_REFERENCES, (A,))),
        ([SOLID, WAITING, GONE], [CHILD], GarbageDecision(Act.DROP_REFERENCES, (B, C))),
        ([WAITING, SOLID], [CHILD_WAITS], GarbageDecision(Act.DROP_REFERENCES, (A,))),
        ([WAITING], [], BACKGROUND),
        ([WAITING, GONE], [], BACKGROUND),
        ([WAITING], [CHILD], FOREGROUND),
        ([WAITING, GONE], [CHILD], FOREGROUND),
        ([WAITING], [CHILD_WAITS], FOREGROUND),  # its references do not block
        ([GONE], [CHILD_WAITS], BACKGROUND),
        ([UNKNOWN], [], GarbageDecision(Act.LATER)),
        ([UNKNOWN, GONE], [CHILD], GarbageDecision(Act.LATER)),
        ([SOLID, UNKNOWN, GONE], [], GarbageDecision(Act.LATER)),
        ([INVALID], [], DO_NOTHING),
        ([INVALID, GONE, UNKNOWN], [], DO_NOTHING),
    ],
)
def test_decisions_by_owners(owners: list[OwnerState], dependents: list[GraphNode], expected: GarbageDecision) -> None:
    one = node("x", *(A, B, C)[: len(owners)])
    assert decide(one, owners, dependents) == expected


@pytest.mark.parametrize(
    ("one", "owner_states", "expected"),
    [
        (node("x", A, foreground=True), [GONE], FOREGROUND),
        (node("x", A, orphan=True), [GONE], GarbageDecision(Act.DELETE, policy="Orphan")),
        (node("x", A, orphan=True, foreground=True), [GONE], GarbageDecision(Act.DELETE, policy="Orphan")),
        (node("x", A, deleting=True), [GONE], DO_NOTHING),
        (node("x", A, deleting=True, orphan=True), [GONE], GarbageDecision(Act.ORPHAN_DEPENDENTS)),
        (node("x", deleting=True, orphan=True, foreground=True), [], GarbageDecision(Act.ORPHAN_DEPENDENTS)),
        (node("x", ref("a", blocks=True)), [WAITING], GarbageDecision(Act.UNBLOCK_OWNERS)),
    ],
)
def test_decisions_by_finalizers(one: GraphNode, owner_states: list[OwnerState], expected: GarbageDecision) -> None:
    assert decide(one, owner_states, [CHILD_WAITS] if expected.act is Act.UNBLOCK_OWNERS else [CHILD]) == expected


@pytest.mark.parametrize(
    ("dependents", "expected"),
    [
        ([], GarbageDecision(Act.END_FOREGROUND)),
        ([node("d", ref("x"))], GarbageDecision(Act.END_FOREGROUND)),
        ([node("d", ref("y", blocks=True), ref("x"))], GarbageDecision(Act.END_FOREGROUND)),
        ([node("d", ref("x", blocks=True))], GarbageDecision(Act.AWAIT_DEPENDENTS)),
        ([waiting("d", ref("x", blocks=True))], GarbageDecision(Act.AWAIT_DEPENDENTS)),
        (
            [waiting("c", ref("x", blocks=True)), node("d", ref("x", blocks=True)), node("e", ref("x"))],
            GarbageDecision(Act.AWAIT_DEPENDENTS),
        ),
    ],
)
def test_decisions_that_wait_for_dependents(dependents: list[GraphNode], expected: GarbageDecision) -> None:
    assert decide(waiting("x", A), [GONE], dependents) == expected


@pytest.mark.parametrize(
    ("namespace", "reference", "expected"),
    [
        ("default", ref("o"), SOLID),
        ("default", ref("w"), WAITING),
        ("default", ref("none"), GONE),
        ("other", ref("o"), GONE),
        ("", ref("o"), INVALID),
        ("default", OwnerReference("v1", "ConfigMap", "o", "another uid"), GONE),
        ("default", ref("n", kind="Namespace"), SOLID),
        ("", ref("n", kind="Namespace"), SOLID),
        ("default", ref("o", kind="Secret"), GONE),
        ("default", ref("o", kind="Widget"), UNKNOWN),
        ("default", ref("o", api_version="v7"), UNKNOWN),
        ("default", ref("o", api_version="example.com/v1"), UNKNOWN),
        ("", ref("o", api_version="a/b/c"), UNKNOWN),
        ("default", ref("o", kind="TokenReview", api_version="authentication.k8s.io/v1"), UNKNOWN),
        ("default", ref("h", kind="HorizontalPodAutoscaler", api_version="autoscaling/v1"), SOLID),
        ("default", ref("h", kind="HorizontalPodAutoscaler", api_version="autoscaling/v2"), SOLID),
    ],
)
def test_states_of_owners(namespace: str, reference: OwnerReference, expected: OwnerState) -> None:
    waits = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["foregroundDeletion"]}
    there = [
        entry("o"),
        entry("w", **waits),
        entry("n", namespace="", resource="namespaces"),
        entry("h", resource="horizontalpodautoscalers.autoscaling"),
    ]
    held = {one.key: one for one in there}

    def peek(resource: str, space: str, name: str) -> Entry | None:
        return held.get(Key(resource, space, name))

    assert owner_state(key("a", namespace), reference, builtin_registry(), peek) is expected


# -- reports ----------------------------------------------------------------------------------------------------------


def test_message_about_an_owner_in_another_namespace() -> None:
    assert foreign_owner(node("a", namespace="two"), ref("o")) == (
        'ownerRef [v1/ConfigMap, namespace: two, name: o, uid: uid-o] does not exist in namespace "two"'
    )
