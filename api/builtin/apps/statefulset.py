"""StatefulSet: pods with an identity and volumes of their own. | Source: Kubernetes'
``registry/apps/statefulset`` and ``apis/apps``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import (
    at_most_100_percent,
    dns_label,
    int_or_percent,
    is_zero,
    not_negative,
)
from kubechronicle.api.builtin.common.go_shapes import record, selector
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, CONTAINERS, IMAGES, NAME, Printer, age_of, at, name_of
from kubechronicle.api.builtin.core.persistentvolumeclaim import claim_spec, storage_warnings
from kubechronicle.api.builtin.core.pod.options import USUAL, PodOptions
from kubechronicle.api.builtin.core.pod.validation import specific_annotations
from kubechronicle.api.builtin.core.podtemplate import (
    READY,
    collisions,
    fill_replicas,
    long_running,
    pod_template,
    same_generation,
    template_containers,
    template_labels,
    warnings_in_template,
    workload_selector,
)
from kubechronicle.api.errors.field_errors import Cause, invalid_value, not_supported
from kubechronicle.api.meta.metadata import IMMUTABLE, validate_annotations, validate_labels
from kubechronicle.api.strategy.gated_fields import GatedField
from kubechronicle.api.strategy.strategy import Check, Strategy, status_update
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- defaults ---------------------------------------------------------------------------------------------------------


def stateful_set(obj: Object) -> None:
    """Default to a rolling update from partition 0, so that it covers all pods."""
    strategy = obj["spec"].setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        if not strategy.get("rollingUpdate"):
            strategy["rollingUpdate"] = {"partition": 0}
    if strategy["type"] == "RollingUpdate" and strategy.get("rollingUpdate") is not None:
        strategy["rollingUpdate"].setdefault("partition", 0)


def stateful_set_claims(obj: Object) -> None:
    """Set apiVersion and kind in the claim templates, as Kubernetes' decoder does, even if they are given."""
    for claim in obj["spec"].get("volumeClaimTemplates") or ():
        claim["apiVersion"] = "v1"
        claim["kind"] = "PersistentVolumeClaim"


def _stateful_set(obj: Object) -> None:
    stateful_set(obj)
    stateful_set_claims(obj)


# -- preparation ------------------------------------------------------------------------------------------------------


def default_unavailable(new: Object, now: str) -> None:
    """Let a rolling update replace one pod at a time."""
    strategy = new["spec"].get("updateStrategy") or {}
    if strategy.get("type") == "RollingUpdate" and strategy.get("rollingUpdate") is not None:
        strategy["rollingUpdate"].setdefault("maxUnavailable", 1)


# -- validation -------------------------------------------------------------------------------------------------------


def validate_stateful_set_status(new: Object, old: Object) -> list[Cause]:
    """Check that counts are not negative and do not exceed the number of replicas."""
    status = new.get("status") or {}
    parts = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
    causes = not_negative(status, "status", "replicas", *parts, "observedGeneration", "collisionCount")
    for name in parts:
        count = status.get(name, 0)
        if count > status.get("replicas", 0):
            causes.append(invalid_value(f"status.{name}", count, "cannot be greater than status.replicas"))
    available = status.get("availableReplicas", 0)
    if available > status.get("readyReplicas", 0):
        detail = "cannot be greater than status.readyReplicas"
        causes.append(invalid_value("status.availableReplicas", available, detail))
    return causes + collisions(status, old)


_STRATEGIES: Final = ("RollingUpdate", "OnDelete")
_WITH_RECREATE: Final = (*_STRATEGIES, "Recreate")


def validate_stateful_set(
    obj: Object, options: PodOptions = USUAL, *, strategies: Sequence[str] = _STRATEGIES
) -> list[Cause]:
    """Check a new StatefulSet, with its claim templates and the name of its Service."""
    return _spec(obj["spec"], options, strategies, new=True)


def _spec(
    spec: Object, options: PodOptions, strategies: Sequence[str], *, new: bool, with_template: bool = True
) -> list[Cause]:
    """Check the spec. ``strategies``: the allowed types of updates.

    Claim templates and the Service's name are immutable, so they are checked only on creation (``new``).
    """
    causes: list[Cause] = []
    policy = spec.get("podManagementPolicy", "")
    if policy not in ("OrderedReady", "Parallel"):
        causes.append(invalid_value("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    causes += _update_strategy(spec.get("updateStrategy") or {}, strategies)
    causes += _claim_retention(spec.get("persistentVolumeClaimRetentionPolicy") or {})
    if new:
        for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
            causes += claim_spec(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{index}].spec")
    causes += not_negative(spec, "spec", "replicas", "minReadySeconds")
    causes += not_negative(spec.get("ordinals") or {}, "spec.ordinals", "start")
    if new and spec.get("serviceName"):
        causes += dns_label(spec["serviceName"], "spec.serviceName")
    found, parses = workload_selector(spec, "statefulset")
    causes += found
    if parses:
        causes += template_labels(spec) + _template(spec, "spec.template", options, whole=with_template)
    else:
        causes.append(invalid_value("spec.selector", selector(spec.get("selector")), ""))
    return causes + long_running(spec.get("template") or {}, "spec.template", "StatefulSet")


def _update_strategy(strategy: Object, types: Sequence[str]) -> list[Cause]:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind in types[1:] and rolling is not None:
        detail = "only allowed for updateStrategy 'RollingUpdate'"
        return [invalid_value("spec.updateStrategy.rollingUpdate", _shown(rolling), detail)]
    if kind == "RollingUpdate" and rolling is not None:
        return _stateful_rolling(rolling, "spec.updateStrategy.rollingUpdate")
    if kind not in types:
        shown = {"Type": kind, "RollingUpdate": _shown(rolling)}
        *others, last = (f"'{each}'" for each in types)
        comma = "," if len(others) > 1 else ""
        return [invalid_value("spec.updateStrategy", shown, f"must be {', '.join(others)}{comma} or {last}")]
    return []


def _shown(rolling: Object | None) -> Object | None:
    if rolling is None:
        return None
    return {"Partition": rolling.get("partition", 0), "MaxUnavailable": rolling.get("maxUnavailable")}


def _stateful_rolling(rolling: Object, field: str) -> list[Cause]:
    causes = not_negative(rolling, field, "partition")
    most = rolling.get("maxUnavailable")
    if most is not None:
        causes += int_or_percent(most, f"{field}.maxUnavailable")
        if is_zero(most):
            causes.append(invalid_value(f"{field}.maxUnavailable", most, "cannot be 0"))
        causes += at_most_100_percent(most, f"{field}.maxUnavailable")
    return causes


def _claim_retention(policy: Object) -> list[Cause]:
    choices, field = ("Retain", "Delete"), "spec.persistentVolumeClaimRetentionPolicy"
    return [
        not_supported(f"{field}.{name}", policy[name], choices)
        for name in ("whenDeleted", "whenScaled")
        if name in policy and policy[name] not in choices
    ]


def _template(spec: Object, field: str, options: PodOptions, *, whole: bool) -> list[Cause]:
    """Check the template as the controller completes it: each claim template adds a volume or replaces one.

    The controller also sets the host name and the subdomain. Kubernetes checks labels and annotations a second time.
    """
    template = spec.get("template") or {}
    metadata, inner = template.get("metadata") or {}, dict(template.get("spec") or {})
    causes: list[Cause] = []
    if whole:
        inner.pop("hostname", None)
        inner.pop("subdomain", None)
        claims = [(each.get("metadata") or {}).get("name", "") for each in spec.get("volumeClaimTemplates") or ()]
        if claims:
            added = {name: {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims}
            own = [volume for volume in inner.get("volumes") or () if volume.get("name", "") not in added]
            inner["volumes"] = [*added.values(), *own]
        causes += pod_template({**template, "spec": inner}, field, options)
    causes += validate_labels(metadata.get("labels") or {}, f"{field}.labels")
    if metadata.get("annotations"):
        causes += validate_annotations(metadata["annotations"], f"{field}.annotations")
        causes += specific_annotations(metadata["annotations"], inner, f"{field}.annotations")
    return causes


_FROZEN: Final = ("selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy")
"""The fields of a spec that never change."""


def validate_stateful_set_update(
    new: Object, old: Object, options: PodOptions = USUAL, *, strategies: Sequence[str] = _STRATEGIES
) -> list[Cause]:
    """Check a changed StatefulSet, and reject changes of fields that stay.

    The template is not checked if the old object would be rejected.
    """
    spec, held = new["spec"], old["spec"]
    if (held.get("updateStrategy") or {}).get("type") in _WITH_RECREATE[2:]:
        strategies = _WITH_RECREATE
    causes = _spec(spec, options, strategies, new=False)
    if causes and _spec(held, options, strategies, new=False):
        causes = _spec(spec, options, strategies, new=False, with_template=False)
    changed = [name for name in _FROZEN if (spec.get(name) or None) != (held.get(name) or None)]
    return causes + [invalid_value(f"spec.{name}", _frozen_value(spec, name), IMMUTABLE) for name in changed]


def _frozen_value(spec: Object, name: str) -> Any:
    """Return a field as its cause prints it: an absent list is empty, an absent text is \"\"."""
    if name == "volumeClaimTemplates":
        return [record(claim, "PersistentVolumeClaim") for claim in spec.get(name) or ()]
    return spec.get(name) or ("" if name != "selector" else None)


# -- warnings ---------------------------------------------------------------------------------------------------------

_NEGATIVE_HISTORY: Final = "a negative value retains all historical revisions; a value >= 0 is recommended"


def stateful_set_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about the template, the claim templates and the revision history limit."""
    spec = new["spec"]
    warnings = [] if same_generation(new, old) else warnings_in_template(spec.get("template"), "spec.template")
    for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
        field = f"spec.volumeClaimTemplates[{index}]"
        warnings += storage_warnings(claim.get("spec") or {}, field if old is None else f"{field}.Spec")
    if (spec.get("revisionHistoryLimit") or 0) < 0:
        warnings.append(f"spec.revisionHistoryLimit: {_NEGATIVE_HISTORY}")
    return warnings


# -- table columns ----------------------------------------------------------------------------------------------------


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    ready = at(obj, "status", "readyReplicas", default=0)
    desired = at(obj, "spec", "replicas", default=0)
    return [name_of(obj), f"{ready}/{desired}", age_of(obj, since), *template_containers(obj)]


# -- the kind ---------------------------------------------------------------------------------------------------------

KIND: Final = BuiltinKind(
    resource="statefulsets.apps",
    strategy=Strategy(
        pod_spec="spec.template.spec",
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        names="label",
        generation=True,
        with_gates={
            "MaxUnavailableStatefulSet": {"defaults": default_unavailable},
            "StatefulSetRecreateStrategy": {
                "validate": partial(validate_stateful_set, strategies=_WITH_RECREATE),
                "validate_update": partial(validate_stateful_set_update, strategies=_WITH_RECREATE),
            },
        },
        validate=validate_stateful_set,
        validate_update=validate_stateful_set_update,
        warnings=stateful_set_warnings,
        subresources=MappingProxyType({"status": status_update("spec", validate_update=validate_stateful_set_status)}),
    ),
    gated_fields={
        "": (
            GatedField(gate="MaxUnavailableStatefulSet", fields=("spec.updateStrategy.rollingUpdate.maxUnavailable",)),
        ),
    },
    default_values={
        "apps.v1.StatefulSetSpec": {
            "podManagementPolicy": "OrderedReady",
            "replicas": 1,
            "revisionHistoryLimit": 10,
            "persistentVolumeClaimRetentionPolicy": {},
        },
        "apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    },
    default_functions={"apps.v1.StatefulSet": _stateful_set},
    printer=Printer((NAME, READY, AGE, CONTAINERS, IMAGES), _cells),
    fill_empty=fill_replicas,
)
