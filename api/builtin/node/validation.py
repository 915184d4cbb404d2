"""Validation of RuntimeClasses."""

from __future__ import annotations

from kubechronicle.api.builtin.common.checks import dns_label, immutable, repeated
from kubechronicle.api.builtin.common.go_shapes import shape
from kubechronicle.api.builtin.common.resource_amounts import requirements
from kubechronicle.api.builtin.common.scheduling import tolerations
from kubechronicle.api.errors.field_errors import Cause, duplicate, required
from kubechronicle.api.meta.metadata import validate_labels
from kubechronicle.api.values.objects import Object


def _key_of(toleration: Object) -> tuple[str, ...]:
    return tuple(toleration.get(name, "") for name in ("key", "operator", "value", "effect"))


def runtime_class(obj: Object) -> list[Cause]:
    """Check the handler, overhead and scheduling of a RuntimeClass."""
    handler = obj.get("handler", "")
    causes = dns_label(handler, "handler") if handler else [required("handler")]
    overhead = (obj.get("overhead") or {}).get("podFixed")
    if overhead:
        causes += requirements({"limits": overhead}, "overhead")
    scheduling = obj.get("scheduling")
    if scheduling:
        causes += validate_labels(scheduling.get("nodeSelector") or {}, "scheduling.nodeSelector")
        given = scheduling.get("tolerations") or []
        causes += tolerations(given, "scheduling.tolerations")
        for index, again in enumerate(repeated(map(_key_of, given))):
            if again:
                causes.append(duplicate(f"scheduling.tolerations[{index}]", shape(given[index], "Toleration")))
    return causes


def runtime_class_update(new: Object, old: Object) -> list[Cause]:
    """Reject a changed handler."""
    return immutable("handler", new.get("handler", ""), old.get("handler", ""))
