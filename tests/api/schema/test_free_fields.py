"""Fields that hold any JSON, in the form of Go's encoder."""

from __future__ import annotations

import orjson

from kubechronicle.api.schema.check import check
from kubechronicle.api.schema.equality import encode_again
from kubechronicle.api.schema.types import object_type


def test_numbers_beyond_64_bits_can_be_written_again() -> None:
    revision = {"data": {"b": [100000000000000000000.0], "a": 2.0}}
    encode_again(revision, "io.k8s.api.apps.v1.ControllerRevision")
    assert orjson.dumps(revision) == b'{"data":{"a":2,"b":[1e+20]}}'


def test_schemas_may_contain_numbers_beyond_64_bits() -> None:
    schema = {"type": "number", "maximum": 1e20, "default": 1e19, "enum": [1e20, 1.0], "example": -1e20}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    definition = {"spec": {"group": "a.example.com", "scope": "Namespaced", "names": {}, "versions": [version]}}
    kind = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition"
    assert check(definition, object_type(kind)) == []
    assert b'"enum":[1e+20,1]' in orjson.dumps(definition)
