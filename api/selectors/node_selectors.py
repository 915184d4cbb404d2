"""Selectors of nodes: terms of which one must match, by labels and by the node's name (core/v1 NodeSelector)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kubechronicle.api.selectors.label_selectors import LabelSelector, Requirement, operator_of

NodeMatcher = Callable[[Mapping[str, str], str], bool]
"""(labels, name) -> whether the node is selected."""


def node_matcher(selector: Mapping[str, Any]) -> NodeMatcher:
    """Return the function of a valid selector. A term without conditions selects no node."""
    terms = [_term(term) for term in selector.get("nodeSelectorTerms") or ()]
    terms = [(labels, fields) for labels, fields in terms if not (labels.empty and fields.empty)]

    def matches(labels: Mapping[str, str], name: str) -> bool:
        fields = {"metadata.name": name}
        return any(one.matches(labels) and other.matches(fields) for one, other in terms)

    return matches


def _term(term: Mapping[str, Any]) -> tuple[LabelSelector, LabelSelector]:
    labels, fields = (_selector(term.get(name) or ()) for name in ("matchExpressions", "matchFields"))
    return labels, fields


def _selector(expressions: Any) -> LabelSelector:
    return LabelSelector(
        Requirement(each["key"], operator_of(each["operator"]), tuple(each.get("values") or ())) for each in expressions
    )
