"""Selectors of a review's resourceAttributes, converted to the text that a request would have.

Requirements that cannot be converted are left out: the review is then about more objects (k8s.io/kubernetes,
registry/authorization/util).

    {"requirements": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}    app in (a,b)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.errors.field_errors import Path
from kubechronicle.api.selectors.field_selectors import FieldSelector, FieldTerm, field_terms, label_selector_problem
from kubechronicle.api.values import names

# Characters of a raw selector; longer ones are ignored. No request line holds as many.
MAX_RAW: Final = 64 * 1024

FIELD_OPERATORS: Final[Mapping[str, bool]] = {"In": True, "NotIn": False}
LABEL_OPERATORS: Final[Mapping[str, str]] = {
    "In": "{key} in ({values})",
    "NotIn": "{key} notin ({values})",
    "Exists": "{key}",
    "DoesNotExist": "!{key}",
}


def field_selector(selector: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the text, and True if nothing was left out."""
    requirements = selector.get("requirements") or ()
    if not requirements:
        raw = selector.get("rawSelector", "")
        return (raw, True) if len(raw) <= MAX_RAW and field_terms(raw) is not None else ("", False)
    terms = []
    for each in requirements:
        key, operator, values = each.get("key", ""), each.get("operator", ""), each.get("values") or []
        if operator in FIELD_OPERATORS and len(values) == 1 and not set(key) & set("=!,\\"):
            terms.append(FieldTerm(key, FIELD_OPERATORS[operator], values[0]))
    return str(FieldSelector(terms)), len(terms) == len(requirements)


def label_selector(selector: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the text, and True if nothing was left out."""
    requirements = selector.get("requirements") or ()
    if not requirements:
        raw = selector.get("rawSelector", "")
        return (raw, True) if len(raw) <= MAX_RAW and label_selector_problem(raw, Path()) is None else ("", False)
    terms = []
    for each in requirements:
        key, values = each.get("key", ""), each.get("values") or []
        form = LABEL_OPERATORS.get(each.get("operator", ""))
        if form is not None and not names.qualified_name(key) and not any(map(names.label_value, values)):
            terms.append(form.format(key=key, values=",".join(values)))
    return ",".join(terms), len(terms) == len(requirements)
