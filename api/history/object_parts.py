"""Parts of objects: the JSON of an object reduced to some fields, without decoding the rest.

    fields    spec.replicas, metadata.labels
    object    {"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","labels":{…}},"spec":{"replicas":3,…}}
    parts     {"apiVersion":"apps/v1","kind":"Deployment","metadata":{"labels":{…}},"spec":{"replicas":3}}

A field has its whole value, and a field that the object lacks is missing in the parts as well. So a reader of these
fields alone finds the same in both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from itertools import takewhile
from typing import Any, Final, TypeAlias

import msgspec
import orjson
from msgspec import UNSET, UnsetType

from kubechronicle.api.history.differences import canonical, steps

MOST_FIELDS: Final = 64
"""Fields, and mappings above them, of one request. Each mapping costs 0.1 ms, once for the same fields."""
ALWAYS: Final = ("apiVersion", "kind")
"""Fields that every object keeps."""

Parts: TypeAlias = Callable[[bytes], msgspec.Struct | msgspec.Raw]
"""Return the parts of an object's JSON, for msgspec to encode; of JSON with another shape than the fields have, all."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_Tree: TypeAlias = "dict[str, _Tree]"


def parts_of(fields: Iterable[str], api_version: str = "") -> Parts:
    """Return the function for some fields: paths of names, as in differences.py. ValueError.

    Below a list, and at a name in brackets, a path ends: all of the list or mapping is kept. ``api_version``: objects
    in other versions, where fields may stand elsewhere, are kept as a whole.
    """
    first = b'"apiVersion":%b' % orjson.dumps(api_version) if api_version else b""
    return _parts(tuple(sorted(set(fields))), (b"{%b" % first, b"{ %b" % first))  # the forms of meta/encoding.py


def fields_read(paths: Iterable[str], variables: Collection[str]) -> tuple[str, ...] | None:
    """Return the fields of objects that an expression reads, None: objects as a whole.

    ``paths``: the paths in the expression (Program.reads). ``variables``: those that stand for objects.
    """
    found = set[str]()
    for path in paths:
        head, *names = path.split(".")
        if head in variables:
            names = list(takewhile(_NAME.fullmatch, names))
            if not names:
                return None
            found.add(".".join(names))
    return tuple(sorted(found))


def _parts(fields: tuple[str, ...], begins: tuple[bytes, ...]) -> Parts:
    tree: _Tree = {name: {} for name in ALWAYS}
    for field in fields:
        names = list(takewhile(lambda step: not step.startswith("["), steps(canonical(field))))
        if not names:
            raise ValueError(f"{field!r} is no path of a field, as spec.replicas is")
        _add(tree, names)
    if _count(tree) > MOST_FIELDS:
        raise ValueError(f"more than {MOST_FIELDS} fields, with the mappings above them")
    decode = msgspec.json.Decoder(_struct(tree)).decode

    def parts(body: bytes) -> msgspec.Struct | msgspec.Raw:
        if body.startswith(begins):
            try:
                return decode(body)
            except msgspec.DecodeError:
                pass
        return msgspec.Raw(body)

    return parts


def _add(tree: _Tree, names: list[str]) -> None:
    """Add a path to a tree, in which a name without others below it stands for the whole value."""
    for name in names[:-1]:
        if name in tree and not tree[name]:
            return
        tree = tree.setdefault(name, {})
    tree[names[-1]] = {}


def _count(tree: _Tree) -> int:
    return len(tree) + sum(map(_count, tree.values()))


def _struct(tree: _Tree) -> type[msgspec.Struct]:
    """Return a record of the fields of a mapping. Their values stay JSON, and a null in place of a mapping is kept."""
    fields: list[tuple[str, Any, Any]] = []
    names = {}
    for number, (name, below) in enumerate(tree.items()):
        value = _struct(below) | None if below else msgspec.Raw
        fields.append((f"field_{number}", value | UnsetType, UNSET))
        names[f"field_{number}"] = name
    return msgspec.defstruct("Parts", fields, rename=names, gc=False)
