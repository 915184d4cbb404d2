"""Complaints about the fields of bodies in CBOR, in the words of its decoder, from those about the same JSON.

That decoder names only the first unknown field, by its place among the members of its object. Of a wrong value it
names the innermost struct, with its Go package:

    unknown field "codd"                                        found unknown field at map element index 4
    cannot unmarshal number into Go struct field                cannot unmarshal positive integer into Go struct field
    Container.spec.containers.name of type string               v1.Container.name of type string
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kubechronicle.api.codecs import cbor
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.schema import types

_MISMATCH: Final = re.compile(r"json: cannot unmarshal (\w+).* into Go struct field (\w+)\.([\w.$-]+) of type (.+)")
_WORDS: Final[dict[str, Any]] = {"string": str, "array": list, "object": dict, "bool": bool, "number": (int, float)}
_INDEX: Final = re.compile(r"\[(\d+)\]\.?")


def unknown_field(document: bytes, paths: Sequence[str]) -> str:
    """Return the complaint about the first unknown field of a document. ``paths``: of all, at least one."""
    index = _place(cbor.decode_value(document), paths[0])
    return f"cbor: found unknown field at map element index {index}"


def _place(value: Any, path: str) -> int:
    """Return the place of a field among the members of its object, from 0."""
    if value.__class__ is list:
        step = _INDEX.match(path)
        return _place(value[int(step[1])], path[step.end() :]) if step and int(step[1]) < len(value) else 0
    for place, (name, item) in enumerate(value.items() if value.__class__ is dict else ()):
        if path == name:
            return place
        if path.startswith((f"{name}.", f"{name}[")):
            return _place(item, path[len(name) :].removeprefix("."))
    return 0


def wrong_type(rt: ResourceType, text: str, document: bytes) -> str:
    """Return the complaint about a value of a wrong type, from the one about JSON; that itself if it is another one."""
    found = _MISMATCH.fullmatch(text)
    if found is None:
        return text
    word, struct, path, go_type = found.groups()
    values = _at(cbor.decode_value(document), path.split("."))
    wrong = next((value for value in values if isinstance(value, _WORDS.get(word, object))), None)
    field = f"{_package(rt, struct)}.{struct}.{path.rpartition('.')[2]}"
    return f"cbor: cannot unmarshal {cbor.type_name(wrong)} into Go struct field {field} of type {go_type}"


def _package(rt: ResourceType, struct: str) -> str:
    """Return the Go package of a struct: the version of the kind's group, else of the groups that all kinds share."""
    try:
        types.object_type(f"{rt.definition.rpartition('.')[0]}.{struct}")
    except (KeyError, TypeError):
        return "v1"
    return rt.version


def _at(value: Any, names: Sequence[str]) -> Iterator[Any]:
    """Yield the values at a path, of all items of its lists and, where it ends at a map or list, of that."""
    if value.__class__ is list:
        for item in value:
            yield from _at(item, names)
    elif names:
        if value.__class__ is dict and names[0] in value:
            yield from _at(value[names[0]], names[1:])
    else:
        yield value
        if value.__class__ is dict:
            yield from value.values()
