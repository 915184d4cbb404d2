"""Conversion to legacy versions and back: nothing is lost, and each version gets the right fields."""

from __future__ import annotations

import json
from typing import Any

import pytest
from drawn_objects import Object, example_settings, objects
from hypothesis import given
from hypothesis import strategies as st

from kubechronicle.api.builtin.common.version_conversion import KEPT
from kubechronicle.api.builtin.policy import PDB_LABEL
from kubechronicle.api.codecs import protobuf
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.pipeline import conversion
from kubechronicle.api.registry.lives import LEGACY
from kubechronicle.api.registry.registry import ResourceType, known_registry
from kubechronicle.api.schema import check, empties, types

LEGACY_KINDS = [rt for rt in known_registry() if (rt.group, rt.version) in LEGACY]
ROUND_TRIP = "autoscaling.alpha.kubernetes.io/"


def current_version_of(rt: ResourceType) -> ResourceType:
    found = known_registry().storage(rt.resource)
    assert found is not None
    return found


def decoded(rt: ResourceType, obj: Object, *, default: bool = True) -> Object:
    found: Object = {"apiVersion": rt.api_version, "kind": rt.kind, **copy_object(obj)}
    kind = types.object_type(rt.definition)
    assert check.check(found, kind) == []
    if default:
        conversion.apply(found, kind)
    empties.make_null(found, kind)
    return found


def autoscaler(**spec: Any) -> Object:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {"metadata": {"name": "web"}, "spec": {"scaleTargetRef": target, "maxReplicas": 5, **spec}}


def converted(version: str, to: str, obj: Object, plural: str) -> Object:
    group = plural.partition(".")[2]
    rt = known_registry().known(group, version, plural.partition(".")[0])
    assert rt is not None
    given_obj = decoded(rt, obj, default=False)
    before = copy_object(given_obj)
    found = conversion.convert(given_obj, f"{group}/{to}")
    assert given_obj == before
    return found


HPA = "horizontalpodautoscalers.autoscaling"
PDB = "poddisruptionbudgets.policy"
SLICE = "endpointslices.discovery.k8s.io"


# -- round trips ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rt", LEGACY_KINDS, ids=repr)
@pytest.mark.parametrize("default", [True, False])
@given(data=st.data())
@example_settings(60)
def test_stored_objects_survive_a_legacy_round_trip(rt: ResourceType, default: bool, data: st.DataObject) -> None:
    present = current_version_of(rt)
    stored = decoded(present, data.draw(objects(types.object_type(present.definition))), default=default)
    past = conversion.convert(copy_object(stored), rt.api_version)
    assert past["apiVersion"] == rt.api_version
    checked = copy_object(past)
    assert check.check(checked, types.object_type(rt.definition)) == []
    assert checked == past
    assert conversion.convert(past, present.api_version) == stored


@pytest.mark.parametrize("rt", LEGACY_KINDS, ids=repr)
@given(data=st.data())
@example_settings(60)
def test_old_clients_read_back_their_objects(rt: ResourceType, data: st.DataObject) -> None:
    sent = decoded(rt, data.draw(objects(types.object_type(rt.definition))))
    stored = conversion.convert(copy_object(sent), rt.storage_api_version)
    got = conversion.convert(copy_object(stored), rt.api_version)
    assert conversion.convert(got, rt.storage_api_version) == stored
    for endpoint, before in zip(got.get("endpoints") or (), sent.get("endpoints") or (), strict=True):
        _without_duplicated_node(endpoint, before)
    assert got == sent


def _without_duplicated_node(endpoint: Object, before: Object) -> None:
    """Remove the copy of the node's name: discovery.k8s.io/v1beta1 has it in two fields and fills in both."""
    topology = endpoint.get("topology") or {}
    if "nodeName" not in before and endpoint.get("nodeName") == topology.get("kubernetes.io/hostname"):
        endpoint.pop("nodeName", None)
    if "kubernetes.io/hostname" not in (before.get("topology") or {}):
        assert topology.pop("kubernetes.io/hostname", None) == before.get("nodeName")
        if not topology:
            endpoint.pop("topology", None)


@pytest.mark.parametrize("rt", LEGACY_KINDS, ids=repr)
@given(data=st.data())
@example_settings(15)
def test_protobuf_keeps_all_but_empty_lists(rt: ResourceType, data: st.DataObject) -> None:
    sent = decoded(rt, data.draw(objects(types.object_type(rt.definition))))
    received = protobuf.decode(protobuf.encode(sent))
    for rules in ((sent.get("spec") or {}).get("behavior") or {}).values():
        if rules.get("policies") == []:
            del rules["policies"]  # protobuf has no empty lists, and this one is not omitted in JSON
    assert received == sent


# -- autoscaling ------------------------------------------------------------------------------------------------------

METRICS = [
    (
        {"type": "Resource", "resource": {"name": "cpu", "targetAverageUtilization": 50}},
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
    ),
    (
        {"type": "Resource", "resource": {"name": "memory", "targetAverageValue": "1Gi"}},
        {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
    ),
    (
        {
            "type": "ContainerResource",
            "containerResource": {"name": "cpu", "container": "c", "targetAverageUtilization": 50},
        },
        {
            "type": "ContainerResource",
            "containerResource": {
                "name": "cpu",
                "container": "c",
                "target": {"type": "Utilization", "averageUtilization": 50},
            },
        },
    ),
    (
        {
            "type": "Pods",
            "pods": {
                "metricName": "hits",
                "targetAverageValue": "10",
                "selector": {"matchLabels": {"a": "b"}},
            },
        },
        {
            "type": "Pods",
            "pods": {
                "metric": {"name": "hits", "selector": {"matchLabels": {"a": "b"}}},
                "target": {"type": "AverageValue", "averageValue": "10"},
            },
        },
    ),
    (
        {
            "type": "Object",
            "object": {"target": {"kind": "Ingress", "name": "i"}, "metricName": "hits", "targetValue": "10"},
        },
        {
            "type": "Object",
            "object": {
                "describedObject": {"kind": "Ingress", "name": "i"},
                "metric": {"name": "hits"},
                "target": {"type": "Value", "value": "10"},
            },
        },
    ),
    (
        {
            "type": "Object",
            "object": {
                "target": {"kind": "Ingress", "name": "i"},
                "metricName": "hits",
                "targetValue": "0",
                "averageValue": "3",
            },
        },
        {
            "type": "Object",
            "object": {
                "describedObject": {"kind": "Ingress", "name": "i"},
                "metric": {"name": "hits"},
                "target": {"type": "AverageValue", "averageValue": "3"},
            },
        },
    ),
    (
        {"type": "External", "external": {"metricName": "queue", "metricSelector": {}, "targetValue": "10"}},
        {
            "type": "External",
            "external": {"metric": {"name": "queue", "selector": {}}, "target": {"type": "Value", "value": "10"}},
        },
    ),
    (
        {"type": "External", "external": {"metricName": "queue", "targetAverageValue": "10"}},
        {
            "type": "External",
            "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}},
        },
    ),
]


@pytest.mark.parametrize(("old", "new"), METRICS, ids=lambda metric: json.dumps(metric)[10:60])
def test_metrics_of_v2beta1(old: Object, new: Object) -> None:
    up = converted("v2beta1", "v2", autoscaler(metrics=[old]), HPA)
    assert up["spec"]["metrics"] == [new]
    down = converted("v2", "v2beta1", autoscaler(metrics=[new]), HPA)
    assert down["spec"]["metrics"] == [old]
    assert "annotations" not in down["metadata"]


def test_behavior_and_tolerance_move_to_annotations() -> None:
    rules = {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}], "tolerance": "50m"}
    obj = autoscaler(behavior={"scaleDown": rules})
    old = converted("v2", "v2beta1", obj, HPA)
    assert "behavior" not in old["spec"]
    note = json.loads(old["metadata"]["annotations"][ROUND_TRIP + "behavior"])
    assert note["ScaleDown"]["Policies"] == [{"Type": "Pods", "Value": 1, "PeriodSeconds": 15}]
    assert converted("v2beta1", "v2", old, HPA)["spec"]["behavior"] == {"scaleDown": rules}
    newer = converted("v2", "v2beta2", obj, HPA)
    assert newer["metadata"]["annotations"] == {ROUND_TRIP + "scale-down-tolerance": "50m"}
    assert newer["spec"]["behavior"] == {"scaleDown": {"policies": rules["policies"]}}
    assert converted("v2beta2", "v2", newer, HPA)["spec"]["behavior"] == {"scaleDown": rules}


@pytest.mark.parametrize(
    "text",
    [
        *("", "5", "null", "[]", "{", '{"ScaleUp":5}', '{"ScaleUp":{"Policies":5}}', '{"ScaleUp":{"Policies":[5]}}'),
        *('{"ScaleUp":{"Policies":[{"Type":5}]}}', '{"ScaleUp":{"StabilizationWindowSeconds":"x"}}'),
    ],
)
def test_invalid_behavior_annotation_is_ignored(text: str) -> None:
    for version in ("v2beta1", "v1"):
        obj = autoscaler()
        obj["metadata"]["annotations"] = {ROUND_TRIP + "behavior": text, "mine": "x"}
        found = converted(version, "v2", obj, HPA)
        assert "behavior" not in found["spec"]
        assert found["metadata"]["annotations"] == {"mine": "x"}


@pytest.mark.parametrize("text", ["5", "[5]", '[{"type":5}]', '[{"type":"Pods","pods":5}]', '[{"type":"x"}', "{}"])
def test_invalid_metrics_annotation_is_ignored(text: str) -> None:
    obj = autoscaler()
    obj["metadata"]["annotations"] = {
        ROUND_TRIP + "metrics": text,
        ROUND_TRIP + "current-metrics": text,
        ROUND_TRIP + "conditions": text,
    }
    found = converted("v1", "v2", obj, HPA)
    assert [metric["resource"]["name"] for metric in found["spec"]["metrics"]] == ["cpu"]
    assert not found["status"]["currentMetrics"]


def test_conversion_between_two_legacy_versions() -> None:
    metric = {"type": "Resource", "resource": {"name": "cpu", "targetAverageUtilization": 50}}
    obj = autoscaler(metrics=[metric], minReplicas=2)
    assert converted("v2beta1", "v1", obj, HPA)["spec"]["targetCPUUtilizationPercentage"] == 50
    newer = converted("v2beta1", "v2beta2", obj, HPA)
    assert newer["spec"]["metrics"][0]["resource"]["target"] == {"type": "Utilization", "averageUtilization": 50}
    with pytest.raises(LookupError):
        conversion.convert(newer, "policy/v1")


# -- lossless conversion ----------------------------------------------------------------------------------------------


def autoscaler_with_unknown_target() -> Object:
    """Return an autoscaler with a type of target that autoscaling/v2beta1 cannot express."""
    target = {"type": "Value", "averageUtilization": 50}
    return autoscaler(metrics=[{"type": "Resource", "resource": {"name": "cpu", "target": target}}])


def test_inexpressible_fields_are_kept() -> None:
    old = converted("v2", "v2beta1", autoscaler_with_unknown_target(), HPA)
    assert list(old["metadata"]["annotations"]) == [KEPT]
    assert (
        converted("v2beta1", "v2", old, HPA)["spec"]["metrics"] == autoscaler_with_unknown_target()["spec"]["metrics"]
    )


def test_changes_by_old_clients_are_not_undone() -> None:
    old = converted("v2", "v2beta1", autoscaler_with_unknown_target(), HPA)
    old["spec"]["metrics"][0]["resource"] = {"name": "cpu", "targetAverageValue": "5"}
    new = converted("v2beta1", "v2", old, HPA)
    target = new["spec"]["metrics"][0]["resource"]["target"]
    assert target == {"type": "AverageValue", "averageValue": "5"}
    assert "annotations" not in new["metadata"]


@pytest.mark.parametrize(
    "text",
    [
        *("", "5", "{}", "[5]", "[{}]", '[{"at":5}]', '[{"at":[]}]', '[{"at":[5]}]', '[{"at":["spec",5]}]'),
        *('[{"at":["metadata","name"],"as":"web","is":"other"}]', '[{"at":["kind"],"as":"HorizontalPodAutoscaler"}]'),
        *('[{"at":["metadata"],"is":{}}]', '[{"at":["spec","maxReplicas"],"as":5,"is":"x"}]'),
        *('[{"at":["spec","x"],"is":1}]', '[{"at":["spec","metrics",0,"type"],"as":"x","is":"y"}]'),
        '[{"at":["spec","metrics",-1],"is":{}}]',
    ],
)
def test_forged_annotations_are_ignored(text: str) -> None:
    obj = autoscaler()
    obj["metadata"]["annotations"] = {KEPT: text}
    assert converted("v2beta1", "v2", obj, HPA) == converted("v2beta1", "v2", autoscaler(), HPA)


# -- disruption budgets -----------------------------------------------------------------------------------------------

NONE = {"matchExpressions": [{"key": PDB_LABEL, "operator": "Exists"}]}
ALL = {"matchExpressions": [{"key": PDB_LABEL, "operator": "DoesNotExist"}]}
SOME = {"matchLabels": {"app": "web"}}


@pytest.mark.parametrize(("old", "new"), [({}, NONE), (ALL, {}), (SOME, SOME), (None, None)], ids=repr)
def test_empty_selector_matches_none_in_v1beta1_and_all_in_v1(old: Object | None, new: Object | None) -> None:
    def budget(selector: Object | None) -> Object:
        return {"metadata": {"name": "b"}, "spec": {} if selector is None else {"selector": selector}}

    assert converted("v1beta1", "v1", budget(old), PDB)["spec"].get("selector") == new
    assert converted("v1", "v1beta1", budget(new), PDB)["spec"].get("selector") == old


def test_marker_key_is_dropped_from_other_selectors() -> None:
    other = {"key": "a", "operator": "Exists"}
    selector = {**SOME, "matchExpressions": [*NONE["matchExpressions"], other]}
    found = converted("v1beta1", "v1", {"metadata": {}, "spec": {"selector": selector}}, PDB)
    assert found["spec"]["selector"] == {**SOME, "matchExpressions": [other]}


# -- endpoint slices --------------------------------------------------------------------------------------------------

ZONE, NODE = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            {"topology": {ZONE: "a", NODE: "n", "x": "y"}, "nodeName": "n"},
            {"zone": "a", "nodeName": "n", "deprecatedTopology": {"x": "y"}},
        ),
        ({"topology": {ZONE: "a"}}, {"zone": "a"}),
        ({"topology": {NODE: "n"}, "nodeName": "n"}, {"nodeName": "n"}),
        ({"topology": {NODE: "m"}, "nodeName": "n"}, {"nodeName": "n", "deprecatedTopology": {NODE: "m"}}),
        ({}, {}),
    ],
)
def test_topology(old: Object, new: Object) -> None:
    def endpoints(**fields: Any) -> Object:
        return {"metadata": {}, "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"], **fields}]}

    up = converted("v1beta1", "v1", endpoints(**old), SLICE)
    assert up["endpoints"] == [{"addresses": ["10.0.0.1"], "conditions": {}, **new}]
    down = converted("v1", "v1beta1", endpoints(**new), SLICE)
    assert down["endpoints"] == [{"addresses": ["10.0.0.1"], "conditions": {}, **old}]
    assert "annotations" not in down["metadata"]


def test_node_of_the_topology_moves_to_its_field() -> None:
    obj = {"metadata": {}, "addressType": "IPv4", "endpoints": [{"addresses": [], "topology": {NODE: "n"}}]}
    assert converted("v1beta1", "v1", obj, SLICE)["endpoints"][0]["nodeName"] == "n"
