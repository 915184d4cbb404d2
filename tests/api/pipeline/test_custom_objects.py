"""Writes of custom objects, with the texts and effects that kube-apiserver v1.36 showed."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from custom.objects import GROUP, SCHEMA, apply, context, create, decoded, definition, patch, stored, widget, widgets

from kubechronicle.api.custom.served import resource_types
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.pipeline import deleting, patches, patching, pipeline
from kubechronicle.api.pipeline.pipeline import Outcome

RT = widgets()


def rejection_causes(error: pytest.ExceptionInfo[StatusError]) -> list[tuple[str, str]]:
    return [(cause["field"], cause["reason"]) for cause in error.value.body()["details"]["causes"]]


def managers(obj: dict[str, Any]) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in obj["metadata"].get("managedFields", ())}


# -- decoding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "the object provided is unrecognized (must be of type Widget): Object 'Kind' is missing in '{}' ({})"),
        (
            {"kind": "Widget"},
            "the API version in the data () does not match the expected API version (g.example.com/v1)",
        ),
        (
            {"apiVersion": "v1", "kind": "ConfigMap"},
            "the API version in the data (v1) does not match the expected API version (g.example.com/v1)",
        ),
        (
            {"apiVersion": "a/b/c", "kind": "Widget"},
            "the object provided is unrecognized (must be of type Widget): unexpected GroupVersion string: a/b/c "
            '({"apiVersion":"a/b/c","kind":" ...)',
        ),
        (
            widget(metadata=3),
            'Widget in version "v1" cannot be handled as a Widget: json: cannot unmarshal number into Go value of type '
            "v1.ObjectMeta",
        ),
        (
            widget(metadata={"labels": {"a": 1}}),
            'Widget in version "v1" cannot be handled as a Widget: json: cannot unmarshal number into Go struct field '
            "ObjectMeta.labels of type string",
        ),
    ],
)
def test_bodies_that_cannot_be_decoded(body: dict[str, Any], message: str) -> None:
    with pytest.raises(StatusError) as error:
        decoded(RT, body)
    assert (error.value.code, error.value.message) == (400, message)


def test_unknown_fields_by_field_validation() -> None:
    body = widget({"bogus": 1}, metadata={"name": "a", "foo": 1}, top=2)
    obj, warnings = decoded(RT, body)
    assert warnings == ['unknown field "metadata.foo"', 'unknown field "spec.bogus"', 'unknown field "top"']
    assert obj["spec"] == {"size": 3}
    assert "top" not in obj
    assert decoded(RT, body, field_validation="Ignore")[1] == []
    with pytest.raises(StatusError) as error:
        decoded(RT, body, field_validation="Strict")
    assert error.value.message == (
        'Widget in version "v1" cannot be handled as a Widget: strict decoding error: unknown field "metadata.foo", '
        'unknown field "spec.bogus", unknown field "top"'
    )


def test_nulls_are_dropped_unless_the_schema_allows_them() -> None:
    spec = decoded(RT, widget({"nul": None, "name": None, "size": None, "any": None, "labels": {"a": None}}))[0]["spec"]
    assert spec == {"nul": None, "size": 3, "labels": {}}


def test_a_missing_metadata_is_reported_by_validation() -> None:
    obj = widget({})
    del obj["metadata"]
    with pytest.raises(StatusError) as error:
        create(RT, obj)
    assert error.value.code == 422
    assert "name or generateName is required" in error.value.message


# -- creation ---------------------------------------------------------------------------------------------------------


def test_a_creation_with_status_subresource_has_no_status() -> None:
    obj = create(RT, widget({"replicas": 1}, status={"phase": "A"})).object
    assert "status" not in obj
    assert obj["metadata"]["generation"] == 1
    assert managers(obj) == {"one": {"f:spec": {".": {}, "f:replicas": {}, "f:size": {}}}}
    plain = create(widgets(subresources={}), widget({}, status={"phase": "A"})).object
    assert plain["status"] == {"phase": "A"}


def test_numbers_are_stored_as_go_writes_them() -> None:
    obj = create(RT, widget({"any": [1.0, 1e2, 12345678901234567890, 1e30, 0.5]})).object
    assert orjson.dumps(obj["spec"]["any"]) == b"[1,100,12345678901234567000,1e+30,0.5]"


def test_another_kind_is_a_422_of_that_kind() -> None:
    with pytest.raises(StatusError) as error:
        create(RT, widget({}) | {"kind": "Other"})
    assert error.value.message == f'Other.{GROUP} "a" is invalid: kind: Invalid value: "Other": must be Widget'


def test_rules_are_evaluated_unless_a_value_blocks_them() -> None:
    with pytest.raises(StatusError) as error:
        create(RT, widget({"rule": 7}))
    assert rejection_causes(error) == [("spec.rule", "FieldValueInvalid")]
    with pytest.raises(StatusError) as error:
        create(RT, widget({"rule": 7, "name": "toolong"}))
    assert rejection_causes(error) == [("spec.name", "FieldValueTooLong"), ("<nil>", "FieldValueInvalid")]
    assert "some validation rules were not checked because the object was invalid" in error.value.message


def test_finalizers_are_warned_of() -> None:
    meta = {"name": "a", "finalizers": ["foo", "a.b", "x/y"]}
    shared = "to avoid accidental conflicts with other finalizer writers"
    assert create(RT, widget({}, metadata=meta)).warnings == [
        f'metadata.finalizers: "a.b": prefer a domain-qualified finalizer name including a path (/) {shared}',
        f'metadata.finalizers: "foo": prefer a domain-qualified finalizer name {shared}',
    ]


# -- updates ----------------------------------------------------------------------------------------------------------

OLD = stored(create(RT, widget({"replicas": 1, "any": {"z": 1}})))


def test_an_update_needs_a_resource_version() -> None:
    new, _ = decoded(RT, widget({}))
    with pytest.raises(StatusError) as error:
        pipeline.prepare_update(RT, OLD, new, context("two", name="a"))
    assert (error.value.code, rejection_causes(error)) == (422, [("metadata.resourceVersion", "FieldValueInvalid")])
    assert error.value.message.startswith(f'widgets.{GROUP} "a" is invalid')


def test_the_generation_counts_all_changes_but_metadata() -> None:
    assert patch(RT, OLD, {"spec": {"size": 4}}).object["metadata"]["generation"] == 2
    labelled = patch(RT, OLD, {"metadata": {"labels": {"a": "b"}}})
    assert labelled.object["metadata"]["generation"] == 1
    assert patch(RT, OLD, {"status": {"phase": "A"}}).outcome is Outcome.UNCHANGED
    plain = widgets(subresources={})
    old = stored(create(plain, widget({})))
    assert patch(plain, old, {"status": {"phase": "A"}}).object["metadata"]["generation"] == 2


def test_a_float_for_an_integer_is_a_change_but_has_no_new_owner() -> None:
    changed = patch(RT, OLD, {"spec": {"any": {"z": 1.0}}})
    assert changed.outcome is Outcome.STORE
    assert changed.object["metadata"]["generation"] == 2
    assert changed.object["spec"]["any"] == {"z": 1}
    assert list(managers(changed.object)) == ["one"]


def test_an_update_of_the_status_changes_nothing_else() -> None:
    body = {"status": {"phase": "B"}, "spec": {"size": 99}, "metadata": {"labels": {"z": "z"}, "uid": "other"}}
    done = patch(RT, OLD, body, "three", subresource="status").object
    assert done["status"] == {"phase": "B"}
    assert done["spec"] == OLD["spec"]
    assert "labels" not in done["metadata"]
    assert done["metadata"]["generation"] == 1
    assert managers(done)["three"] == {"f:status": {".": {}, "f:phase": {}}}
    with pytest.raises(StatusError) as error:
        patch(RT, OLD, {"status": {"phase": "Z"}}, subresource="status")
    assert 'status.phase: Unsupported value: "Z": supported values: "A", "B"' in error.value.message


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"replicas": -1}, ".status.replicas: Invalid value: -1: should be a non-negative integer"),
        (
            {"selector": 4},
            '.status.selector: Invalid value: "": .status.selector accessor error: 4 is of the type int64, expected '
            "string",
        ),
    ],
)
def test_values_at_the_paths_of_the_scale_are_checked(status: dict[str, Any], expected: str) -> None:
    with pytest.raises(StatusError) as error:
        patch(RT, OLD, {"status": status}, subresource="status")
    assert expected in error.value.message


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ({"kind": "Other"}, 422, f'Other.{GROUP} "a" is invalid: kind: Invalid value: "Other": must be Widget'),
        (
            {"apiVersion": "v1"},
            422,
            f'Widget "a" is invalid: apiVersion: Invalid value: "v1": must be {GROUP}/v1',
        ),
        (
            {"apiVersion": None},
            500,
            "Internal error occurred: Object 'apiVersion' is missing in 'object has no apiVersion field'",
        ),
        ({"metadata": None}, 400, "the name of the object (a based on URL) was undeterminable: name must be provided"),
    ],
)
def test_patches_of_the_type(body: dict[str, Any], code: int, message: str) -> None:
    with pytest.raises(StatusError) as error:
        patch(RT, OLD, body)
    assert (error.value.code, error.value.message) == (code, message)


def test_a_patched_object_that_cannot_be_decoded_is_shown_with_sorted_keys() -> None:
    with pytest.raises(StatusError) as error:
        patch(RT, OLD, {"kind": None})
    assert error.value.code == 422
    assert 'Object \'Kind\' is missing in \'{"apiVersion":"g.example.com/v1","metadata":{"crea' in error.value.message


def test_strategic_merge_is_not_supported() -> None:
    with pytest.raises(StatusError) as error:
        patch(RT, OLD, {}, media_type=patching.STRATEGIC_MERGE_PATCH)
    assert error.value.code == 415


def test_objects_outside_their_schema_keep_their_owners() -> None:
    broken = orjson.loads(orjson.dumps(OLD))
    broken["spec"]["replicas"] = "many"
    plain = widgets(subresources={})
    done = patch(plain, broken, {"spec": {"size": 4}})
    assert done.object["spec"]["size"] == 4
    assert done.object["metadata"]["generation"] == 2
    assert done.object["metadata"]["managedFields"] == OLD["metadata"]["managedFields"]


def test_defaults_and_pruning_show_in_the_next_write() -> None:
    bare = orjson.loads(orjson.dumps(OLD))
    bare["spec"] = {"gone": 1}
    seen = pipeline.to_request_version(RT, orjson.loads(orjson.dumps(bare)))
    assert seen["spec"] == {"size": 3}
    done = patch(RT, bare, {"metadata": {"labels": {"a": "b"}}}).object
    assert done["spec"] == {"size": 3}
    assert done["metadata"]["generation"] == 1


def test_the_last_finalizer_ends_a_deletion() -> None:
    old = stored(create(RT, widget({}, metadata={"name": "a", "finalizers": ["x/y"]})))
    marked = deleting.prepare_delete(RT, old, DeleteOptions(), context("one", name="a"))
    assert marked.outcome is Outcome.STORE
    assert marked.object["metadata"]["generation"] == 2
    assert patch(RT, stored(marked), {"metadata": {"finalizers": None}}).outcome is Outcome.GONE
    gone = deleting.prepare_delete(RT, OLD, DeleteOptions(), context("one", name="a"))
    assert deleting.delete_answer(RT, gone, "a")["status"] == "Success"


# -- server-side apply ------------------------------------------------------------------------------------------------


def test_an_apply_creates() -> None:
    ctx = context("six", name="a", applies=True, patches=True)
    body = orjson.dumps(widget({"name": "x", "raw": {"lost": 1}, "labels": {}}, status={"phase": "A"}))
    obj, _ = patches.apply_new(RT, body, ctx)
    done = pipeline.prepare_create(RT, obj, ctx).object
    assert done["spec"] == {"name": "x", "raw": {}, "labels": {}, "size": 3}
    assert "status" not in done
    assert managers(done) == {"six": {"f:spec": {"f:name": {}, "f:raw": {"f:lost": {}}, "f:labels": {}}}}


def test_an_apply_of_metadata_alone_creates_without_owners() -> None:
    ctx = context("six", name="a", applies=True, patches=True)
    obj, _ = patches.apply_new(RT, orjson.dumps(widget()), ctx)
    assert "managedFields" not in pipeline.prepare_create(RT, obj, ctx).object["metadata"]


def test_an_apply_conflicts_and_takes() -> None:
    with pytest.raises(StatusError) as error:
        apply(RT, OLD, widget({"replicas": 2}), "five")
    assert error.value.message == (
        f'Apply failed with 1 conflict: conflict with "one" using {GROUP}/v1: .spec.replicas'
    )
    done = apply(RT, OLD, widget({"replicas": 2}), "five", force=True).object
    assert managers(done)["five"] == {"f:spec": {"f:replicas": {}}}
    assert done["metadata"]["generation"] == 2
    again = apply(RT, stored_again(done), widget({"replicas": 2}), "five")
    assert again.outcome is Outcome.UNCHANGED


def stored_again(obj: dict[str, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = orjson.loads(orjson.dumps(obj))
    copied["metadata"]["resourceVersion"] = "6"
    return copied


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"bogus": 1}, ".spec.bogus: field not declared in schema"),
        ({"tags": ["a", "a"]}, '.spec.tags: duplicate entries for key [="a"]'),
    ],
)
def test_an_apply_outside_the_schema_is_a_500(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(StatusError) as error:
        apply(RT, OLD, {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "spec": spec}, "five")
    message = f"failed to create typed patch object (/; {GROUP}/v1, Kind=Widget): {problem}"
    assert (error.value.code, error.value.message) == (500, message)


def test_an_apply_to_an_object_outside_its_schema_is_a_500() -> None:
    broken = orjson.loads(orjson.dumps(OLD))
    broken["spec"]["replicas"] = "many"
    with pytest.raises(StatusError) as error:
        apply(RT, broken, widget({"name": "x"}), "five")
    assert error.value.message == (
        f"failed to create typed live object (n/a; {GROUP}/v1, Kind=Widget): .spec.replicas: expected numeric (int or "
        "float), got string"
    )


# -- versions ---------------------------------------------------------------------------------------------------------


def test_versions_differ_in_apiversion_schema_and_subresources() -> None:
    _, older = resource_types(definition(older=SCHEMA))
    seen = pipeline.to_request_version(older, orjson.loads(orjson.dumps(OLD)))
    assert seen["apiVersion"] == f"{GROUP}/v1beta1"
    done = patch(older, OLD, {"spec": {"name": "b"}, "status": {"phase": "A"}}, "seven")
    assert done.object["apiVersion"] == f"{GROUP}/v1"
    assert done.object["status"] == {"phase": "A"}
    assert done.object["metadata"]["generation"] == 2
    entry = done.object["metadata"]["managedFields"][-1]
    assert (entry["manager"], entry["apiVersion"]) == ("seven", f"{GROUP}/v1beta1")


def test_the_stored_version_prunes_what_it_lacks() -> None:
    wider = orjson.loads(orjson.dumps(SCHEMA))
    wider["properties"]["spec"]["properties"]["extra"] = {"type": "string"}
    _, older = resource_types(definition(older=wider))
    done = patch(older, OLD, {"spec": {"extra": "x", "name": "b"}}, "seven").object
    assert done["spec"]["name"] == "b"
    assert "extra" not in done["spec"]


def test_owners_in_a_version_that_lacks_a_field() -> None:
    wider = orjson.loads(orjson.dumps(SCHEMA))
    wider["properties"]["spec"]["properties"]["extra"] = {"type": "string"}
    _, older = resource_types(definition(older=wider))
    done = patch(older, OLD, {"spec": {"extra": "x"}}, "seven").object
    assert done["metadata"]["managedFields"] == OLD["metadata"]["managedFields"]
    config = widget({"name": "b"})
    config["apiVersion"] = f"{GROUP}/v1beta1"
    held = stored_again(apply(older, OLD, config, "ap").object)
    config["spec"] = {"extra": "x"}
    with pytest.raises(StatusError) as error:
        apply(older, held, config, "ap")
    assert error.value.message == (
        "failed to prune fields: failed add back owned items: failed to convert merged object at version "
        f"{GROUP}/v1: .spec.extra: field not declared in schema"
    )
