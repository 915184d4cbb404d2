"""RuntimeClass: a way to run containers, with its overhead and its nodes.

Source: Kubernetes' ``registry/node/runtimeclass``, ``apis/node`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import repeated
from kubechronicle.api.builtin.common.go_shapes import record
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, name_of
from kubechronicle.api.builtin.common.resource_amounts import requirements
from kubechronicle.api.builtin.common.scheduling import old_label_warnings, tolerations
from kubechronicle.api.errors.field_errors import Cause, duplicate
from kubechronicle.api.meta.metadata import validate_labels
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.objects import Object, ReadOnlyObject


def _key_of(toleration: Object) -> tuple[str, ...]:
    return tuple(toleration.get(name, "") for name in ("key", "operator", "value", "effect"))


def validate_runtime_class(obj: Object) -> list[Cause]:
    """Check the overhead and scheduling of a RuntimeClass."""
    overhead = (obj.get("overhead") or {}).get("podFixed")
    causes = requirements({"limits": overhead}, "overhead") if overhead else []
    scheduling = obj.get("scheduling")
    if scheduling:
        causes += validate_labels(scheduling.get("nodeSelector") or {}, "scheduling.nodeSelector")
        given = scheduling.get("tolerations") or []
        causes += tolerations(given, "scheduling.tolerations")
        for index, again in enumerate(repeated(map(_key_of, given))):
            if again:
                causes.append(duplicate(f"scheduling.tolerations[{index}]", record(given[index], "Toleration")))
    return causes


def runtime_class_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about old labels in the node selector."""
    chosen = (new.get("scheduling") or {}).get("nodeSelector") or ()
    return [warning for label in chosen for warning in old_label_warnings(label, "scheduling.nodeSelector")]


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), obj.get("handler") or "", age_of(obj, since)]


KIND: Final = BuiltinKind(
    resource="runtimeclasses.node.k8s.io",
    strategy=Strategy(
        update_checks=(Check.METADATA, Check.OBJECT, Check.METADATA_CHANGE, Check.CHANGE),
        status=False,
        create_on_update=True,
        kube_finalizers=False,
        unconditional_update=False,
        validate=validate_runtime_class,
        warnings=runtime_class_warnings,
    ),
    printer=Printer((NAME, Column("Handler"), AGE), _cells),
)
