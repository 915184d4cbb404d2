"""Path elements: the names of items of sets and keyed lists in a field set (``v:"x"``, ``k:{"name":"c"}``).

After structured-merge-diff. Lives here: from an item to its element. Not here: the sets (field_sets.py), and the text
of elements (field_paths.py).
"""

from __future__ import annotations

import re
from itertools import repeat
from operator import itemgetter
from typing import Any, Final

import orjson

from kubechronicle.api.schema.types import SCALAR_ZERO, SET, ListType, ObjectType, Scalar


class NoPathElement(ValueError):
    """A list item without a name: it lacks a key field, or is not an object."""


_PLAIN: Final = re.compile(r"[a-zA-Z0-9 !#-%'-;=?-\[\]-~]+").fullmatch
"""Text that JSON does not escape: most keys are names or paths."""

_TEXT: Final = frozenset((str,))

_ESCAPES: Final = {
    **{character: f"\\u{ord(character):04x}" for character in "&<>\u2028\u2029"},
    r"\b": r"\u0008",
    r"\f": r"\u000c",
}
_ESCAPED: Final = re.compile(r"[&<>\u2028\u2029]|\\.")


def _json(value: Any) -> str:
    """Return the text of a key or value as jsoniter writes it: with the characters of HTML escaped."""
    text = orjson.dumps(value).decode()
    return _ESCAPED.sub(lambda found: _ESCAPES.get(found[0], found[0]), text)


def items_by_element(items: list[Any], kind: ListType) -> dict[str, list[Any]]:
    """Return the items by path element; repeated keys have more than one item."""
    found: dict[str, list[Any]] = {}
    for element, item in zip(elements_of(items, kind), items, strict=True):
        found.setdefault(element, []).append(item)
    return found


KEY_DEFAULTS: Final[dict[str, Any]] = {"protocol": "TCP"}
"""Defaults of optional key fields, for all types."""

TYPE_KEY_DEFAULTS: Final[dict[tuple[str, str], Any]] = {("LocalObjectReference", "name"): ""}
"""Defaults of optional key fields of one type."""


def elements_of(items: list[Any], kind: ListType) -> list[str]:
    """Return the path elements of all items, as ``item_element`` does. Most have one key, which is a short text."""
    name = kind.only_key
    if name is not None:
        try:
            keys = list(map(itemgetter(name), items))
        except (KeyError, TypeError):  # no key, or no object
            keys = []
        if keys and _TEXT.issuperset(map(type, keys)):
            elements = list(map(_plain_element, repeat(name), keys))
            if "" not in elements:
                return elements
    return [item_element(item, kind) for item in items]


def item_element(item: Any, kind: ListType) -> str:
    """Return the path element of an item of a set or a keyed list. NoPathElement if it has none."""
    if kind.list_type != SET:
        return key_element(item, kind)
    if item.__class__ is dict:
        raise NoPathElement("associative list without keys has an element that's a map type")
    if item.__class__ is list:
        raise NoPathElement("not supported: associative list with lists as elements")
    if item is None:
        raise NoPathElement("associative list without keys has an element that's an explicit null")
    return f"v:{_json(item)}"


def _key_default(name: str, kind: ListType) -> Any:
    """Return the value of an absent key field: its default, or zero if required; None: not part of the key."""
    item = kind.item
    if kind.key_defaults is not None:
        return kind.key_defaults.get(name)
    if name in KEY_DEFAULTS or not isinstance(item, ObjectType):
        return KEY_DEFAULTS.get(name)
    field = item.fields.get(name)
    if field is not None and field.null_stays and isinstance(field.type, Scalar):
        return SCALAR_ZERO[field.type.kind]
    return TYPE_KEY_DEFAULTS.get((item.go_name, name))


def _plain_element(name: str, value: str) -> str:
    """Return the element of an item with one key; "" if its text needs escapes."""
    return f'k:{{"{name}":"{value}"}}' if _PLAIN(value) else ""


def may_lack_keys(kind: ListType) -> bool:
    """Tell whether an item of a keyed list of a built-in kind may have no key: none is written always or defaulted."""
    return all(_key_default(name, kind) is None for name in kind.keys)


def key_element(item: Any, kind: ListType) -> str:
    """Return the path element of an item of a keyed list. NoPathElement if it is not an object or has no key."""
    if item.__class__ is not dict:
        what = "a null element" if item is None else "non-map elements"
        raise NoPathElement(f"associative list with keys may not have {what}")
    name = kind.only_key
    if name is not None:
        value = item.get(name)
        if value.__class__ is str and (element := _plain_element(name, value)):
            return element
    keys = {}
    for key in kind.keys:
        value = item[key] if key in item else _key_default(key, kind)
        if value is not None or key in item:
            keys[key] = value
    if not keys:
        listed = " ".join(f'"{name}"' for name in kind.declared_keys)
        raise NoPathElement(
            f"associative list with keys has an element that omits all key fields [{listed}] "
            "(and doesn't have default values for any key fields)"
        )
    return f"k:{_json(keys)}"


# Order


def in_order(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a set with its own elements, not those below, in the order in which Kubernetes writes them.

    Clients that compare the bytes of two answers see another order as a difference.
    """
    if len(fields) < 2:
        return fields
    elements = list(fields)
    # A list of objects has more than names: {"containerPort":80} stands before {"containerPort":443}.
    in_list = elements[-1][0] in "kvi" or elements[0][0] in "kvi"
    found = sorted(elements)
    if in_list and not _text_order_holds(found):
        found.sort(key=order_of)
    return fields if found == elements else {element: fields[element] for element in found}


def _text_order_holds(elements: list[str]) -> bool:
    """Tell whether elements in the order of their texts are in order: so are those of one key with plain names.

    Between ``k:{"name":"a"}`` and ``k:{"name":"ab"}`` the quote decides. It is less than any character of a name, but
    for the two that are looked for, and the backslash of an escape.
    """
    first, last = elements[elements[0] == "."], elements[-1]
    prefix = first[: first.find('":"') + 3]
    if len(prefix) < 3 or not last.startswith(prefix):  # then so do all between them
        return False
    text = "".join(elements)
    return text.count('"') == 4 * text.count("k:{") and not (" " in text or "!" in text or "\\" in text)


def order_of(element: str) -> tuple[Any, ...]:
    """Return the sort key of an element: names of fields first, then keys, values and indices."""
    form, rest = element[:2], element[2:]
    if form == "k:":
        return (1, *((name, *_value_order(value)) for name, value in keys_of(rest)))
    if form == "v:":
        return (2, _value_order(orjson.loads(rest)))
    return (3, int(rest)) if form == "i:" else (0, rest)


def keys_of(text: str) -> list[tuple[str, Any]]:
    """Return the key fields of an element without its ``k:``, by name."""
    return sorted(orjson.loads(text).items())


def _value_order(value: Any) -> tuple[int, Any]:
    if isinstance(value, bool):
        return 2, value
    if isinstance(value, int | float):
        return 0, value
    return (1, value) if isinstance(value, str) else (3, 0)
