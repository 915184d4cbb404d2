"""Properties of objects of every built-in kind: defaulting is idempotent, and no representation loses a field.

Kinds and fields come from the schema (drawn_objects.py). KUBECHRONICLE_TEST_EXAMPLES draws more than a usual run does.
"""

from __future__ import annotations

import contextlib
import json

import pytest
from drawn_objects import Object, example_settings, objects
from hypothesis import assume, given
from hypothesis import strategies as st

from kubechronicle.api.codecs import errors, protobuf, yaml
from kubechronicle.api.codecs import json as json_codec
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.encoding import copy_object, encode_stored
from kubechronicle.api.pipeline import bodies, conversion
from kubechronicle.api.registry.registry import ResourceType, builtin_registry
from kubechronicle.api.schema import check, empties, types

KINDS = [rt for rt in builtin_registry() if rt.definition]
SEVERAL = [
    (rt, other)
    for rt in KINDS
    for other in builtin_registry().served_as(rt.resource)
    if other is not rt and rt.stored and other.kind == rt.kind
]


def kind_of(rt: ResourceType) -> types.ObjectType:
    return types.object_type(rt.definition)


def decoded(rt: ResourceType, obj: Object, *, default: bool = False) -> Object:
    """Return a client's object as Kubernetes stores it."""
    found: Object = {"apiVersion": rt.api_version, "kind": rt.kind, **copy_object(obj)}
    assert check.check(found, kind_of(rt)) == []
    if default:
        conversion.apply(found, kind_of(rt))
    empties.make_null(found, kind_of(rt))
    return found


def without_nested_types(obj: Object) -> Object:
    """Messages have no place for the apiVersion and kind of claim templates, which are objects within an object."""
    found: Object = copy_object(obj)
    for template in (found.get("spec") or {}).get("volumeClaimTemplates") or ():
        template.pop("apiVersion", None)
        template.pop("kind", None)
    return found


@pytest.mark.parametrize("rt", KINDS, ids=repr)
@given(data=st.data())
@example_settings(8)
def test_decoding_and_defaulting_once_is_enough(rt: ResourceType, data: st.DataObject) -> None:
    once = decoded(rt, data.draw(objects(kind_of(rt))))
    assert decoded(rt, once) == once
    defaulted = copy_object(once)
    conversion.apply(defaulted, kind_of(rt))
    again = copy_object(defaulted)
    conversion.apply(again, kind_of(rt))
    assert again == defaulted
    assert decoded(rt, defaulted) == defaulted, "defaults are in the form in which objects are written"


@pytest.mark.parametrize("rt", KINDS, ids=repr)
@given(data=st.data())
@example_settings(8)
def test_every_representation_gives_the_object_back(rt: ResourceType, data: st.DataObject) -> None:
    obj = decoded(rt, data.draw(objects(kind_of(rt))), default=data.draw(st.booleans()))
    assert json_codec.decode(json_codec.encode(obj), strict=True) == (obj, [])
    assert json_codec.decode(json_codec.encode(obj, pretty=True), strict=True) == (obj, [])
    assert yaml.decode(yaml.encode(obj), strict=True) == (obj, [])
    stored = {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "resourceVersion"}}
    assert json.loads(encode_stored(obj)) == stored
    if protobuf.supports(rt.api_version, rt.kind):
        assert decoded(rt, protobuf.decode(protobuf.encode(obj))) == without_nested_types(obj)


@pytest.mark.parametrize("rt", [rt for rt in KINDS if protobuf.supports(rt.api_version, rt.kind)], ids=repr)
@given(data=st.data())
@example_settings(6)
def test_what_protobuf_gives_is_in_its_final_form(rt: ResourceType, data: st.DataObject) -> None:
    found = protobuf.decode(protobuf.encode(decoded(rt, data.draw(objects(kind_of(rt))))))
    assert decoded(rt, found) == found
    assert protobuf.decode(protobuf.encode(found)) == found


@pytest.mark.parametrize(("rt", "other"), SEVERAL, ids=repr)
@given(data=st.data())
@example_settings(40)
def test_there_and_back_is_the_same_object(rt: ResourceType, other: ResourceType, data: st.DataObject) -> None:
    """From the stored form to another and back; the other way round once the object has been through the stored one."""
    drawn = data.draw(objects(kind_of(rt)))
    if rt.kind == "HorizontalPodAutoscaler":
        make_metrics_consistent(drawn, data)
    obj = decoded(rt, drawn, default=True)
    # Old versions of autoscalers write current values that are optional in v2.
    if not rt.is_storage_version or rt.kind == "HorizontalPodAutoscaler":
        obj = conversion.convert(conversion.convert(obj, other.api_version), rt.api_version)
    before = copy_object(obj)
    there = conversion.convert(obj, other.api_version)
    assert obj == before, "what is converted stays as it is"
    assert decoded(other, there) == there
    assert conversion.convert(there, rt.api_version) == obj


SOURCES = ("object", "pods", "resource", "containerResource", "external")
TARGETS = {"Value": "value", "AverageValue": "averageValue", "Utilization": "averageUtilization"}


def make_metrics_consistent(obj: Object, data: st.DataObject) -> None:
    """Metrics have the one source their type names, and of it the one target, as validation demands."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    for metrics, part in ((spec.get("metrics") or (), "target"), (status.get("currentMetrics") or (), "current")):
        for metric in metrics:
            source = data.draw(st.sampled_from(SOURCES))
            found = metric.get(source) or {}
            metric.clear()
            metric.update({"type": source[0].upper() + source[1:], source: found})
            if source in ("resource", "containerResource"):
                word = data.draw(st.sampled_from(["AverageValue", "Utilization"]))
            else:
                word = "AverageValue" if source == "pods" else data.draw(st.sampled_from(["AverageValue", "Value"]))
            found[part] = {TARGETS[word]: 50 if word == "Utilization" else "1500m"}
            if part == "target":
                found[part]["type"] = word


@given(rt=st.sampled_from(KINDS), data=st.data())
@example_settings(250)
def test_mangled_bytes_are_read_or_refused(rt: ResourceType, data: st.DataObject) -> None:
    obj = decoded(rt, data.draw(objects(kind_of(rt))))
    codecs = [(json_codec.encode, json_codec.decode), (yaml.encode, yaml.decode)]
    if protobuf.supports(rt.api_version, rt.kind):
        codecs.append((protobuf.encode, lambda raw: (protobuf.decode(raw), [])))
    for encode, decode in codecs:
        raw = bytearray(encode(obj))
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(0, len(raw) - 1))
            end = min(len(raw), at + data.draw(st.integers(0, 4)))
            raw[at:end] = data.draw(st.binary(max_size=3))
            assume(raw)
        try:
            found, _ = decode(bytes(raw))
        except errors.CodecError:
            continue
        assert isinstance(found, dict)
        # Each decoded object is either rejected with a Status, or brought into its form.
        with contextlib.suppress(StatusError):
            bodies.decode(rt, found)
