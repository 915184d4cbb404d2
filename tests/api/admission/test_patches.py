"""A patched object is as if it were checked and copied whole, though only what a patch touches is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubechronicle.api.admission import patches
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.patch import json_patch
from kubechronicle.api.pipeline import bodies
from kubechronicle.api.registry.registry import known_registry

MAPS = known_registry().builtin("", "v1", "configmaps")
DEPLOYMENTS = known_registry().builtin("apps", "v1", "deployments")
MANAGED = [{"manager": "m", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}}}]


def config_map() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "labels": {"x": "1"}, "managedFields": copy_object(MANAGED)},
        "data": {"a": "1", "b": "2"},
        "immutable": True,
    }


def deployment() -> dict[str, Any]:
    container = {"name": "c", "image": "i", "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "1"}}}
    labels = {"app": "a"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a", "managedFields": copy_object(MANAGED)},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
        "status": {},
    }


def operation(op: str, path: str, *value: Any) -> dict[str, Any]:
    return {"op": op, "path": path, **({"value": value[0]} if value else {})}


MAP_PATCHES = [
    [operation("add", "/metadata/labels", {"a": "b"})],
    [operation("add", "/metadata/labels", {})],
    [operation("add", "/metadata/labels", None)],
    [operation("add", "/metadata/labels/y", "2"), operation("add", "/data/c", "3")],
    [operation("add", "/metadata/labels/y", 2)],
    [operation("replace", "/metadata/creationTimestamp", "2026-01-01T00:00:00.5Z")],
    [operation("remove", "/metadata/labels")],
    [operation("remove", "/metadata/managedFields")],
    [operation("replace", "/metadata/managedFields/0/manager", "n")],
    [operation("remove", "/metadata")],
    [operation("replace", "/metadata", {"name": "b", "finalizers": []})],
    [operation("replace", "/metadata", 1)],
    [operation("replace", "/metadata/name", ["a"])],
    [operation("remove", "/data/a"), operation("remove", "/data/b")],
    [operation("replace", "/data", None)],
    [operation("add", "/data/d", None)],
    [operation("add", "/unknown", 1), operation("add", "/metadata/unknown", 1)],
    [operation("replace", "/immutable", False)],
    [operation("replace", "/immutable", "no")],
    [operation("replace", "/kind", "Secret")],
    [operation("replace", "/apiVersion", None)],
    [operation("replace", "", {"metadata": {"name": "b"}})],
    [operation("add", "/metadata/annotations", {}), operation("add", "/metadata/annotations/a~1b", "c")],
    [{"op": "copy", "from": "/data/a", "path": "/data/e"}],
    [{"op": "move", "from": "/data/a", "path": "/metadata/labels/a"}],
    [operation("test", "/data/a", "1"), operation("replace", "/data/a", "9")],
    [operation("test", "/data/a", "2")],
    [operation("add", "/nowhere/x", 1)],
    [operation("add", "no-slash", 1)],
    [None],
]
DEPLOYMENT_PATCHES = [
    [operation("replace", "/spec/replicas", 3)],
    [operation("replace", "/spec/replicas", "3")],
    [operation("remove", "/spec/replicas")],
    [operation("add", "/spec/template/spec/containers/-", {"name": "d", "image": "j", "ports": []})],
    [operation("add", "/spec/template/spec/containers/0/resources/limits/memory", 1048576)],
    [operation("add", "/spec/template/spec/containers/0/env", [{"name": "E", "value": ""}])],
    [operation("add", "/spec/template/spec/containers/0/ports/0/containerPort", "80")],
    [operation("add", "/spec/strategy", {"type": "RollingUpdate"})],
    [operation("add", "/spec/template/metadata", None)],
    [operation("remove", "/spec")],
    [operation("add", "/spec/template/spec/tolerations", None), operation("add", "/metadata/labels", {"a": "b"})],
]


def whole(rt: Any, obj: dict[str, Any], found: list[Any]) -> Any:
    """Return a patched object, checked as a whole; or the failure."""
    try:
        return patches.decoded(rt, patches.json.as_object(json_patch.apply(copy_object(obj), found)))
    except json_patch.PatchFailed as error:
        return str(error)
    except StatusError as error:
        return error.message


@pytest.mark.parametrize(
    ("rt", "make", "found"),
    [(MAPS, config_map, found) for found in MAP_PATCHES]
    + [(DEPLOYMENTS, deployment, found) for found in DEPLOYMENT_PATCHES],
)
def test_a_patch_has_the_effect_of_a_check_of_the_whole_object(rt: Any, make: Any, found: list[Any]) -> None:
    obj = bodies.decode(rt, make())[0]
    before = copy_object(obj)
    expected = whole(rt, obj, copy_object(found))
    try:
        after: Any = patches.patched(rt, obj, copy_object(found), size=100)
    except StatusError as error:
        after = error.message.removeprefix("Internal error occurred: ")
        expected = expected.removeprefix("Internal error occurred: ")
    assert after == expected
    if isinstance(after, dict):
        assert list(after) == list(expected)
        assert list(after["metadata"]) == list(expected["metadata"])
    assert obj == before


def test_a_patch_that_is_sent_again_is_as_it_was() -> None:
    sent = b'[{"op":"add","path":"/metadata/ownerReferences","value":[{"kind":"A","controller":null}]}]'
    found = patches.operations(sent)
    patches.patched(MAPS, bodies.decode(MAPS, config_map())[0], found)["metadata"]["ownerReferences"].append({})
    assert patches.operations(sent) == json.loads(sent)


def test_managed_fields_alone_are_shared() -> None:
    obj = bodies.decode(MAPS, config_map())[0]
    after = patches.patched(MAPS, obj, [operation("add", "/metadata/labels/y", "2")])
    assert after["metadata"]["managedFields"] is obj["metadata"]["managedFields"]
    assert after["data"] is not obj["data"]
    assert obj["metadata"]["labels"] == {"x": "1"}
