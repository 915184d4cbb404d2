"""Lists of objects that have the same fields, seen by column, so that loops in C look at their values.

Objects are mostly large by such lists. Their field sets follow from the names of the fields and from the keys alone:

    [{"name": "a", "port": 1}, {"name": "b", "port": 2}]    names ("name", "port"), columns ("a", "b") and (1, 2)

The set of a small new object follows from its shape: the names of all its fields.
Not here: the field sets themselves (field_sets.py).
"""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

from kubechronicle.api.schema.types import ListType

MANY: Final = 6
"""Items from which loops in C are quicker than one look at each."""

KNOWN_ITEMS: Final = 16 * 1024
"""Items of the lists of a generation whose nodes are kept, of which there are two. An item takes up to 300 bytes."""

KNOWN_BYTES: Final = 256 * 1024
"""Bytes of the shapes of a generation, of which there are two, for which the sets of small objects are kept."""

MOST_NAMES: Final = 32
"""Fields of an item in lists whose nodes are kept."""

MAX_KEPT: Final = 128
"""Characters of a name, key or value in a node that is kept."""

Columns = list[tuple[Any, ...]]
Shape = tuple[Any, ...]
"""The names of an object's fields; before the name of a map, the shape of that."""

_CONTAINERS: Final = frozenset((dict, list))
_OBJECTS: Final = {dict}
_TEXTS: Final = {str}


def columns_of(items: list[Any]) -> tuple[tuple[str, ...], Columns] | None:
    """Return (names of fields, values by field) of objects with the same fields in the same order; None of others."""
    if {*map(type, items)} != _OBJECTS:
        return None
    names = tuple(items[0])
    # Names are unique in an object. So none has more than this many, and all have them if the joined ones are these.
    if [*chain.from_iterable(items)] != [*names] * len(items):
        return None
    values = tuple(chain.from_iterable(map(dict.values, items)))
    return names, [values[first :: len(names)] for first in range(len(names))]


def keys_of(names: tuple[str, ...], columns: Columns, kind: ListType) -> tuple[str, ...] | None:
    """Return the keys of the items of a list; None unless all are short texts of the list's only key field.

    None also if the names are too many or too long to be kept.
    """
    if kind.only_key not in names or len(names) > MOST_NAMES or not are_short(names):
        return None
    keys = columns[names.index(kind.only_key)]
    return keys if are_short(keys) else None


def are_short(values: tuple[Any, ...]) -> bool:
    """Return whether all values, one at least, are texts that may be kept."""
    return {*map(type, values)} == _TEXTS and len(max(values, key=len)) <= MAX_KEPT


def shape_of(obj: dict[str, Any]) -> Shape | None:
    """Return the shape of an object that holds maps of leaves, and in its metadata, maps of these; None of others."""
    shape: list[Any] = []
    for name, item in obj.items():
        if item.__class__ is dict:
            if _CONTAINERS.isdisjoint(map(type, item.values())):
                shape.append(tuple(item))
            elif name == "metadata" and "metadata" not in item and (below := shape_of(item)) is not None:
                shape.append(below)
            else:
                return None
        elif item.__class__ is list:
            return None
        shape.append(name)
    return tuple(shape)
