"""Bodies that a JSON parser reads as libyaml does, as far as the reader of a configuration has to look itself."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from kubechronicle.api.codecs import yaml
from kubechronicle.api.codecs.yaml import MAX_PLAIN_DEPTH, MAX_PLAIN_KEY
from kubechronicle.api.custom.version import object_type
from kubechronicle.api.patch import typed_readers

KIND = object_type({
    "type": "object",
    "properties": {
        "number": {"type": "number"},
        "numbers": {"type": "array", "items": {"type": "number"}},
        "any": {"x-kubernetes-preserve-unknown-fields": True},
        "either": {"x-kubernetes-int-or-string": True},
        "texts": {"type": "object", "additionalProperties": {"type": "string"}},
        "quantities": {"type": "object", "additionalProperties": {"type": "number"}},
    },
})  # fmt: skip


def nested(levels: int) -> Any:
    value: Any = "a"
    for _ in range(levels):
        value = {"a": value}
    return value


PLAIN = [
    {"number": 1.5},
    {"number": 2**53 - 1, "numbers": [1, 2.25, None]},
    {"any": {"a": [1, 1.5, {"b": None}]}, "either": "1"},
    {"texts": {"k" * MAX_PLAIN_KEY: "v"}},
    {"any": nested(MAX_PLAIN_DEPTH - 1)},
    {"number": 1e300},
]
READ_OTHERWISE = [
    {"number": 1.0},
    {"numbers": [1, 2.0]},
    {"any": 3.0},
    {"any": {"a": [1.0]}},
    {"either": 1.0},
    {"quantities": {"a": 4.0}},
    {"texts": {"k" * (MAX_PLAIN_KEY + 1): "v"}},
    {"any": {"k" * (MAX_PLAIN_KEY + 1): "v"}},
    {"any": nested(MAX_PLAIN_DEPTH + 1)},
]


@pytest.mark.parametrize("config", PLAIN)
def test_plain_configurations_are_read_at_once(config: Any) -> None:
    body = orjson.dumps(config)
    value = yaml.decode_nearly_plain(body)
    assert value == config == yaml.decode_plain(body)
    assert yaml.is_plain(value, 0)
    assert typed_readers.read(value, KIND) is not None


@pytest.mark.parametrize("config", READ_OTHERWISE)
def test_other_values_are_left_to_a_second_look(config: Any) -> None:
    value = yaml.decode_nearly_plain(orjson.dumps(config))
    assert value is not None
    assert not yaml.is_plain(value, 0)
    assert typed_readers.read(value, KIND) is None


@pytest.mark.parametrize("body", [b"a: b", b"[]", b'{"a": 1, "a": 2}', b'{"number": 9007199254740993}', b'{"a":'])
def test_bodies_of_other_forms_have_no_value(body: bytes) -> None:
    assert yaml.decode_nearly_plain(body) is None
