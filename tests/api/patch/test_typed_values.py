"""Objects that field managers cannot handle, beside a configuration that they can."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.custom.version import object_type
from kubechronicle.api.patch.typed_values import misfits

TEXT = {"type": "string"}
PART = {"type": "object", "properties": {"a": TEXT, "b": TEXT}}
SPEC = {"type": "object", "properties": {"one": PART, "two": PART, "list": {"type": "array", "items": TEXT}}}
KIND = object_type({"type": "object", "properties": {"spec": SPEC}})
CONFIG = {"spec": {"one": {"a": "x"}, "two": {"a": "y"}, "list": ["z"]}}


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"one": {"a": "x"}},
        {"one": {"a": 1}, "two": {"a": "y"}},
        {"one": {"a": "x", "b": True}},
        {"one": {"c": "x"}},
        {"one": [], "list": {}},
        {"one": {}, "list": ["z", 1]},
        {"three": {"a": "x"}},
        [],
    ],
)
def test_an_object_has_the_same_problems_beside_a_configuration(spec: Any) -> None:
    obj = {"metadata": {"name": "a"}, "spec": spec}
    assert misfits(obj, KIND, valid=CONFIG) == misfits(obj, KIND)
