"""Defaults of explicit zero values."""

from __future__ import annotations

from typing import Any

import pytest
from rejections import rejection_reasons

from kubechronicle.api.codecs.wire import table
from kubechronicle.api.pipeline import defaulting
from kubechronicle.api.schema import types

PLAIN = ("string", "boolean", "int32", "int64", "bytes")
TARGET = {"apiGroup": "g.example.com", "kind": "K", "name": "n", "scope": ""}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("storage.k8s.io/v1/storageclasses", {"provisioner": "p", "volumeBindingMode": ""}, "volumeBindingMode"),
        ("scheduling.k8s.io/v1/priorityclasses", {"value": 1, "preemptionPolicy": ""}, "preemptionPolicy"),
        ("storage.k8s.io/v1/csidrivers", {"spec": {"fsGroupPolicy": ""}}, "spec.fsGroupPolicy"),
        (
            "networking.k8s.io/v1/ingressclasses",
            {"spec": {"controller": "a.b/c", "parameters": TARGET}},
            "spec.parameters.scope",
        ),
        (
            "discovery.k8s.io/v1/endpointslices",
            {"addressType": "IPv4", "endpoints": [], "ports": [{"name": "a", "protocol": ""}]},
            "ports[0].protocol",
        ),
    ],
)
def test_an_empty_string_in_an_optional_enumeration_is_rejected(path: str, body: dict[str, Any], field: str) -> None:
    reason = "Required" if field == "preemptionPolicy" else "NotSupported"
    assert rejection_reasons(path, body) == [(field, reason)]


def test_an_empty_string_in_a_plain_field_gets_the_default() -> None:
    secret = {"type": "", "metadata": {"name": "a"}}
    defaulting.apply(secret, types.object_type("io.k8s.api.core.v1.Secret"))
    assert secret["type"] == "Opaque"


def test_pointers_of_the_schema_are_those_of_the_wire() -> None:
    """The protobuf table, which is made from the same Go types, says for each field whether it is a pointer."""
    short_names = {types.short_name(definition): definition for definition in types.definitions()}
    compared = 0
    for name in table.messages():
        definition = short_names.get(name.replace("/", "."))
        kind = definition and types.definition_type(definition)
        if not isinstance(kind, types.ObjectType):
            continue
        codes = types.presence(kind.definition)
        for field in table.message_named(name).fields:
            known = kind.fields.get(field.name)
            if known is None or not isinstance(known.type, types.Scalar) or known.type.kind not in PLAIN:
                continue
            code = codes.get(field.name, "").partition(":")[0]
            assert field.pointer == ("p" in code or "P" in code), (name, field.name)
            compared += 1
    assert compared > 1000
