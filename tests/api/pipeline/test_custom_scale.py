"""The Scale of custom objects, with the texts and managers that kube-apiserver v1.36 showed."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from custom.objects import GROUP, SCHEMA, context, create, definition, patch, stored, widget, widgets

from kubechronicle.api.custom.served import resource_types
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.pipeline import patching, pipeline, scale
from kubechronicle.api.pipeline.pipeline import Outcome, Prepared
from kubechronicle.api.registry.registry import ResourceType

RT = widgets()
OLD = stored(create(RT, widget({"replicas": 1})))


def fresh(obj: dict[str, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = orjson.loads(orjson.dumps(obj))
    copied["metadata"].setdefault("resourceVersion", "6")
    return copied


def wanted(replicas: int | None = None, **more: Any) -> dict[str, Any]:
    spec = {} if replicas is None else {"replicas": replicas}
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": spec, **more}


def put(old: dict[str, Any], body: dict[str, Any], manager: str = "p", rt: ResourceType = RT) -> Prepared:
    decoded, _ = scale.decode_scale(rt, body, name="a", namespace="n", validation="Warn", duplicates=(), raw=b"")
    new = scale.put_scale(rt, fresh(old), decoded, manager=manager, now="2026-01-01T00:00:00Z", dry_run=False)
    return pipeline.prepare_update(rt, fresh(old), new, context(manager, name="a", subresource="scale"))


def patched(old: dict[str, Any], body: Any, media_type: str = patching.MERGE_PATCH, **more: Any) -> Prepared:
    return patch(RT, fresh(old), body, "p", media_type, subresource="scale", **more)


def owners(obj: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return (manager, operation, subresource) of the entries with replicas."""
    return [
        (entry["manager"], entry["operation"], entry.get("subresource", ""))
        for entry in obj["metadata"].get("managedFields", ())
        if "f:replicas" in entry["fieldsV1"].get("f:spec", {})
    ]


def test_the_scale_has_the_values_at_the_paths_of_the_definition() -> None:
    obj = fresh(OLD) | {"status": {"replicas": 2, "selector": "a=b"}}
    shown = scale.stored_scale(RT, obj)
    assert (shown["spec"], shown["status"]) == ({"replicas": 1}, {"replicas": 2, "selector": "a=b"})
    assert (shown["apiVersion"], shown["kind"], shown["metadata"]["name"]) == ("autoscaling/v1", "Scale", "a")


def test_a_get_without_replicas_is_a_500() -> None:
    bare = stored(create(RT, widget()))
    with pytest.raises(StatusError) as error:
        scale.stored_scale(RT, fresh(bare), required=True)
    assert error.value.message == ('Internal error occurred: the spec replicas field ".spec.replicas" does not exist')
    assert scale.stored_scale(RT, fresh(bare))["spec"] == {}


def test_a_put_takes_the_replicas_over() -> None:
    done = put(OLD, wanted(3)).object
    assert done["spec"]["replicas"] == 3
    assert done["metadata"]["generation"] == 2
    assert owners(done) == [("p", "Update", "scale")]
    assert owners(put(done, wanted(4), "q").object) == [("q", "Update", "scale")]


def test_a_put_without_replicas_sets_zero_and_defaults_the_rest() -> None:
    done = put(stored(create(RT, widget())), wanted()).object
    assert done["spec"] == {"replicas": 0, "size": 3}
    assert owners(done) == []


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (wanted(-(2**31)), 400, 'the spec replicas field ".spec.replicas" cannot be empty'),
        (
            wanted(-1),
            422,
            f'Widget.{GROUP} "a" is invalid: .spec.replicas: Invalid value: -1: should be a non-negative integer',
        ),
        (
            wanted(1) | {"kind": "Widget"},
            400,
            'no kind is registered for the type v1.Scale in scheme "pkg/runtime/scheme.go:111"',
        ),
    ],
)
def test_rejected_scales(body: dict[str, Any], code: int, message: str) -> None:
    with pytest.raises(StatusError) as error:
        put(OLD, body)
    assert (error.value.code, error.value.message) == (code, message)


def test_another_uid_names_the_key_of_the_store() -> None:
    with pytest.raises(StatusError) as error:
        put(OLD, wanted(3, metadata={"name": "a", "uid": "x"}))
    assert error.value.code == 409
    assert f"Key: /registry/{GROUP}/widgets/n/a," in error.value.message


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        ({"spec": {"replicas": 5}}, patching.MERGE_PATCH),
        ([{"op": "replace", "path": "/spec/replicas", "value": 5}], patching.JSON_PATCH),
    ],
)
def test_patches_take_the_replicas_over(body: Any, media_type: str) -> None:
    done = patched(OLD, body, media_type).object
    assert done["spec"]["replicas"] == 5
    assert owners(done) == [("p", "Update", "scale")]


def test_a_patch_that_leaves_the_replicas_unset_is_refused() -> None:
    with pytest.raises(StatusError) as error:
        patched(stored(create(RT, widget())), {"foo": 1})
    assert error.value.message == 'the spec replicas field ".spec.replicas" cannot be empty'
    assert error.value.warnings == ['unknown field "foo"']


def test_an_apply_succeeds_only_if_it_changes_nothing() -> None:
    apply = patching.APPLY_YAML
    with pytest.raises(StatusError) as error:
        patched(OLD, wanted(2), apply, force=False)
    assert (
        error.value.message == 'Apply failed with 1 conflict: conflict with "one" using autoscaling/v1: .spec.replicas'
    )
    with pytest.raises(StatusError) as error:
        patched(OLD, wanted(2, metadata={"name": "a", "namespace": "n"}), apply, force=True)
    problem = "to proper version: request to convert CR to an invalid group/version: autoscaling/v1"
    assert (error.value.code, error.value.message) == (
        500,
        f"failed to convert new object (n/a; autoscaling/v1, Kind=Scale) {problem}",
    )
    with pytest.raises(StatusError) as error:
        patched(stored(create(RT, widget())), wanted(2), apply)
    assert error.value.message == (
        "failed to create manager for existing fields: failed to convert live object (/; autoscaling/v1, Kind=Scale) "
        + problem
    )
    held = put(OLD, wanted(3)).object
    same = patched(held, wanted(3), apply)
    assert same.outcome is Outcome.STORE
    assert owners(same.object) == [("p", "Apply", "scale"), ("p", "Update", "scale")]


def test_entries_of_versions_without_a_scale_stay() -> None:
    served, older = resource_types(definition(older=SCHEMA))
    old = stored(create(older, widget({"replicas": 1}) | {"apiVersion": f"{GROUP}/v1beta1"}))
    done = put(old, wanted(2), rt=served).object
    assert ("one", "Update", "") in owners(done)


def test_an_unreadable_body_is_not_described() -> None:
    error = StatusError(400, "BadRequest", "the object provided is unrecognized (must be of type Scale): …")
    assert scale.unreadable(RT, error).message.startswith("no kind is registered for the type v1.Scale")
    other = StatusError(413, "RequestEntityTooLarge", "limit is 3145728")
    assert scale.unreadable(RT, other) is other
