"""Bad texts of named types are printed as JSON."""

from __future__ import annotations

import pytest

from kubechronicle.api.errors.field_errors import duplicate, invalid_value
from kubechronicle.api.schema.named_texts import is_named, print_by_type
from kubechronicle.api.schema.types import object_type

CORE = "io.k8s.api.core.v1."


@pytest.mark.parametrize(
    ("definition", "field", "named"),
    [
        (CORE + "Service", "spec.type", True),
        (CORE + "Service", "spec.ipFamilies[0]", True),
        (CORE + "Service", "spec.loadBalancerClass", False),
        (CORE + "Service", "metadata.uid", True),
        (CORE + "Service", "metadata.name", False),
        (CORE + "Service", "spec.nothing[0]", False),
        (CORE + "PersistentVolumeClaim", "spec.accessModes", True),
        (CORE + "Pod", "spec.containers[0].ports[1].protocol", True),
        (CORE + "Pod", "spec.readinessGates[0].conditionType", False),
        (CORE + "Pod", "spec.os", True),
        (CORE + "Pod", "spec.containers[0].resizePolicy[0]", True),
        (CORE + "Node", "metadata.taints[0].effect", True),
        (CORE + "ResourceQuota", "spec.scopeSelector.matchExpressions.operator", True),
        (CORE + "ResourceQuota", "spec.hard[<]", True),
        (CORE + "ConfigMap", "data[<]", False),
    ],
)
def test_types_of_fields(definition: str, field: str, named: bool) -> None:
    assert is_named(object_type(definition), field, "<") is named


def test_only_texts_with_escapes_are_printed_in_another_way() -> None:
    causes = [
        invalid_value("spec.type", "\x00<", "bad"),
        invalid_value("spec.type", "A", "bad"),
        invalid_value("spec.externalName", "\x00<", "bad"),
        duplicate("spec.type", None),
    ]
    print_by_type(causes, object_type(CORE + "Service"))
    assert [cause.message for cause in causes] == [
        r'Invalid value: "\u0000\u003c": bad',
        'Invalid value: "A": bad',
        r'Invalid value: "\x00<": bad',
        "Duplicate value: null",
    ]
