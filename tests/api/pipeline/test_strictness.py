"""Complaints of strict decoding: their order, and their effect on values."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubechronicle.api.codecs import errors, json, protobuf, yaml
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.pipeline import bodies, body_types, patching
from kubechronicle.api.registry.registry import known_registry

CONFIG_MAPS = known_registry().builtin("", "v1", "configmaps")
TWICE = b"""{"zeta":1,"metadata":{"name":"c1","zz":1,"name":"c1","aa":2,"labels":{"b":"1","b":"2"}},
"data":{"k":"1","k":"2","k":"3"},"alpha":{"x":1,"x":2},"data":{"q":"1"},"zeta":2}"""


def decoded(body: bytes, validation: str = "Warn", codec: Any = json) -> tuple[dict[str, Any], list[str]]:
    value, duplicates = codec.decode(body, strict=True)
    return bodies.decode(CONFIG_MAPS, value, duplicates=duplicates, validation=validation)


def test_json_lists_unknown_and_repeated_fields_in_the_order_of_the_document() -> None:
    obj, warnings = decoded(TWICE)
    assert warnings == [
        'unknown field "zeta"',
        'unknown field "metadata.zz"',
        'duplicate field "metadata.name"',
        'unknown field "metadata.aa"',
        'duplicate field "metadata.labels.b"',
        'duplicate field "data.k"',
        'unknown field "alpha"',
        'duplicate field "data"',
    ]
    assert obj["data"] == {"k": "3", "q": "1"}  # Go decodes the second map into the first
    with pytest.raises(StatusError, match='error: unknown field "zeta", unknown field'):
        decoded(TWICE, "Strict")


def test_yaml_lists_unknown_fields_by_name_behind_the_repeated_ones() -> None:
    body = b"zeta: 1\nmetadata: {name: a, name: b, zz: 1, aa: 2}\ndata: {k: a, k: b}\nalpha: 1\n"
    _, warnings = decoded(body, codec=yaml)
    assert warnings == [
        'line 2: key "name" already set in map',
        'line 3: key "k" already set in map',
        'unknown field "alpha"',
        'unknown field "metadata.aa"',
        'unknown field "metadata.zz"',
        'unknown field "zeta"',
    ]
    with pytest.raises(StatusError) as caught:
        decoded(body, "Strict", yaml)
    assert 'yaml: unmarshal errors:\n  line 2: key "name" already set in map\n  line 3: key' in caught.value.message


def test_no_more_than_a_hundred_complaints() -> None:
    body = b'{"metadata":{"name":"a"},' + b",".join(b'"f%d":1' % n for n in range(1000)) + b"}"
    assert len(decoded(body)[1]) == 100


def test_a_repeated_key_without_a_type_of_its_own() -> None:
    body = b'{"metadata":{"name":"a","managedFields":[{"fieldsV1":{"f:a":{},"f:a":{}}}]}}'
    assert decoded(body)[1] == []


def patched(content_type: str, body: bytes, validation: str = "Warn") -> list[str]:
    old = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}
    return patching.apply(CONFIG_MAPS, old, content_type, body, validation=validation)[1]


def test_a_json_patch_complains_in_its_own_order() -> None:
    body = b'[{"op":"add","zz":1,"op":"add","path":"/data/z","value":"1","aa":1},'
    body += b'{"value":{"a":1,"a":2},"op":"add","path":"/zig"},{"op":"add","path":"/metadata/zag","value":1}]'
    assert patched(patching.JSON_PATCH, body) == [
        'json patch unknown field "[0].zz"',
        'json patch duplicate field "[0].op"',
        'json patch unknown field "[0].aa"',
        'json patch duplicate field "[1].value.a"',
        'unknown field "metadata.zag"',
        'unknown field "zig"',
    ]


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        (b'{"data":{"k":1}}', "cannot convert int64 to string"),
        (b'{"data":{"k":true}}', "unrecognized type: string"),
        (b'{"data":["a"]}', "cannot restore map from slice"),
        (b'{"immutable":"a"}', "unrecognized type: bool"),
        (b'{"metadata":5}', "cannot restore struct from: int64"),
        (b'{"metadata":{"generation":1.5}}', "cannot convert float64 to int64"),
        (b'{"binaryData":{"a":1}}', "cannot restore slice from int64"),
        (b'{"metadata":{"creationTimestamp":1}}', "json: cannot unmarshal number into Go value of type string"),
        (b'{"kind":5}', "cannot convert int64 to string"),
    ],
)
def test_wrong_types_in_strategic_patches(patch: bytes, problem: str) -> None:
    with pytest.raises(StatusError) as caught:
        patched(patching.STRATEGIC_MERGE_PATCH, patch)
    assert (caught.value.code, caught.value.message.endswith(problem)) == (422, True)


@pytest.mark.parametrize(
    "patch",
    [
        b'{"metadata":{"generation":2.0}}',
        b'{"metadata":{"generation":100000000000000000000}}',
        b'{"metadata":{"generation":9223372036854775808}}',
        b'{"kind":"Secret","apiVersion":"v7"}',
        b"null",
    ],
)
def test_what_strategic_patches_do_not_mind(patch: bytes) -> None:
    assert patched(patching.STRATEGIC_MERGE_PATCH, patch) == []


def test_a_null_merge_patch() -> None:
    with pytest.raises(StatusError, match="Invalid JSON Patch"):
        patched(patching.MERGE_PATCH, b"null")


def test_a_patch_that_removes_the_version_loses_all_fields() -> None:
    old = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}
    obj, warnings = patching.apply(CONFIG_MAPS, old, patching.MERGE_PATCH, b'{"apiVersion":null}', validation="Warn")
    assert obj == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}
    assert warnings == ['unknown field "data"', 'unknown field "metadata"']


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'{"metadata":{"name":{},"name":"a"}}', "object into Go struct field ObjectMeta.metadata.name of type string"),
        (b'{"metadata":{"name":[1],"name":{},"name":"a"}}', "array into Go struct field ObjectMeta.metadata.name"),
        (b'{"data":[],"data":{"a":"b"}}', "array into Go struct field ConfigMap.data of type map"),
        (b'{"data":{"a":1,"a":"b"}}', "number into Go struct field ConfigMap.data of type string"),
        (b'{"data":{"a":1},"data":{"b":"c"}}', "number into Go struct field ConfigMap.data of type string"),
        (
            b'{"metadata":{"ownerReferences":[{"uid":1,"uid":"a"}]}}',
            "number into Go struct field OwnerReference.metadata.ownerReferences.uid of type",
        ),
    ],
)
def test_a_replaced_value_must_have_the_right_type(body: bytes, problem: str) -> None:
    with pytest.raises(StatusError) as caught:
        decoded(body)
    assert f"cannot be handled as a ConfigMap: json: cannot unmarshal {problem}" in caught.value.message


def test_a_null_or_unknown_value_may_be_replaced() -> None:
    obj, _ = decoded(b'{"metadata":{"name":null,"name":"a","x":{},"x":1}}')
    assert obj["metadata"] == {"name": "a"}


@pytest.mark.parametrize("field", ["apiVersion", "kind"])
def test_a_replaced_version_or_kind_must_be_a_text(field: str) -> None:
    with pytest.raises(errors.DecodeError, match=f"cannot unmarshal object into Go struct field .{field} of type"):
        json.decode(b'{"%(f)b":{},"%(f)b":"a"}' % {b"f": field.encode()}, strict=True)


def test_an_error_of_a_type_that_decodes_itself_comes_first() -> None:
    with pytest.raises(StatusError, match='ConfigMap: parsing time "x" as'):
        decoded(b'{"data":{"a":1},"metadata":{"deletionTimestamp":"x"}}')
    with pytest.raises(StatusError, match=r'parsing time "\\xc3\\xbc\\x0a" as'):
        decoded(b'{"metadata":{"deletionTimestamp":"\\u00fc\\n"}}')


@pytest.mark.parametrize("field", ["apiVersion", "kind"])
@pytest.mark.parametrize("value", [{}, [], 0, False])
def test_an_empty_value_is_no_version_or_kind(field: str, value: Any) -> None:
    with pytest.raises(StatusError, match=f"Go struct field .{field} of type string"):
        body_types.set_type(CONFIG_MAPS, {field: value})


def test_a_replaced_member_of_an_operation_must_be_a_text() -> None:
    patch = b'[{"op":[],"op":"test","path":"/a","value":1}]'
    with pytest.raises(StatusError, match=r"cannot unmarshal array into Go struct field jsonPatchOp\.op of type"):
        patching.apply(CONFIG_MAPS, {"a": 1}, patching.JSON_PATCH, patch, validation="Warn")


def test_a_version_of_three_parts() -> None:
    with pytest.raises(errors.DecodeError, match="unexpected GroupVersion string: a/b/c"):
        json.decode(b'{"apiVersion":"a/b/c"}')


@pytest.mark.parametrize(
    ("api_version", "kind", "why"),
    [
        ("apiextensions.k8s.io/v1beta1", "CustomResourceDefinition", "does not match the expected API version"),
        ("apiextensions.k8s.io/v2", "CustomResourceDefinition", "no kind .* is registered for version"),
        ("v1", "Pod", 'no kind "Pod" is registered for version "v1"'),
    ],
)
def test_definitions_have_a_scheme_of_their_own(api_version: str, kind: str, why: str) -> None:
    definitions = known_registry().builtin("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    with pytest.raises(StatusError, match=why):
        body_types.set_type(definitions, {"apiVersion": api_version, "kind": kind})


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        (b'{"kind":"pod"}', 'no kind "pod" is registered for version "v1" in scheme'),
        (b'{"kind":"Secret"}', "converting (v1.Secret) to (core.ConfigMap): unknown conversion"),
        (b'{"apiVersion":"a/b/c"}', "unexpected GroupVersion string: a/b/c"),
        (b'{"kind":[]}', "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go struct"),
    ],
)
def test_a_patch_to_another_type(patch: bytes, why: str) -> None:
    held = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    with pytest.raises(StatusError) as caught:
        patching.apply(CONFIG_MAPS, held, patching.MERGE_PATCH, patch, validation="Warn")
    assert f'}}}}": {why}' in caught.value.message or f'}}": {why}' in caught.value.message


def test_directives_that_were_carried_out_are_not_shown() -> None:
    held = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    patch = b'{"data":{"$patch":"replace","a":1}}'
    with pytest.raises(StatusError) as caught:
        patching.apply(
            CONFIG_MAPS, {**held, "data": {"b": "c"}}, patching.STRATEGIC_MERGE_PATCH, patch, validation="Warn"
        )
    assert '"map[data:map[a:1]]"' in caught.value.message


@pytest.mark.parametrize("number", ["1e3", "100000000000000000000", "1.50", "-0.0"])
def test_numbers_in_errors_are_shown_as_written(number: str) -> None:
    with pytest.raises(StatusError, match=f"cannot unmarshal number {number} into Go struct field ObjectMeta.metadata"):
        decoded(b'{"metadata":{"generation":%s}}' % number.encode())
    with pytest.raises(StatusError, match=f": json: cannot unmarshal number {number} into Go struct field"):
        patched(patching.MERGE_PATCH, b'{"metadata":{"generation":%s}}' % number.encode())


def test_the_first_wrong_type_of_a_patched_object_is_that_of_its_text() -> None:
    patch = b'[{"op":"add","path":"/metadata","value":1},{"op":"add","path":"/data","value":1}]'
    with pytest.raises(StatusError, match=r"number into Go struct field ConfigMap\.data of type"):
        patched(patching.JSON_PATCH, patch)


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        (
            b'{"apiVersion":null,"kind":"Secret"}',
            r"converting \(core\.Secret\) to \(core\.ConfigMap\): unknown conversion",
        ),
        (b'{"apiVersion":"","kind":"X"}', 'no kind "X" is registered for the internal version of group "" in scheme'),
        (b'{"apiVersion":null,"kind":[]}', r"cannot unmarshal array into Go struct field \.kind of type string"),
        (b'{"apiVersion":"X","kind":null}', '": no kind "ConfigMap" is registered for version "X" in scheme'),
    ],
)
def test_a_patch_to_another_kind_without_a_version(patch: bytes, why: str) -> None:
    with pytest.raises(StatusError, match=why):
        patched(patching.MERGE_PATCH, patch)


@pytest.mark.parametrize(
    ("content_type", "patch", "names"),
    [
        (
            patching.JSON_PATCH,
            b'[{"op":"add","path":"/data2","value":1},{"op":"add","path":"/a","value":1}]',
            ["a", "data2"],
        ),
        (
            patching.MERGE_PATCH,
            b'{"metadata":{"ownerReferences":[{"zz":1,"aa":2}]}}',
            ["metadata.ownerReferences[0].aa", "metadata.ownerReferences[0].zz"],
        ),
        (
            patching.JSON_PATCH,
            b'[{"op":"add","path":"/metadata/ownerReferences","value":[{"zz":1,"aa":2}]}]',
            ["metadata.ownerReferences[0].zz", "metadata.ownerReferences[0].aa"],
        ),
    ],
)
def test_unknown_fields_of_a_patched_object_are_listed_in_the_order_of_its_text(
    content_type: str, patch: bytes, names: list[str]
) -> None:
    assert patched(content_type, patch) == [f'unknown field "{name}"' for name in names]


def test_repeated_keys_stay_in_the_object_after_a_json_patch() -> None:
    body = b'[{"op":"add","path":"/data","value":{"k":"1","k":"2"}},{"op":"add","path":"/x","value":1}]'
    assert patched(patching.JSON_PATCH, body) == [
        'json patch duplicate field "[0].value.k"',
        'duplicate field "data.k"',
        'unknown field "x"',
    ]
    inside = b'[{"op":"add","path":"/data","value":{"k":"1","k":"2"}},{"op":"add","path":"/data/l","value":"1"}]'
    assert patched(patching.JSON_PATCH, inside) == ['json patch duplicate field "[0].value.k"']
    for validation in ("Ignore", "Warn", "Strict"):
        with pytest.raises(StatusError, match=r"into Go struct field ConfigMap\.data of type string"):
            patched(patching.JSON_PATCH, body.replace(b'"1"', b"1"), validation)


SERVICES = known_registry().builtin("", "v1", "services")
QUOTAS = known_registry().builtin("", "v1", "resourcequotas")
DAEMON_SETS = known_registry().builtin("apps", "v1", "daemonsets")


@pytest.mark.parametrize(("port", "read"), [(b"-0.0", 0), (b"80.0", 80), (b"8e1", 80)])
def test_a_strategic_patch_reads_whole_floats_of_a_port(port: bytes, read: int) -> None:
    held = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "a"},
        "spec": {},
        "status": {"loadBalancer": {}},
    }
    body = b'{"spec":{"ports":[{"port":30,"targetPort":%b}]}}' % port
    obj, _ = patching.apply(SERVICES, held, patching.STRATEGIC_MERGE_PATCH, body, validation="Warn")
    assert obj["spec"]["ports"][0]["targetPort"] == (read or 30)  # no target is the port itself


def test_a_strategic_patch_with_a_template_generation_that_is_no_number() -> None:
    body = b'{"metadata":{"annotations":{"deprecated.daemonset.template.generation":"x"}}}'
    held: dict[str, Any] = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "a"}}
    held["spec"] = {"template": {"metadata": {}, "spec": {"containers": []}}}
    text = r'strconv\.ParseInt: parsing "x": invalid syntax'
    for content_type, start in ((patching.STRATEGIC_MERGE_PATCH, r"\A"), (patching.MERGE_PATCH, "patch: Invalid")):
        with pytest.raises(StatusError, match=f"{start}.*{text}") as caught:
            patching.apply(DAEMON_SETS, copy.deepcopy(held), content_type, body, validation="Warn")
        assert caught.value.code == (500 if start == r"\A" else 422)


def test_blanks_around_quantities_are_an_error_in_protobuf_only() -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "a"}, "spec": {"hard": {"pods": "1 "}}}
    assert bodies.decode(QUOTAS, copy.deepcopy(quota))[0]["spec"]["hard"] == {"pods": "1"}
    for odd in ("1 ", " 1", "1\n" * 50):
        quota["spec"] = {"hard": {"pods": odd}}
        with pytest.raises(StatusError, match="cannot be handled as a ResourceQuota: quantities must match"):
            bodies.decode(QUOTAS, protobuf.decode(protobuf.encode(quota)))


def test_a_strategic_patch_with_bytes_that_are_none() -> None:
    secrets = known_registry().builtin("", "v1", "secrets")
    held = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "type": "Opaque"}
    with pytest.raises(StatusError, match="unrecognized type: uint8"):
        patching.apply(secrets, held, patching.STRATEGIC_MERGE_PATCH, b'{"data":{"a":["MQ=="]}}', validation="Warn")
