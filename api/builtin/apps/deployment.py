"""Deployment: ReplicaSets of one template after another. | Source: Kubernetes' ``registry/apps/deployment`` and
``apis/apps``."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, selector_text
from kubechronicle.api.builtin.common.checks import at_most_100_percent, int_or_percent, is_zero, not_negative
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
    READY,
    TERMINATING_REPLICAS,
    collisions,
    fill_replicas,
    named_template_warnings,
    parts_of_replicas,
    selector_and_template,
    selector_update,
    shown_rolling_update,
    template_containers,
)
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, not_supported, required
from kubechronicle.api.kinds.reading import enum
from kubechronicle.api.strategy.strategy import Check, Strategy, status_update
from kubechronicle.api.values.objects import Object, ReadOnlyObject


def default_deployment(obj: Object) -> None:
    """Default to a rolling update that replaces a quarter of the pods at a time."""
    strategy = obj["spec"].setdefault("strategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")


def prepare_deployment_update(new: Object, old: Object) -> None:
    """Increment the generation for new annotations too, because they are copied to replica sets."""
    before, after = old["metadata"].get("annotations"), new["metadata"].get("annotations")
    if before != after and new["spec"] == old["spec"]:
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _deployment_strategy(strategy: Object) -> list[Cause]:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    field = "spec.strategy.rollingUpdate"
    if kind == "Recreate":
        if rolling is None:
            return []
        return [forbidden(field, "may not be specified when strategy `type` is 'Recreate'")]
    if kind != "RollingUpdate":
        shown = {"Type": kind, "RollingUpdate": shown_rolling_update(rolling)}
        return [not_supported("spec.strategy", shown, enum("apps.v1.DeploymentStrategyType"))]
    if rolling is None:
        return [required("spec.strategy.rollingUpdate", "this should be defaulted and never be nil")]
    surge, unavailable = rolling.get("maxSurge", 0), rolling.get("maxUnavailable", 0)
    causes = int_or_percent(unavailable, f"{field}.maxUnavailable") + int_or_percent(surge, f"{field}.maxSurge")
    if is_zero(unavailable) and is_zero(surge):
        causes.append(invalid_value(f"{field}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
    return causes + at_most_100_percent(unavailable, f"{field}.maxUnavailable")


def validate_deployment(obj: Object, options: PodOptions = USUAL) -> list[Cause]:
    """Check the selector, template, strategy and counts of a Deployment."""
    spec = obj["spec"]
    causes = not_negative(spec, "spec", "replicas") + selector_and_template(spec, "deployment", options)
    causes += _deployment_strategy(spec.get("strategy") or {})
    causes += not_negative(spec, "spec", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
        detail = "must be greater than minReadySeconds"
        causes.append(invalid_value("spec.progressDeadlineSeconds", deadline, detail))
    return causes


_COUNTS: Final = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas")


def validate_deployment_status(new: Object, old: Object) -> list[Cause]:
    """Check that counts are not negative and do not exceed the number of replicas."""
    status = new.get("status") or {}
    causes = not_negative(status, "status", "observedGeneration", *_COUNTS, "collisionCount")
    if status.get("terminatingReplicas") is not None:
        causes += not_negative(status, "status", "terminatingReplicas")
    return causes + parts_of_replicas(status, "updatedReplicas") + collisions(status, old)


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    status = obj.get("status") or {}
    return [
        name_of(obj),
        f"{status.get('readyReplicas') or 0}/{at(obj, 'spec', 'replicas', default=0)}",
        status.get("updatedReplicas") or 0,
        status.get("availableReplicas") or 0,
        age_of(obj, since),
        *template_containers(obj),
        selector_text(at(obj, "spec", "selector"), empty=""),
    ]


_DEPLOYMENT_STATUS: Final = status_update("spec", metadata=("labels",), validate_update=validate_deployment_status)

KIND: Final = BuiltinKind(
    resource="deployments.apps",
    strategy=Strategy(
        pod_spec="spec.template.spec",
        update_checks=(Check.METADATA_CHANGE, Check.OBJECT, Check.CHANGE),
        generation=True,
        generation_fields=("spec",),
        prepare_update=prepare_deployment_update,
        validate=validate_deployment,
        validate_update=selector_update,
        warnings=named_template_warnings,
        subresources=MappingProxyType({"status": _DEPLOYMENT_STATUS}),
    ),
    gated_fields={
        "status": TERMINATING_REPLICAS,
    },
    default_values={
        "apps.v1.DeploymentSpec": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}
    },
    default_functions={"apps.v1.Deployment": default_deployment},
    printer=Printer(
        (
            NAME,
            READY,
            field_column("Up-to-date", "apps.v1.DeploymentStatus.updatedReplicas"),
            field_column("Available", "apps.v1.DeploymentStatus.availableReplicas"),
            AGE,
            CONTAINERS,
            IMAGES,
            wide_field("Selector", "apps.v1.DeploymentSpec.selector"),
        ),
        _cells,
    ),
    fill_empty=fill_replicas,
)
