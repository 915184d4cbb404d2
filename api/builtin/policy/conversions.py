"""Converters between policy/v1 and policy/v1beta1 for PodDisruptionBudget and Eviction.

An empty selector matches no pods in v1beta1 and all pods in v1. Source: the conversions of ``pkg/apis/policy`` in
Kubernetes 1.20 to 1.25.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.version_conversion import Converter, lossless_pair, same_fields, typed
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.values.objects import Object

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


CONVERTERS: Final[Mapping[tuple[str, str, str], Converter]] = {
    **lossless_pair("PodDisruptionBudget", "policy/v1", "policy/v1beta1", PDB_V1, _budget_to_v1beta1, _budget_to_v1),
    **same_fields("Eviction", "policy"),
}
