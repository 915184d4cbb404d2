"""Mutations of MutatingAdmissionPolicies: apply configurations and JSON patches."""

from __future__ import annotations

from time import thread_time
from typing import Any

import pytest

from kubechronicle.api.admission.mutating_policies import Mutator, mutated, require_convertible
from kubechronicle.api.admission.policy_programs import EvaluationStage, ExpressionFailed
from kubechronicle.api.cel.errors import CostExceeded
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.pipeline.scale import scale_type
from kubechronicle.api.registry.registry import known_registry
from kubechronicle.api.values.allowance import ALLOWANCE, InThread

PODS = known_registry().builtin("", "v1", "pods")
MAPS = known_registry().builtin("", "v1", "configmaps")


def config_map(**data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}


def pod() -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def after(kind: str, expression: str, obj: dict[str, Any], rt: Any = MAPS) -> dict[str, Any]:
    member = "jsonPatch" if kind == "JSONPatch" else "applyConfiguration"
    policy = {"spec": {"mutations": [{"patchType": kind, member: {"expression": expression}}]}}
    (mutation,) = Mutator(policy).mutations
    return mutated(mutation, obj, EvaluationStage({"object": obj}, {}), rt)


def applied(expression: str, obj: dict[str, Any], rt: Any = MAPS) -> dict[str, Any]:
    return after("ApplyConfiguration", expression, obj, rt)


def patched(expression: str, obj: dict[str, Any], rt: Any = MAPS) -> dict[str, Any]:
    return after("JSONPatch", expression, obj, rt)


def test_a_configuration_is_merged_as_server_side_apply_merges() -> None:
    before = pod()
    containers = (
        "Object.spec.containers{name: 'c', env: [Object.spec.containers.env{name: 'A', value: '1'}]}, "
        "Object.spec.containers{name: 'side', image: 's'}"
    )
    made = applied(f"Object{{spec: Object.spec{{containers: [{containers}]}}}}", before, PODS)
    first, second = made["spec"]["containers"]
    assert (first["name"], first["image"], first["env"]) == ("c", "i", [{"name": "A", "value": "1"}])
    assert (second["name"], second["imagePullPolicy"]) == ("side", "Always")  # defaulted
    assert before == pod()


def test_no_configuration_fits_a_kind_that_the_document_of_its_group_lacks() -> None:
    deployments = known_registry().builtin("apps", "v1", "deployments")
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 1}}
    with pytest.raises(ExpressionFailed, match=r"no corresponding type for autoscaling/v1, Kind=Scale$"):
        applied("Object{spec: Object.spec{replicas: 5}}", scale, scale_type(deployments))
    patch = '[JSONPatch{op: "replace", path: "/spec/replicas", value: 7}]'
    assert patched(patch, scale, scale_type(deployments))["spec"] == {"replicas": 7}


def test_a_configuration_must_not_replace_atomic_parts() -> None:
    expression = "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'c', command: ['x']}]}}"
    with pytest.raises(ExpressionFailed) as refused:
        applied(expression, pod(), PODS)
    atomics = "may not mutate atomic arrays, maps or structs: .spec.containers[0].command"
    assert str(refused.value) == f"error applying patch: invalid ApplyConfiguration: {atomics}"


def test_a_configuration_must_fit_the_schema() -> None:
    with pytest.raises(ExpressionFailed) as refused:
        applied("Object{data: Object.data{k: 3}}", config_map())
    why = ".data.k: expected string, got &value.valueUnstructured{Value:3}"
    assert str(refused.value) == f"error applying patch: failed to convert patch object to typed object: {why}"


def test_objects_are_named_after_their_place() -> None:
    with pytest.raises(ExpressionFailed) as refused:
        applied("Object{metadata: Object.spec{}}", config_map())
    assert str(refused.value) == (
        'type mismatch: unexpected type name "Object.spec", expected "Object.metadata", which matches field name path '
        "from root Object type"
    )


def test_a_json_patch_has_the_values_of_the_expression() -> None:
    operations = (
        "JSONPatch{op: 'add', path: '/data/y', value: object.data.x + '2'}, "
        "JSONPatch{op: 'add', path: '/metadata/labels', value: {'a/b': 'c'}}, "
        "JSONPatch{op: 'remove', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b')}"
    )
    made = patched(f"[{operations}]", config_map(x="1"))
    assert made["data"] == {"x": "1", "y": "12"}


def test_a_failing_test_leaves_the_object_as_it_is() -> None:
    operations = "JSONPatch{op: 'remove', path: '/data'}, JSONPatch{op: 'test', path: '/metadata/name', value: 'b'}"
    before = config_map(x="1")
    assert patched(f"[{operations}]", before) is before
    assert before == config_map(x="1")


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        (
            "op: 'remove', path: '/data/none'",
            "error in remove for path: '/data/none': Unable to remove nonexistent key: none: missing value",
        ),
        (
            "op: 'replace', path: '/data/none/deeper', value: '9'",
            "replace operation does not apply: doc is missing path: /data/none/deeper: missing value",
        ),
    ],
)
def test_a_patch_that_cannot_be_applied_says_why(operation: str, why: str) -> None:
    with pytest.raises(ExpressionFailed) as refused:
        patched(f"[JSONPatch{{{operation}}}]", config_map())
    assert str(refused.value) == f"JSON Patch: {why}"


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        ("path: '/nope', value: 'x'", 'strict decoding error: unknown field "nope"'),
        (
            "path: '/data', value: ['x']",
            "json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string",
        ),
        (
            "path: '/kind', value: 'Secret'",
            "failed to convert object: converting (v1.Secret) to (core.ConfigMap): unknown conversion",
        ),
        ("path: '/kind', value: 'Endpoints'", 'strict decoding error: unknown field "data"'),
        (
            "path: '/apiVersion', value: 'v2'",
            'no kind "ConfigMap" is registered for version "v2" in scheme "pkg/runtime/scheme.go:111"',
        ),
    ],
)
def test_a_patched_object_that_cannot_be_decoded_is_an_internal_error(operation: str, why: str) -> None:
    with pytest.raises(StatusError) as refused:
        patched(f"[JSONPatch{{op: 'add', {operation}}}]", config_map())
    assert (refused.value.code, refused.value.message) == (500, f"Internal error occurred: {why}")


def test_great_integers_are_texts_in_a_patch() -> None:
    expression = "[JSONPatch{op: 'add', path: '/data/x', value: string(9007199254740993)}]"
    assert patched(expression, config_map())["data"] == {"x": "9007199254740993"}
    with pytest.raises(StatusError, match="cannot unmarshal number"):
        patched("[JSONPatch{op: 'add', path: '/data/x', value: 7}]", config_map())
    assert patched("[JSONPatch{op: 'add', path: '/data/x', value: 9007199254740993}]", config_map())["data"] == {
        "x": "9007199254740993"
    }


SHARED = "[object.data]" + "".join(f".map(a{level}, [a{level}, a{level}])" for level in range(24)) + "[0]"


@pytest.mark.parametrize(
    ("kind", "expression"),
    [
        ("JSONPatch", f'[JSONPatch{{op: "add", path: "/data/k", value: {SHARED}}}]'),
        ("ApplyConfiguration", f"Object{{data: Object.data{{k: dyn({SHARED})}}}}"),
    ],
)
def test_a_value_that_holds_others_many_times_is_made_in_an_allowance(kind: str, expression: str) -> None:
    """A list that holds another one twice, in 24 levels, has 16 million parts."""
    allowance = InThread(thread_time, 0.05, CostExceeded)
    token, began = ALLOWANCE.set(allowance), thread_time()
    try:
        with allowance, pytest.raises(ExpressionFailed, match="actual cost limit exceeded"):
            after(kind, expression, config_map())
    finally:
        ALLOWANCE.reset(token)
    assert thread_time() - began < 0.2


def test_a_patch_may_remove_the_kind() -> None:
    made = patched(
        "[JSONPatch{op: 'remove', path: '/kind'}, JSONPatch{op: 'remove', path: '/apiVersion'}]", config_map(x="1")
    )
    assert (made["apiVersion"], made["kind"]) == ("v1", "ConfigMap")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("b'ab'", "expected string, got &value.valueUnstructured{Value:[]uint8{0x61, 0x62}}"),
        ("null", "expected string, got &value.valueUnstructured{Value:0}"),
        ("duration('90m')", "expected string, got &value.valueUnstructured{Value:5400000000000}"),
        (
            "timestamp('2020-02-01T03:04:05Z')",
            "expected string, got &value.valueUnstructured{Value:"
            "time.Date(2020, time.February, 1, 3, 4, 5, 0, time.UTC)}",
        ),
        ("2u", "expected string, got &value.valueUnstructured{Value:0x2}"),
    ],
)
def test_a_configuration_has_no_place_for_some_values(value: str, why: str) -> None:
    with pytest.raises(ExpressionFailed) as refused:
        applied(f"Object{{data: {{'k': {value}}}}}", config_map())
    assert str(refused.value).endswith(f".data.k: {why}")


@pytest.mark.parametrize(
    ("configuration", "why"),
    [
        ("Object{data: null}", ".data: expected map, got &{NULL_VALUE}"),
        ("Object{immutable: null}", ".immutable: expected boolean, got &{NULL_VALUE}"),
        (
            "Object{metadata: Object.metadata{finalizers: null}}",
            ".metadata.finalizers: expected list, got &{NULL_VALUE}",
        ),
        ("Object{data: {1: 'x'}}", "invalid return type: *dynamic.ObjectVal"),
    ],
)
def test_a_null_is_no_value_of_a_configuration(configuration: str, why: str) -> None:
    with pytest.raises(ExpressionFailed) as refused:
        applied(configuration, config_map())
    assert str(refused.value).endswith(why)


def test_a_number_of_a_configuration_must_be_signed() -> None:
    deployments = known_registry().builtin("apps", "v1", "deployments")
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {}}
    with pytest.raises(ExpressionFailed, match=r"\.spec\.replicas: expected numeric \(int or float\), got uint64$"):
        applied("Object{spec: Object.spec{replicas: 5u}}", deployment, deployments)


def test_an_object_is_not_converted_between_two_versions() -> None:
    first, second = (
        known_registry().builtin("autoscaling", version, "horizontalpodautoscalers") for version in ("v1", "v2")
    )
    require_convertible(second, second, "")
    with pytest.raises(
        ExpressionFailed, match=r"^converting \(v2\.Horizontal.*\) to \(v1\.Horizontal.*\): unknown conversion$"
    ):
        require_convertible(first, second, "")
    core, named = (known_registry().builtin(group, "v1", "events") for group in ("", "events.k8s.io"))
    with pytest.raises(ExpressionFailed, match='is not suitable for converting to "v1"'):
        require_convertible(core, named, "")
