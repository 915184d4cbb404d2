"""PodDisruptionBudget: how many of a set of pods may be gone at a time; and the older versions of Eviction.

An empty selector matches no pods in v1beta1 and all pods in v1. Source: Kubernetes'
``registry/policy/poddisruptionbudget``, ``apis/policy``, its conversions in Kubernetes 1.20 to 1.25, and
``pkg/printers/internalversion``.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import (
    at_most_100_percent,
    conditions,
    int_or_percent,
    label_selector,
    not_negative,
)
from kubechronicle.api.builtin.common.go_shapes import selector
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, at, name_of
from kubechronicle.api.builtin.common.version_conversion import lossless_pair, renaming, typed
from kubechronicle.api.errors.field_errors import Cause, invalid_value, not_supported
from kubechronicle.api.kinds.reading import enum
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.strategy.strategy import Check, Strategy, status_update
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- defaults ---------------------------------------------------------------------------------------------------------


def default_disruption_budget(obj: Object) -> None:
    """Remove the marker key from a selector with other requirements.

    Kubernetes does this when it decodes policy/v1, at the same point of a request.
    """
    drop_marker_key(obj["spec"])


# -- validation -------------------------------------------------------------------------------------------------------


def validate_disruption_budget(obj: Object) -> list[Cause]:
    """Check the bounds, eviction policy and selector of a budget; at most one bound can be set."""
    spec = obj["spec"]
    causes: list[Cause] = []
    low, high = spec.get("minAvailable"), spec.get("maxUnavailable")
    if low is not None and high is not None:
        shown = {
            "MinAvailable": low,
            "Selector": selector(spec.get("selector")),
            "MaxUnavailable": high,
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        causes.append(invalid_value("spec", shown, "minAvailable and maxUnavailable cannot be both set"))
    for name, value in (("minAvailable", low), ("maxUnavailable", high)):
        if value is not None:
            causes += int_or_percent(value, f"spec.{name}") + at_most_100_percent(value, f"spec.{name}")
    policy = spec.get("unhealthyPodEvictionPolicy")
    causes += label_selector(spec.get("selector"), "spec.selector")
    allowed = enum("policy.v1.UnhealthyPodEvictionPolicyType")
    if policy is not None and policy not in allowed:
        causes.append(not_supported("spec.unhealthyPodEvictionPolicy", policy, allowed))
    return causes


def validate_disruption_budget_status(new: Object, old: Object) -> list[Cause]:
    """Check the conditions, and that counts are not negative."""
    status = new.get("status") or {}
    members = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    return conditions(status.get("conditions") or (), "status.conditions") + not_negative(status, "status", *members)


# -- table columns ----------------------------------------------------------------------------------------------------


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    least, most = at(obj, "spec", "minAvailable"), at(obj, "spec", "maxUnavailable")
    return [
        name_of(obj),
        "N/A" if least is None else str(least),
        "N/A" if most is None else str(most),
        at(obj, "status", "disruptionsAllowed", default=0),
        age_of(obj, since),
    ]


# -- conversions ------------------------------------------------------------------------------------------------------

PDB_LABEL: Final = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"
"""Key of the selector that one version needs where the other has the empty selector.

policy/v1 uses it for "no pods", policy/v1beta1 for "all pods".
"""


def _is_marker(selector: Any, operator: str) -> bool:
    return bool(selector == _marker_selector(operator))


def _marker_selector(operator: str) -> Object:
    return {"matchExpressions": [{"key": PDB_LABEL, "operator": operator}]}


def drop_marker_key(spec: Object) -> None:
    """Remove the key PDB_LABEL from a selector that has other requirements or the other operator."""
    selector = spec.get("selector")
    expressions = (selector or {}).get("matchExpressions")
    if not selector or not expressions or _is_marker(selector, "Exists"):
        return
    left = [each for each in expressions if each.get("key") != PDB_LABEL]
    if left:
        selector["matchExpressions"] = left
    else:
        del selector["matchExpressions"]


def _budget(obj: Object, api_version: str, definition: str, *, empty: str, other: str) -> Object:
    """Return the budget in the other version.

    An empty selector becomes the marker with operator ``empty``. The marker with operator ``other`` becomes the empty
    selector.
    """
    obj = copy_object(obj)
    spec = obj["spec"]
    selector = spec.get("selector")
    if selector == {}:
        spec["selector"] = _marker_selector(empty)
    elif _is_marker(selector, other):
        spec["selector"] = {}
    else:
        drop_marker_key(spec)
    return typed(obj, api_version, definition)


PDB_V1: Final = "io.k8s.api.policy.v1.PodDisruptionBudget"
PDB_V1BETA1: Final = "io.k8s.api.policy.v1beta1.PodDisruptionBudget"


def _budget_to_v1beta1(obj: Object) -> Object:
    return _budget(obj, "policy/v1beta1", PDB_V1BETA1, empty="DoesNotExist", other="Exists")


def _budget_to_v1(obj: Object) -> Object:
    return _budget(obj, "policy/v1", PDB_V1, empty="Exists", other="DoesNotExist")


# -- the kind ---------------------------------------------------------------------------------------------------------

KIND: Final = BuiltinKind(
    resource="poddisruptionbudgets.policy",
    strategy=Strategy(
        update_checks=(Check.OBJECT, Check.CHANGE),
        names="segment",
        checks_metadata=False,
        kube_finalizers=False,
        generation=True,
        unconditional_update=False,
        validate=validate_disruption_budget,
        subresources=MappingProxyType(
            {
                "status": status_update(
                    "spec",
                    validate_update=validate_disruption_budget_status,
                    lenient_in=("policy/v1beta1",),
                    checks=(Check.CHANGE,),
                )
            }
        ),
    ),
    default_functions={
        "policy.v1.PodDisruptionBudget": default_disruption_budget,
        "policy.v1beta1.PodDisruptionBudget": lambda obj: None,
    },
    printer=Printer(
        (
            NAME,
            Column("Min Available", text="The minimum number of pods that must be available."),
            Column("Max Unavailable", text="The maximum number of pods that may be unavailable."),
            Column(
                "Allowed Disruptions",
                "integer",
                text="Calculated number of pods that may be disrupted at this time.",
            ),
            AGE,
        ),
        _cells,
    ),
    converters={
        **lossless_pair(
            "PodDisruptionBudget", "policy/v1", "policy/v1beta1", PDB_V1, _budget_to_v1beta1, _budget_to_v1
        ),
        ("Eviction", "policy/v1beta1", "policy/v1"): renaming("policy/v1", "io.k8s.api.policy.v1.Eviction"),
    },
)
