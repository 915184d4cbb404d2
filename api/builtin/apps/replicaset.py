"""ReplicaSet: a number of equal pods. | Source: Kubernetes' ``registry/apps/replicaset`` and ``apis/apps``."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, selector_text
from kubechronicle.api.builtin.common.checks import not_negative
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    Printer,
    age_of,
    at,
    field_column,
    name_of,
    wide_field,
)
from kubechronicle.api.builtin.core.pod.options import USUAL, PodOptions
from kubechronicle.api.builtin.core.podtemplate import (
    TERMINATING_REPLICAS,
    fill_replicas,
    named_template_warnings,
    replica_set_status,
    selector_and_template,
    selector_update,
    template_containers,
)
from kubechronicle.api.errors.field_errors import Cause
from kubechronicle.api.strategy.strategy import Check, Strategy, status_update
from kubechronicle.api.values.objects import Object, ReadOnlyObject


def validate_replica_set(obj: Object, options: PodOptions = USUAL) -> list[Cause]:
    """Check the counts, selector and template of a ReplicaSet."""
    spec = obj["spec"]
    causes = not_negative(spec, "spec", "replicas", "minReadySeconds")
    return causes + selector_and_template(spec, "deployment", options)


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    status = obj.get("status") or {}
    return [
        name_of(obj),
        at(obj, "spec", "replicas", default=0),
        status.get("replicas") or 0,
        status.get("readyReplicas") or 0,
        age_of(obj, since),
        *template_containers(obj),
        selector_text(at(obj, "spec", "selector")),
    ]


KIND: Final = BuiltinKind(
    resource="replicasets.apps",
    strategy=Strategy(
        pod_spec="spec.template.spec",
        update_checks=(Check.METADATA_CHANGE, Check.OBJECT, Check.CHANGE),
        generation=True,
        validate=validate_replica_set,
        validate_update=selector_update,
        warnings=named_template_warnings,
        subresources=MappingProxyType({"status": status_update("spec", validate_update=replica_set_status)}),
    ),
    gated_fields={
        "status": TERMINATING_REPLICAS,
    },
    default_values={"apps.v1.ReplicaSetSpec": {"replicas": 1}},
    printer=Printer(
        (
            NAME,
            field_column("Desired", "apps.v1.ReplicaSetSpec.replicas", "integer"),
            field_column("Current", "apps.v1.ReplicaSetStatus.replicas", "integer"),
            field_column("Ready", "apps.v1.ReplicaSetStatus.readyReplicas", "integer"),
            AGE,
            CONTAINERS,
            IMAGES,
            wide_field("Selector", "apps.v1.ReplicaSetSpec.selector"),
        ),
        _cells,
    ),
    fill_empty=fill_replicas,
)
