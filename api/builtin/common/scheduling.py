"""Validation of pod placement: node selectors, affinity, tolerations, taints, topology spread and labels of nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.builtin.common.checks import (
    HAS_NO_VALUES,
    NEEDS_VALUES,
    dns_label,
    dns_subdomain,
    label_selector,
    one_of_if_set,
    qualified_name,
    wrong,
)
from kubechronicle.api.builtin.common.go_shapes import record
from kubechronicle.api.errors.field_errors import (
    Cause,
    duplicate,
    forbidden,
    go_quote,
    invalid_value,
    not_supported,
    required,
)
from kubechronicle.api.kinds.reading import enum
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object

TAINT_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
NOT_AN_OPERATOR: Final = "not a valid selector operator"


def _node_requirement(requirement: Object, field: str, *, values_checked: bool) -> list[Cause]:
    operator, values = requirement.get("operator", ""), requirement.get("values") or ()
    causes: list[Cause] = []
    if operator in ("In", "NotIn"):
        if not values:
            causes.append(required(f"{field}.values", NEEDS_VALUES))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            causes.append(forbidden(f"{field}.values", HAS_NO_VALUES))
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            causes.append(required(f"{field}.values", detail))
    else:
        causes.append(invalid_value(f"{field}.operator", operator, NOT_AN_OPERATOR))
    causes += qualified_name(requirement.get("key", ""), f"{field}.key")
    if values_checked:
        for index, value in enumerate(values):
            causes += wrong(f"{field}.values[{index}]", value, names.label_value(value))
    return causes


def _node_field(requirement: Object, field: str) -> list[Cause]:
    operator, values = requirement.get("operator", ""), requirement.get("values") or ()
    causes: list[Cause] = []
    if operator not in ("In", "NotIn"):
        causes.append(invalid_value(f"{field}.operator", operator, NOT_AN_OPERATOR))
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        causes.append(required(f"{field}.values", detail))
    key = requirement.get("key", "")
    if key != "metadata.name":
        return [*causes, invalid_value(f"{field}.key", key, "not a valid field selector key")]
    for index, value in enumerate(values):
        causes += dns_subdomain(value, f"{field}.values[{index}]")
    return causes


def _node_term(term: Object, field: str, *, values_checked: bool) -> list[Cause]:
    causes: list[Cause] = []
    for index, requirement in enumerate(term.get("matchExpressions") or ()):
        path = f"{field}.matchExpressions[{index}]"
        causes += _node_requirement(requirement, path, values_checked=values_checked)
    for index, requirement in enumerate(term.get("matchFields") or ()):
        causes += _node_field(requirement, f"{field}.matchFields[{index}]")
    return causes


def node_selector(selector: Object, field: str) -> list[Cause]:
    """Check the terms of a node selector."""
    terms = selector.get("nodeSelectorTerms")
    path = f"{field}.nodeSelectorTerms"
    if not terms:
        return [required(path, "must have at least one node selector term")]
    causes: list[Cause] = []
    for index, term in enumerate(terms):
        causes += _node_term(term, f"{path}[{index}]", values_checked=True)
    return causes


REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def affinity(given: Object, field: str) -> list[Cause]:
    """Check the node affinity, pod affinity and pod anti-affinity of a pod."""
    causes: list[Cause] = []
    node = given.get("nodeAffinity") or {}
    path = f"{field}.nodeAffinity"
    if node.get(REQUIRED) is not None:
        causes += node_selector(node[REQUIRED], f"{path}.{REQUIRED}")
    for index, term in enumerate(node.get(PREFERRED) or ()):
        place = f"{path}.{PREFERRED}[{index}]"
        causes += _weight(term, place)
        causes += _node_term(term.get("preference") or {}, f"{place}.preference", values_checked=False)
    for kind in ("podAffinity", "podAntiAffinity"):
        part = given.get(kind) or {}
        for index, term in enumerate(part.get(REQUIRED) or ()):
            causes += _pod_term(term, f"{field}.{kind}.{REQUIRED}[{index}]")
        for index, term in enumerate(part.get(PREFERRED) or ()):
            place = f"{field}.{kind}.{PREFERRED}[{index}]"
            causes += _weight(term, place) + _pod_term(term.get("podAffinityTerm") or {}, f"{place}.podAffinityTerm")
    return causes


def _weight(term: Object, field: str) -> list[Cause]:
    weight = term.get("weight", 0)
    return [] if 1 <= weight <= 100 else [invalid_value(f"{field}.weight", weight, "must be in the range 1-100")]


def _pod_term(term: Object, field: str) -> list[Cause]:
    selector = term.get("labelSelector")
    causes = label_selector(selector, f"{field}.labelSelector")
    causes += label_selector(term.get("namespaceSelector"), f"{field}.namespaceSelector")
    for namespace in term.get("namespaces") or ():
        causes += dns_label(namespace, f"{field}.namespace")
    if "matchLabelKeys" in term or "mismatchLabelKeys" in term:
        causes += _label_keys(term, field)
    topology = term.get("topologyKey", "")
    if not topology:
        causes.append(required(f"{field}.topologyKey", "can not be empty"))
    return causes + qualified_name(topology, f"{field}.topologyKey")


# -- tolerations and taints -------------------------------------------------------------------------------------------


def tolerations(given: Sequence[Object], field: str, *, comparing: bool = False) -> list[Cause]:
    """Check the tolerations of a pod. ``comparing``: they may have the operators Lt and Gt."""
    causes: list[Cause] = []
    for index, toleration in enumerate(given):
        causes += _toleration(toleration, f"{field}[{index}]", comparing=comparing)
    return causes


_DECIMAL: Final = re.compile(r"0|-?[1-9][0-9]*")


def _compared(value: str, field: str) -> list[Cause]:
    """Check the number with which a toleration compares a taint's value."""
    causes = []
    if not value:
        causes.append(invalid_value(field, value, "must be non-empty"))
    elif not _DECIMAL.fullmatch(value):
        causes.append(invalid_value(field, value, "must be a valid decimal integer in canonical form"))
    try:
        fits = -(2**63) <= int(value) < 2**63 if re.fullmatch(r"[+-]?[0-9]+", value) else None
    except ValueError:  # more digits than Python reads
        fits = False
    if not fits:
        why = "invalid syntax" if fits is None else "value out of range"
        causes.append(invalid_value(field, value, f"strconv.ParseInt: parsing {go_quote(value)}: {why}"))
    return causes


def _toleration(toleration: Mapping[str, Any], path: str, *, comparing: bool) -> list[Cause]:
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    value, effect = toleration.get("value", ""), toleration.get("effect", "")
    causes = qualified_name(key, f"{path}.key") if key else []
    if not key and operator != "Exists":
        detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        causes.append(invalid_value(f"{path}.operator", operator, detail))
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        causes.append(invalid_value(f"{path}.effect", effect, detail))
    if operator in ("Equal", ""):
        problems = names.label_value(value)
        if problems:
            causes.append(invalid_value(f"{path}.operator", value, ";".join(problems)))
    elif operator == "Exists":
        if value:
            causes.append(invalid_value(f"{path}.operator", value, "value must be empty when `operator` is 'Exists'"))
    elif comparing and operator in ("Lt", "Gt"):
        causes += _compared(value, f"{path}.value")
    else:
        allowed = ("Equal", "Exists", "Lt", "Gt") if operator in ("Lt", "Gt") else ("Equal", "Exists")
        causes.append(not_supported(f"{path}.operator", operator, allowed))
    if effect and effect not in TAINT_EFFECTS:
        causes.append(not_supported(f"{path}.effect", effect, TAINT_EFFECTS))
    return causes


def taints(given: Sequence[Object], field: str) -> list[Cause]:
    """Check the taints of a node, and that each pair of key and effect occurs once."""
    causes: list[Cause] = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(given):
        path = f"{field}[{index}]"
        key, value, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
        causes += qualified_name(key, f"{path}.key")
        problems = names.label_value(value)
        if problems:
            causes.append(invalid_value(f"{path}.value", value, ";".join(problems)))
        if not effect:
            causes.append(required(f"{path}.effect"))
        elif effect not in TAINT_EFFECTS:
            causes.append(not_supported(f"{path}.effect", effect, TAINT_EFFECTS))
        if (key, effect) in seen:
            found = duplicate(path, record(taint, "Taint"))
            detail = "taints must be unique by key and effect pair"
            causes.append(Cause(found.reason, f"{found.message}: {detail}", path))
        seen.add((key, effect))
    return causes


# -- topology spread --------------------------------------------------------------------------------------------------

_POSITIVE: Final = "must be greater than zero"


def topology_spread(constraints: Sequence[Object], field: str, *, merged: bool = True) -> list[Cause]:
    """Check spread constraints, and that each pair of topology key and action occurs once.

    ``merged``: label keys have become a part of the selector; otherwise the selector may not name them.
    """
    causes: list[Cause] = []
    later = Counter(map(_key_and_action, constraints))
    for index, constraint in enumerate(constraints):
        path = f"{field}[{index}]"
        skew, key = constraint.get("maxSkew", 0), constraint.get("topologyKey", "")
        action = constraint.get("whenUnsatisfiable", "")
        if skew <= 0:
            causes.append(invalid_value(f"{path}.maxSkew", skew, _POSITIVE))
        if not key:
            causes.append(required(f"{path}.topologyKey", "can not be empty"))
        causes += one_of_if_set(action, enum("core.v1.UnsatisfiableConstraintAction"), f"{path}.whenUnsatisfiable")
        later[key, action] -= 1
        if later[key, action]:
            place = f"{path}.{{topologyKey, whenUnsatisfiable}}"
            causes.append(duplicate(place, f"{{{key}, {action}}}"))
        causes += _min_domains(constraint.get("minDomains"), action, f"{path}.minDomains")
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            causes += one_of_if_set(constraint.get(name), enum("core.v1.NodeInclusionPolicy"), f"{path}.{name}")
        if constraint.get("matchLabelKeys"):
            causes += _label_keys(constraint, path) if merged else _unmerged_keys(constraint, f"{path}.matchLabelKeys")
        causes += label_selector(constraint.get("labelSelector"), f"{path}.labelSelector")
    return causes


def _key_and_action(constraint: Object) -> tuple[str, str]:
    return constraint.get("topologyKey", ""), constraint.get("whenUnsatisfiable", "")


def _min_domains(number: int | None, action: str, field: str) -> list[Cause]:
    if number is None:
        return []
    causes = [invalid_value(field, number, _POSITIVE)] if number <= 0 else []
    if action != "DoNotSchedule":
        detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        causes.append(invalid_value(field, number, detail))
    return causes


def _unmerged_keys(constraint: Object, field: str) -> list[Cause]:
    """Check label keys that the scheduler adds to the selector, which must not name them."""
    selector, causes = constraint.get("labelSelector"), []
    if selector is None:
        causes.append(forbidden(field, "must not be specified when labelSelector is not set"))
    selected = set((selector or {}).get("matchLabels") or ())
    selected |= {each.get("key", "") for each in (selector or {}).get("matchExpressions") or ()}
    for index, key in enumerate(constraint["matchLabelKeys"]):
        causes += qualified_name(key, f"{field}[{index}]")
        if key in selected:
            causes.append(invalid_value(f"{field}[{index}]", key, "exists in both matchLabelKeys and labelSelector"))
    return causes


def _label_keys(term: Object, field: str) -> list[Cause]:
    """Check keys of the pod's own labels that extend a selector: the selector must not also name them."""
    selector = term.get("labelSelector")
    matching, mismatching = term.get("matchLabelKeys") or (), term.get("mismatchLabelKeys") or ()
    causes: list[Cause] = []
    for member, keys in (("matchLabelKeys", matching), ("mismatchLabelKeys", mismatching)):
        if keys and selector is None:
            causes.append(forbidden(f"{field}.{member}", "must not be specified when labelSelector is not set"))
            continue
        for index, key in enumerate(keys):
            causes += qualified_name(key, f"{field}.{member}[{index}]")
    selected = set((selector or {}).get("matchLabels") or ())
    positions = {key: index for index, key in reversed(list(enumerate(matching)))}
    for each in (selector or {}).get("matchExpressions") or ():
        key = each.get("key", "")
        if key in positions and key in selected:
            # A new pod has each key in its selector once already (_expand_label_keys). A second time is an error.
            detail = "exists in both matchLabelKeys and labelSelector"
            causes.append(invalid_value(f"{field}[{positions[key]}]", key, detail))
        selected.add(key)
    excluded = set(mismatching)
    for index, key in enumerate(matching):
        if key in excluded:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            causes.append(invalid_value(f"{field}.matchLabelKeys[{index}]", key, detail))
    return causes


# -- labels of nodes --------------------------------------------------------------------------------------------------

OLD_NODE_LABELS: Final[Mapping[str, str]] = {
    old: f'deprecated since {since}; use "{new}" instead'
    for old, since, new in (
        ("beta.kubernetes.io/arch", "v1.14", "kubernetes.io/arch"),
        ("beta.kubernetes.io/os", "v1.14", "kubernetes.io/os"),
        ("beta.kubernetes.io/instance-type", "v1.17", "node.kubernetes.io/instance-type"),
        ("failure-domain.beta.kubernetes.io/region", "v1.17", "topology.kubernetes.io/region"),
        ("failure-domain.beta.kubernetes.io/zone", "v1.17", "topology.kubernetes.io/zone"),
    )
}


def old_label_warnings(label: str, field: str) -> list[str]:
    """Return a warning if a node label is deprecated in favour of another name."""
    return [f"{field}: {OLD_NODE_LABELS[label]}"] if label in OLD_NODE_LABELS else []
