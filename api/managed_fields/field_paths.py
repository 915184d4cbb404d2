"""Paths of a field set as texts, in Kubernetes' order.

    {"f:spec": {"f:containers": {"k:{\\"name\\":\\"c\\"}": {"f:image": {}}}}}  ->  .spec.containers[name="c"].image

field_sets.py has the sets themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from kubechronicle.api.errors.field_errors import go_number, go_quote
from kubechronicle.api.managed_fields.field_sets import SELF, FieldSet
from kubechronicle.api.managed_fields.path_elements import keys_of, order_of


def paths(fields: FieldSet, prefix: str = "") -> Iterator[str]:
    """Yield the members of a set: at each level the members first, then the members below its elements."""
    elements = sorted((element for element in fields if element != SELF), key=order_of)
    for element in elements:
        node = fields[element]
        if not node or SELF in node:
            yield prefix + element_text(element)
    for element in elements:
        if fields[element]:
            yield from paths(fields[element], prefix + element_text(element))


def element_text(element: str) -> str:
    """Return a path element as messages show it: ``.name``, ``[key="value"]``, ``[="value"]`` or ``[0]``."""
    form, rest = element[:2], element[2:]
    if form == "k:":
        return "[" + ",".join(f"{name}={_text(value)}" for name, value in keys_of(rest)) + "]"
    if form == "v:":
        return f"[={_text(orjson.loads(rest))}]"
    return f"[{rest}]" if form == "i:" else f".{rest}"


def _text(value: Any) -> str:
    """Return a value as structured-merge-diff prints it. Lists and maps are no keys, but stand in errors about them."""
    if isinstance(value, str):
        return go_quote(value)
    if value is None:
        return "null"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    if isinstance(value, dict):
        return "".join(f"{name}={_text(item)}" for name, item in value.items())
    return str(value).lower() if isinstance(value, bool) else go_number(value)
