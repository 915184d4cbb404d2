"""Server-side apply from body to object: owners of fields, rejections and their messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.patch import typed_readers, typed_values
from kubechronicle.api.pipeline import patches, pipeline
from kubechronicle.api.pipeline import scale as subresources
from kubechronicle.api.pipeline.patching import APPLY_YAML, MERGE_PATCH
from kubechronicle.api.pipeline.pipeline import Outcome, WriteContext
from kubechronicle.api.registry.registry import ResourceType, builtin_registry
from kubechronicle.api.schema import types

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

Object = dict[str, Any]


def resource(group: str, version: str, plural: str) -> ResourceType:
    found = builtin_registry().lookup(group, version, plural)
    assert found is not None
    return found


CONFIG_MAPS = resource("", "v1", "configmaps")
DEPLOYMENTS = resource("apps", "v1", "deployments")
REPLICA_SETS = resource("apps", "v1", "replicasets")
SERVICES = resource("", "v1", "services")
V1 = resource("autoscaling", "v1", "horizontalpodautoscalers")
V2 = resource("autoscaling", "v2", "horizontalpodautoscalers")


class Cluster:
    """One object of a resource, written to as requests would, a second later each time."""

    def __init__(self, rt: ResourceType = CONFIG_MAPS, name: str = "a") -> None:
        self.rt = rt
        self.name = name
        self.stored: Object | None = None
        self.writes = 0

    def context(self, manager: str, **given: Any) -> WriteContext:
        self.writes += 1
        now = f"2026-01-01T00:{self.writes // 60:02d}:{self.writes % 60:02d}Z"
        return WriteContext(now=now, uid="u-1", manager=manager, namespace="ns", name=self.name, **given)

    def keep(self, prepared: pipeline.Prepared) -> Object:
        if prepared.outcome is Outcome.STORE:
            obj = copy_object(prepared.object)
            obj["metadata"]["resourceVersion"] = str(self.writes)
            self.stored = obj
        assert self.stored is not None
        return self.stored

    def apply(
        self, config: Any, manager: str = "m1", *, rt: ResourceType | None = None, force: bool = False, **given: Any
    ) -> Object:
        rt = rt or self.rt
        context = self.context(manager, applies=True, force=force, **given)
        body = config if isinstance(config, bytes) else json.dumps(config).encode()
        if self.stored is None:
            new, self.warnings = patches.apply_new(rt, body, context)
            return self.keep(pipeline.prepare_create(rt, new, context))
        new, self.warnings = patches.apply_patch(rt, copy_object(self.stored), APPLY_YAML, body, context)
        return self.keep(pipeline.prepare_update(rt, self.stored, new, context))

    def patch(self, patch: Object, manager: str, **given: Any) -> Object:
        assert self.stored is not None
        context = self.context(manager, **given)
        new, _ = patches.apply_patch(
            self.rt, copy_object(self.stored), MERGE_PATCH, json.dumps(patch).encode(), context
        )
        return self.keep(pipeline.prepare_update(self.rt, self.stored, new, context))

    def create(self, obj: Object, manager: str) -> Object:
        context = self.context(manager)
        decoded, _ = pipeline.decode_object(self.rt, copy_object(obj), context, create=True)
        return self.keep(pipeline.prepare_create(self.rt, decoded, context))

    def owners(self) -> dict[tuple[str, str], Object]:
        assert self.stored is not None
        entries = self.stored["metadata"].get("managedFields", ())
        return {(entry["manager"], entry["operation"]): entry["fieldsV1"] for entry in entries}

    def refused(self, code: int, *args: Any, **given: Any) -> StatusError:
        before = copy_object(self.stored)
        with pytest.raises(StatusError) as caught:
            self.apply(*args, **given)
        assert caught.value.code == code, caught.value.message
        assert self.stored == before
        return caught.value


def fields_of(error: StatusError) -> list[str]:
    return [cause["field"] for cause in error.body()["details"]["causes"]]


def config_map(**data: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}


def workload(kind: str = "Deployment", *containers: Object, **spec: Any) -> Object:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": list(containers)}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "a"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template, **spec},
    }


def containers_of(obj: Object) -> list[Object]:
    found: list[Object] = obj["spec"]["template"]["spec"]["containers"]
    return found


# -- ownership --------------------------------------------------------------------------------------------------------


def test_creates_changes_and_drops() -> None:
    cluster = Cluster()
    assert cluster.apply(config_map(k="v", l="w"))["data"] == {"k": "v", "l": "w"}
    assert cluster.owners() == {("m1", "Apply"): {"f:data": {"f:k": {}, "f:l": {}}}}
    assert cluster.apply(config_map(k="x"))["data"] == {"k": "x"}
    assert cluster.owners() == {("m1", "Apply"): {"f:data": {"f:k": {}}}}


def test_what_nothing_changes_keeps_revision_and_time() -> None:
    cluster = Cluster()
    first = cluster.apply(config_map(k="v"))
    assert cluster.apply(config_map(k="v")) is first


def test_a_change_of_an_own_field_notes_the_time() -> None:
    cluster = Cluster()
    cluster.apply(config_map(k="v"))
    entry = cluster.apply(config_map(k="w"))["metadata"]["managedFields"][0]
    assert entry["time"] == "2026-01-01T00:00:02Z"


def test_who_claims_what_is_there_shares_it_and_has_no_time() -> None:
    cluster = Cluster()
    cluster.apply(config_map(k="v", l="w"))
    shared = cluster.apply(config_map(l="w"), "m2")["metadata"]["managedFields"]
    assert [(entry["manager"], "time" in entry) for entry in shared] == [("m2", False), ("m1", True)]
    assert cluster.apply(config_map(k="v"))["data"] == {"k": "v", "l": "w"}
    assert cluster.owners()["m2", "Apply"] == {"f:data": {"f:l": {}}}


def test_conflicts_name_fields_and_managers() -> None:
    cluster = Cluster()
    cluster.apply(config_map(k="v", l="w"))
    cluster.patch({"data": {"n": "1"}}, "editor")
    one = cluster.refused(409, config_map(k="x"), "m2")
    assert one.message == 'Apply failed with 1 conflict: conflict with "m1": .data.k'
    assert one.body()["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "m1"', "field": ".data.k"}
    ]
    several = cluster.refused(409, config_map(n="2", l="x", k="x"), "m2")
    assert several.message == (
        'Apply failed with 3 conflicts: conflicts with "editor" using v1:\n- .data.n\n'
        'conflicts with "m1":\n- .data.k\n- .data.l'
    )


def test_force_takes_and_the_loser_lets_go() -> None:
    cluster = Cluster()
    cluster.apply(config_map(k="v", l="w"))
    assert cluster.apply(config_map(k="x"), "m2", force=True)["data"] == {"k": "x", "l": "w"}
    assert cluster.owners()["m1", "Apply"] == {"f:data": {"f:l": {}}}
    assert cluster.apply(config_map(l="w"))["data"] == {"k": "x", "l": "w"}
    assert cluster.apply(config_map(l="y"), "m3", force=True)["data"]["l"] == "y"
    assert ("m1", "Apply") not in cluster.owners()


def test_what_was_there_before_the_first_apply_has_an_owner() -> None:
    cluster = Cluster()
    cluster.create(config_map(k="v"), "creator")
    cluster.patch({"metadata": {"managedFields": [{}]}}, "x")
    assert cluster.owners() == {}
    cluster.apply(config_map(l="w"))
    assert cluster.owners() == {
        ("m1", "Apply"): {"f:data": {"f:l": {}}},
        ("before-first-apply", "Update"): {"f:data": {".": {}, "f:k": {}}},
    }
    assert "before-first-apply" in cluster.refused(409, config_map(k="x")).message


def test_an_empty_list_resets_managed_fields() -> None:
    cluster = Cluster()
    cluster.apply(config_map(k="v"))
    assert "managedFields" not in cluster.patch({"metadata": {"managedFields": []}}, "x")["metadata"]


def test_lists_by_key_and_as_a_whole() -> None:
    cluster = Cluster(DEPLOYMENTS)
    first = {"name": "c", "image": "i", "args": ["x"], "ports": [{"containerPort": 80.0}]}
    cluster.apply(workload("Deployment", first))
    assert 'k:{"containerPort":80,"protocol":"TCP"}' in json.dumps(cluster.owners()["m1", "Apply"]).replace("\\", "")
    side = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}}
    side["spec"] = {"template": {"spec": {"containers": [{"name": "side", "image": "s"}]}}}
    both = cluster.apply(side, "m2")
    assert [each["name"] for each in containers_of(both)] == ["c", "side"]
    side["spec"] = {"template": {"spec": {"containers": [{"name": "c", "args": ["y"]}]}}}
    refused = cluster.refused(409, side, "m2")
    assert fields_of(refused) == ['.spec.template.spec.containers[name="c"].args']
    side["spec"] = {"template": {"spec": {"containers": []}}}
    assert [each["name"] for each in containers_of(cluster.apply(side, "m2"))] == ["c"]
    assert ("m2", "Apply") not in cluster.owners()


def test_sets_have_an_owner_per_value() -> None:
    cluster = Cluster()
    base: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    base["metadata"]["finalizers"] = ["x.io/a", "x.io/b"]
    cluster.apply(base)
    base["metadata"]["finalizers"] = ["x.io/c", "x.io/b"]
    assert cluster.apply(base, "m2")["metadata"]["finalizers"] == ["x.io/a", "x.io/c", "x.io/b"]
    base["metadata"]["finalizers"] = ["x.io/a"]
    assert cluster.apply(base)["metadata"]["finalizers"] == ["x.io/a", "x.io/c", "x.io/b"]
    del base["metadata"]["finalizers"]
    assert cluster.apply(base)["metadata"]["finalizers"] == ["x.io/c", "x.io/b"]


def test_managers_of_another_version() -> None:
    cluster = Cluster(V2)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    old = {"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"}}
    old["spec"] = {"scaleTargetRef": target, "maxReplicas": 3, "minReplicas": 2, "targetCPUUtilizationPercentage": 50}
    cluster.apply(old, rt=V1)
    new = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"}}
    new["spec"] = {"scaleTargetRef": target, "maxReplicas": 5}
    refused = cluster.refused(409, new, "m2", rt=V2)
    assert fields_of(refused) == [".spec.maxReplicas"]
    # The manager's entry moves to the new version; fields it no longer applies are removed across versions.
    moved = cluster.apply(new, rt=V2)
    assert moved["spec"]["maxReplicas"] == 5
    assert moved["spec"]["minReplicas"] == 1  # the default again
    assert [entry["apiVersion"] for entry in moved["metadata"]["managedFields"]] == ["autoscaling/v2"]


def test_entries_of_an_unknown_version_go() -> None:
    cluster = Cluster()
    cluster.apply(config_map(k="v"))
    assert cluster.stored is not None
    cluster.stored["metadata"]["managedFields"][0]["apiVersion"] = "v0"
    cluster.apply(config_map(k="x"), "m2")
    assert list(cluster.owners()) == [("m2", "Apply")]


# -- subresources -----------------------------------------------------------------------------------------------------


def test_status_is_owned_through_its_subresource_alone() -> None:
    cluster = Cluster(REPLICA_SETS)
    config = workload("ReplicaSet", {"name": "c", "image": "i"})
    cluster.apply({**config, "status": {"replicas": 3}})
    assert "f:status" not in cluster.owners()["m1", "Apply"]
    condition = {"type": "T", "status": "True"}
    through = {**config, "spec": {"replicas": 9}, "status": {"replicas": 1, "conditions": [condition]}}
    stored = cluster.apply(through, "m2", subresource="status")
    assert (stored["spec"]["replicas"], stored["status"]["replicas"]) == (1, 1)
    assert list(cluster.owners()["m2", "Apply"]) == ["f:status"]


def scale(replicas: int | None) -> Object:
    spec = {} if replicas is None else {"replicas": replicas}
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": spec}


def test_apply_of_a_scale() -> None:
    cluster = Cluster(DEPLOYMENTS)
    cluster.apply(workload("Deployment", {"name": "c", "image": "i"}, replicas=2))
    refused = cluster.refused(409, scale(5), "scaler", subresource="scale")
    assert refused.message == 'Apply failed with 1 conflict: conflict with "m1": .spec.replicas'
    stored = cluster.apply(scale(5), "scaler", subresource="scale", force=True)
    assert stored["spec"]["replicas"] == 5
    assert "f:replicas" not in cluster.owners()["m1", "Apply"]["f:spec"]
    entry = next(each for each in stored["metadata"]["managedFields"] if each["manager"] == "scaler")
    assert (entry["apiVersion"], entry["subresource"]) == ("apps/v1", "scale")
    assert entry["fieldsV1"] == {"f:spec": {"f:replicas": {}}}
    assert "time" not in entry
    again = cluster.apply(scale(5), "scaler", subresource="scale")
    assert again is stored
    assert subresources.scale_of(again)["spec"] == {"replicas": 5}
    message = cluster.refused(409, workload("Deployment", {"name": "c", "image": "i"}, replicas=2)).message
    assert message == 'Apply failed with 1 conflict: conflict with "scaler" with subresource "scale": .spec.replicas'


# -- kubectl ----------------------------------------------------------------------------------------------------------


def test_kubectl_takes_over_from_its_client_side_apply() -> None:
    cluster = Cluster()
    config = config_map(k="v", l="w")
    noted = {**config, "metadata": {"annotations": {}, "name": "a", "namespace": "ns"}}
    created = copy_object(config)
    created["metadata"]["annotations"] = {LAST_APPLIED: json.dumps(noted)}
    cluster.create(created, "kubectl-client-side-apply")
    assert "using v1" in cluster.refused(409, config_map(k="x", l="w"), "other").message
    stored = cluster.apply(config_map(k="<x>", l="w"), "kubectl")
    assert stored["data"] == {"k": "<x>", "l": "w"}
    text = stored["metadata"]["annotations"][LAST_APPLIED]
    assert json.loads(text) == config_map(k="<x>", l="w")
    assert text.endswith("\n")
    assert "\\u003cx\\u003e" in text
    cluster.patch({"data": {"l": "edited"}}, "editor")
    assert "editor" in cluster.refused(409, config_map(k="y", l="w"), "kubectl").message


# -- refusals ---------------------------------------------------------------------------------------------------------


UNCONVERTED = (
    "failed to convert new object (/a; /v1, Kind=ConfigMap) to proper version: "
    "unable to convert unstructured object to /v1, Kind=ConfigMap"
)


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (b"a: b: c", 400, "error encoding patch: yaml: mapping values are not allowed"),
        (b"[1]", 400, "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal arr"),
        (b"", 400, "invalid object type: /, Kind="),
        (b"{apiVersion: v1, kind: Secret}", 400, "invalid object type: /v1, Kind=Secret"),
        (b"{apiVersion: apps/v1, kind: ConfigMap}", 400, "invalid object type: apps/v1, Kind=ConfigMap"),
        (b"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, managedFields: []}}", 400, "managedFields must be"),
        (b"{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}", 400, "the name of the object (b) does not match"),
        (b"{apiVersion: v1, kind: ConfigMap, metadata: {generateName: b}}", 400, "the name of the object (a based on"),
        (b"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, uid: x}}", 409, "Operation cannot be fulfilled on"),
        (
            b"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: [1]}",
            500,
            "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .data: expected map, got &{[1]}",
        ),
        (
            b"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, finalizers: [{}]}, immutable: 3, dta: 1}",
            500,
            "failed to create typed patch object (/a; /v1, Kind=ConfigMap): errors:\n"
            "  .metadata.finalizers: element 0: "
            "associative list without keys has an element that's a map type\n  .immutable: expected boolean, got &{3}\n"
            "  .dta: field not declared in schema",
        ),
        (
            b"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, binaryData: {k: '*'}}",
            500,
            f"{UNCONVERTED}: error decoding from json: ",
        ),
        (
            b"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, creationTimestamp: x}}",
            500,
            f'{UNCONVERTED}: parsing time "x" as',
        ),
        (
            b"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, generation: 1.5}}",
            500,
            f"{UNCONVERTED}: cannot convert float64 to int64",
        ),
    ],
)
def test_what_cannot_be_applied(body: bytes, code: int, message: str) -> None:
    assert message in Cluster().refused(code, body).message


def test_repeated_keys() -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: a, k: b}\n"
    cluster = Cluster()
    text = 'line 4: key "k" already set in map'
    assert text in cluster.refused(400, body, field_validation="Strict").message
    assert cluster.apply(body)["data"] == {"k": "b"}
    assert cluster.warnings == [text]
    cluster.apply(body, field_validation="Ignore")
    assert cluster.warnings == []


def test_resource_version_is_a_precondition_of_what_is_there() -> None:
    cluster = Cluster()
    config = config_map(k="v")
    config["metadata"]["resourceVersion"] = "99"
    cluster.apply(config)
    config["data"] = {"k": "w"}
    assert "the object has been modified" in cluster.refused(409, config).message


# -- properties -------------------------------------------------------------------------------------------------------

names = st.sampled_from(["a", "b", "c", "d"])
values = st.sampled_from(["1", "2"])
ports = st.builds(
    lambda port, protocol: {"port": port, "name": f"p{port}{protocol.lower()}", "protocol": protocol},
    st.sampled_from([1, 2, 3]),
    st.sampled_from(["TCP", "UDP"]),
)


@st.composite
def services(draw: st.DrawFn) -> Object:
    found = {(port["port"], port["protocol"]): port for port in draw(st.lists(ports, min_size=1, max_size=4))}
    meta: Object = {"name": "a"}
    if draw(st.booleans()):
        meta["labels"] = draw(st.dictionaries(names, values, max_size=3))
    if draw(st.booleans()):
        meta["finalizers"] = draw(st.lists(st.sampled_from(["x.io/a", "x.io/b", "x.io/c"]), unique=True))
    spec: Object = {"clusterIP": "None", "ports": list(found.values())}
    if draw(st.booleans()):
        spec["selector"] = draw(st.dictionaries(names, values, max_size=2))
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["m1", "m2", "m3"]), services()), min_size=1, max_size=5))
def test_applying_what_one_owns_changes_nothing(applies: list[tuple[str, Object]]) -> None:
    cluster = Cluster(SERVICES)
    for manager, config in applies:
        stored = cluster.apply(config, manager, force=True)
        for name, value in (config["metadata"].get("labels") or {}).items():
            assert stored["metadata"]["labels"][name] == value
        empty = {
            f".{part}.{name}" for part in ("metadata", "spec") for name, held in config[part].items() if held == {}
        }
        conflicts = conflicts_of(cluster, config, manager)
        # As with kube-apiserver, an empty map that several managers own conflicts once its last key is removed.
        assert conflicts <= empty
        if not conflicts:
            assert cluster.apply(config, manager) is stored
            assert cluster.apply(config, manager, force=True) is stored


def conflicts_of(cluster: Cluster, config: Object, manager: str) -> set[str]:
    """Return the fields in conflict with an apply; it changes nothing if there are any."""
    try:
        cluster.apply(config, manager)
    except StatusError as error:
        return {cause["field"] for cause in error.body()["details"]["causes"]}
    return set()


# kube-apiserver v1.36 answered the same.
def test_an_empty_map_of_several_managers_conflicts() -> None:
    def config(**meta: Any) -> Object:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **meta}}

    cluster = Cluster(resource("", "v1", "configmaps"))
    cluster.apply(config(labels={"a": "1"}), "m2")
    cluster.apply(config(labels={}), "m1", force=True)
    cluster.apply(config(labels={}), "m2", force=True)
    for manager, other in (("m2", "m1"), ("m1", "m2")):
        with pytest.raises(StatusError, match=f'conflict with "{other}": .metadata.labels'):
            cluster.apply(config(labels={}), manager)
    cluster.apply(config(), "m1")
    stored = cluster.apply(config(), "m2")
    assert "managedFields" not in stored["metadata"]


@settings(max_examples=60, deadline=None)
@given(services(), services())
def test_one_manager_alone_has_exactly_what_it_applied_last(first: Object, second: Object) -> None:
    one, other = Cluster(SERVICES), Cluster(SERVICES)
    one.apply(first)
    changed = one.apply(second)
    fresh = other.apply(second)
    # Not the whole spec: a Service without a selector is given other address families when it is made.
    for name in ("ports", "selector"):
        assert changed["spec"].get(name) == fresh["spec"].get(name)
    for name in ("labels", "finalizers"):
        assert changed["metadata"].get(name) == fresh["metadata"].get(name)
    assert one.owners() == other.owners()


@pytest.mark.parametrize("value", [["50%"], {"a": 1}, True, 1.5, "x"])
def test_an_int_or_string_takes_any_value_before_the_merge(value: Any) -> None:
    kind = types.object_type("io.k8s.api.policy.v1.PodDisruptionBudget")
    config = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {"minAvailable": value}}
    assert typed_values.validate(config, kind) == []
    assert typed_readers.read(config, kind) == typed_values.field_set(config, kind)
