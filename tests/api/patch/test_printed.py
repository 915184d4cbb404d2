"""The text of a patched object in errors: which objects have sorted keys, and which keep their order."""

from __future__ import annotations

import orjson
import pytest

from kubechronicle.api.codecs.json_order import in_go_order
from kubechronicle.api.patch import json_patch, printed

HELD = orjson.dumps({
    "metadata": {"uid": "u", "name": "a", "labels": {"b": "<1>", "a": "2"}},
    "kind": "Pod",
    "apiVersion": "v1",
    "spec": {"dnsPolicy": "d", "containers": [{"image": "i", "name": "c", "resources": {}}]},
})  # fmt: skip
START = '{"apiVersion":"v1","kind":"Pod","metadata":'
METADATA = '{"name":"a","uid":"u","labels":{"a":"2","b":"\\u003c1\\u003e"}}'
SORTED_METADATA = '{"labels":{"a":"2","b":"\\u003c1\\u003e"},"name":"a","uid":1e3}'
SPEC = '{"containers":[{"name":"c","image":"i","resources":{}}],"dnsPolicy":"d"}'


@pytest.mark.parametrize(
    ("patch", "metadata", "rest"),
    [
        (b"{}", METADATA, f',"spec":{SPEC}}}'),
        (b'{"spec":5}', METADATA, ',"spec":5}'),
        (b'{"metadata":{"uid":1e3}}', SORTED_METADATA, f',"spec":{SPEC}}}'),
        (
            b'{"x":{"b":1,"a":[{"d":null,"c":2,"b":1.0}]}}',
            METADATA,
            f',"spec":{SPEC},"x":{{"a":[{{"b":1.0,"c":2}}],"b":1}}}}',
        ),
        (b'{"spec":[{"b":1,"a":null}]}', METADATA, ',"spec":[{"b":1,"a":null}]}'),
    ],
)
def test_after_a_merge_patch(patch: bytes, metadata: str, rest: str) -> None:
    assert printed.after_merge_patch(HELD, patch) == START + metadata + rest


@pytest.mark.parametrize(
    ("patch", "text"),
    [
        (b"[]", f'{START}{METADATA},"spec":{SPEC}}}'),
        (
            b'[{"op":"add","path":"/spec/containers/0/image","value":{"b":1,"a":1e2}}]',
            START + METADATA + ',"spec":{"containers":[{"image":{"b":1,"a":1e2},"name":"c","resources":{}}],'
            '"dnsPolicy":"d"}}',
        ),
        (
            b'[{"op":"test","path":"/spec/containers","value":[{"image":"i","name":"c","resources":{}}]},'
            b'{"op":"copy","from":"/spec","path":"/status"}]',
            START + METADATA + ',"spec":' + SPEC.replace('"name":"c","image":"i"', '"image":"i","name":"c"')
            + ',"status":' + SPEC.replace('"name":"c","image":"i"', '"image":"i","name":"c"') + "}",
        ),
        (b'[{"op":"replace","path":"","value":{"b":{"d":1,"c":2},"a":1}}]', '{"a":1,"b":{"d":1,"c":2}}'),
    ],
)  # fmt: skip
def test_after_a_json_patch(patch: bytes, text: str) -> None:
    assert printed.after_json_patch(HELD, patch) == text


def test_fields_of_inlined_structs_and_reordered_ones() -> None:
    pod = {"kind": "Pod", "apiVersion": "v1", "spec": {"ephemeralContainers": [{
        "targetContainerName": "t", "image": "i", "resizePolicy": [], "resources": {}, "name": "n",
    }]}}  # fmt: skip
    container = in_go_order(pod)["spec"]["ephemeralContainers"][0]
    assert list(container) == ["name", "image", "resources", "resizePolicy", "targetContainerName"]


def test_an_unknown_kind_keeps_its_order() -> None:
    obj = {"kind": "Nope", "b": 1, "a": 2}
    assert in_go_order(obj) is obj


def test_the_paths_of_managed_fields_are_sorted() -> None:
    entry = {"fieldsV1": {"f:type": {}, "f:data": {"f:b": {}, ".": {}}}, "manager": "m"}
    ordered = in_go_order({"kind": "Secret", "apiVersion": "v1", "metadata": {"managedFields": [entry]}})
    text = orjson.dumps(ordered["metadata"]["managedFields"]).decode()
    assert text == '[{"manager":"m","fieldsV1":{"f:data":{".":{},"f:b":{}},"f:type":{}}}]'


def test_a_client_s_text_stays_as_it_was() -> None:
    patch = b'[{"op":"add","path":"/spec","value":{"a\\ud800":"\\u0041\\/<\\"\\\\","b":1,"b":[{"c":2,"c":3}]}}]'
    spec = '{"a\\ud800":"\\u0041\\/\\u003c\\"\\\\","b":1,"b":[{"c":2,"c":3}]}'
    assert printed.after_json_patch(HELD, patch) == START + METADATA + f',"spec":{spec}}}'
    inside = (
        b'[{"op":"add","path":"/spec","value":{"a\\ud800":"\\u0041","b":1,"b":2}},{"op":"remove","path":"/spec/x"}]'
    )
    with pytest.raises(json_patch.PatchFailed):
        printed.after_json_patch(HELD, inside)
    inside = inside.replace(b'"remove"', b'"add"')
    assert printed.after_json_patch(HELD, inside).endswith('"spec":{"a\ufffd":"\\u0041","b":2,"x":null}}')


@pytest.mark.parametrize(
    ("value", "found"),
    [(b'"\\u003c1\\u003e"', True), (b'"<1>"', False), (b'"\\u003C1\\u003e"', False), (b'"\\u003c1>"', False)],
)
def test_a_test_compares_texts(value: bytes, found: bool) -> None:
    patch = b'[{"op":"test","path":"/metadata/labels/b","value":%b}]' % value
    assert printed.depends_on_text(patch)
    if found:
        assert printed.after_json_patch(HELD, patch)
    else:
        with pytest.raises(json_patch.PatchFailed):
            printed.after_json_patch(HELD, patch)


def test_a_copy_has_escaped_texts() -> None:
    patch = b'[{"op":"add","path":"/x","value":"<"},{"op":"copy","from":"/x","path":"/y"},'
    assert printed.after_json_patch(HELD, patch + b'{"op":"test","path":"/y","value":"\\u003c"}]')
    assert printed.after_json_patch(HELD, patch + b'{"op":"test","path":"/x","value":"<"}]')
    with pytest.raises(json_patch.PatchFailed):
        printed.after_json_patch(HELD, patch + b'{"op":"test","path":"/y","value":"<"}]')
