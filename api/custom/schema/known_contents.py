"""Contents that a schema is known to leave as they are, so that it need not walk through them again.

Cleaning and defaulting are pure, and a second pass changes nothing. So the digest of a result proves for any object of
the same contents that both are done. The metadata of the root does not count: it is checked each time.

    POST    decode: {"spec": {}}           -> {"spec": {"size": 3}}, which is noted
            store:  {"spec": {"size": 3}}  -> known
    PATCH   read:   {"spec": {"size": 3}}  -> known

A webhook that changes the object in between makes other contents, which are not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from operator import itemgetter
from typing import Any, Final

import orjson

from kubechronicle.api.custom.numbers import has_whole_floats
from kubechronicle.api.custom.schema.containers import differ
from kubechronicle.api.custom.schema.defaults import META_FIELDS
from kubechronicle.api.custom.schema.failures import Failures
from kubechronicle.api.custom.schema.keywords import own_check
from kubechronicle.api.custom.schema.structure import CONTAINERS, NO_FIELDS, SchemaNode
from kubechronicle.api.custom.schema.tables import Check, Table
from kubechronicle.api.meta import stored_contents

MAX_KNOWN: Final = 256
"""Digests per generation. Two are kept, 60 KB for each schema in use."""


class KnownContents:
    """The digests of the last contents, used by several threads at once."""

    __slots__ = ("_former", "_recent")

    def __init__(self) -> None:
        self._recent: set[bytes] = set()
        self._former: set[bytes] = set()

    def __contains__(self, digest: bytes | None) -> bool:
        return digest in self._recent or digest in self._former

    def add(self, digest: bytes | None) -> None:
        """Note contents; None are not noted."""
        if digest is None:
            return
        if len(self._recent) >= MAX_KNOWN:
            self._former, self._recent = self._recent, set()
        self._recent.add(digest)


def digest_of(obj: dict[str, Any]) -> bytes | None:
    """Return the digest of an object without its metadata; None if it has no JSON text.

    The order of keys, and 1 or 1.0, make a difference.
    """
    return Contents(obj).digest


class Contents:
    """An object without its metadata, as JSON. It serves until one of its values changes.

    ``text``, ``digest``: None if it has no JSON text.
    """

    __slots__ = ("digest", "text")

    def __init__(self, obj: dict[str, Any]) -> None:
        self.text: bytes | None = None
        self.digest: bytes | None = None
        try:
            contents = {name: item for name, item in obj.items() if name != "metadata"}
            self.text = orjson.dumps(stored_contents.with_texts(contents))
        except TypeError:  # an integer beyond 64 bits, or too deep
            return
        self.digest = sha256(self.text, usedforsecurity=False).digest()


def settles(root: SchemaNode) -> bool:
    """Return whether a second pass of a schema changes nothing that the first one left.

    False for rare schemas of which that is not certain: with embedded resources, nulls within defaults, or defaults in
    the metadata of the root.
    """
    if root.deep_embedded:
        return False
    metadata = root.properties.get("metadata")
    if metadata is not None and (metadata.has_default or metadata.deep_defaults):
        return False
    stack = [root]
    while stack:
        node = stack.pop()
        if _holds_null(node.default):
            return False
        if node.deep_defaults:
            stack += node.properties.values()
            stack += [below for below in (node.additional, node.items) if below is not None]
    return True


def _holds_null(default: Any) -> bool:
    stack: list[Any] = [default] if default.__class__ in CONTAINERS else []
    while stack:
        value = stack.pop()
        for item in value.values() if value.__class__ is dict else value:
            if item is None:
                return True
            if item.__class__ in CONTAINERS:
                stack.append(item)
    return False


# -- conforming --------------------------------------------------------------------------------------------------------
#
# Proofs that contents conform to a schema: one walk instead of four.
#
# Such contents need no cleaning and no defaults, are valid, and have no floats that are stored as integers.
#
# A proof is a function that is made once for each level of a schema and class of values. It finds no texts for errors
# and repairs nothing: contents without a proof take the separate walks (pruning, defaults, validation, list types),
# which decide.
#
#     {"size": 3}     {"type": "integer", "minimum": 1}    proved
#     {"size": 0}                                          not proved: validation says why
#     {"size": null}, {"other": 1}, 3.0, a missing default: not proved, though a walk may make valid contents of them
#
# Contents with a proof also fit their type (patch/typed_values.py), so that field managers can handle them: the keys of
# lists are there, and no level is deeper than MAX_DEPTH. The metadata of the root do not count.


MAX_DEPTH: Final = 150
"""The deepest level that is proved."""

MAX_SHAPES: Final = 64
"""Combinations of fields that are remembered for a level."""

_TEXT: Final = frozenset((str,))

Proof = Callable[[Any, Failures], bool]
"""Tell whether a value needs no repair; its other problems are noted as failures."""

_Entry = tuple[Check | None, Proof | None]
"""The check of a value itself and the proof of what is below it; None for what always holds."""


class _Proofs(dict[type, _Entry]):
    """The proofs of one level by the class of the value, made at the first value of a class."""

    __slots__ = ("_depth", "_node", "_table")

    def __init__(self, node: SchemaNode, table: Table, depth: int) -> None:
        super().__init__()
        self._node, self._table, self._depth = node, table, depth

    def __missing__(self, cls: type) -> _Entry:
        found = self[cls] = self._made(cls)
        return found

    def _made(self, cls: type) -> _Entry:
        if cls is dict and self._depth < MAX_DEPTH:
            return own_check(self._table, dict), _object_proof(self._node, self._table, self._depth + 1)
        if cls is list and self._depth < MAX_DEPTH and not self._node.preserve:
            return own_check(self._table, list), _list_proof(self._node, self._table, self._depth + 1)
        if cls is str or cls is bool or cls is int:
            return self._table[cls][1], None
        return (self._table[cls][1], _is_no_whole) if cls is float else (None, _is_unproved)


def _is_kept(value: Any) -> bool:
    """Return whether a value without a schema is stored as it is."""
    if value.__class__ in CONTAINERS:
        return not has_whole_floats(orjson.dumps(value))
    return value.__class__ is not float or not value.is_integer()


class _Without(dict[type, _Entry]):
    """The proofs of a field without a schema."""

    __slots__ = ("_entry",)

    def __init__(self, proof: Proof | None) -> None:
        super().__init__()
        self._entry = None, proof

    def __missing__(self, cls: type) -> _Entry:
        return self._entry


_METADATA: Final = _Without(None)  # checked by its Go type
_KEPT: Final = _Without(lambda value, failures: _is_kept(value))


def proof_of(root: SchemaNode, table: Table) -> Proof:
    """Return the proof of whole objects. ``table``: the checks of the same schema."""
    proofs = _Proofs(root, table, 0)

    def prove(value: dict[str, Any], failures: Failures) -> bool:
        check, proof = proofs[dict]
        if check is not None:
            check(value, None, failures, None)
        return proof is not None and proof(value, failures)

    return prove


def _is_unproved(value: Any, failures: Failures) -> bool:
    return False


def _is_no_whole(value: float, failures: Failures) -> bool:
    """Return whether a float is stored as it is: 1.0 becomes 1."""
    return not value.is_integer()


_Shape = tuple[dict[str, dict[type, _Entry]], bool]
"""The proofs of the fields that an object has, and whether texts prove all of them."""

_UNPROVED: Final[_Shape] = {}, False
"""The shape of objects that are not proved."""


def _object_proof(node: SchemaNode, table: Table, depth: int) -> Proof:
    additional = node.additional
    others = None
    if additional is not None:
        others = _Proofs(additional, table.below(table.schema["additionalProperties"]), depth)
        if not node.properties and not table.schema.get("required"):
            return _map_proof(others)
    members = _Members(node, table, others, depth)
    shapes: dict[tuple[str, ...], _Shape] = {}
    properties = node.properties.keys() | META_FIELDS

    def prove(value: dict[str, Any], failures: Failures) -> bool:
        names = tuple(value)
        shape = shapes.get(names)
        if shape is None:
            shape = members.shape(names)
            if len(shapes) < MAX_SHAPES and properties >= value.keys():
                shapes[names] = shape
        if shape is _UNPROVED:
            return False
        fields, plain = shape
        if plain and _TEXT.issuperset(map(type, value.values())):
            return True
        for name, item in value.items():
            check, proof = fields[name][item.__class__]
            if check is not None:
                check(item, None, failures, None)
            if proof is not None and not proof(item, failures):
                return False
        return not failures  # looked at once for each object, so that many invalid ones end the walk

    return prove


class _Members:
    """The proofs of an object's fields, made at the first use of each."""

    __slots__ = ("_depth", "_needed", "_node", "_others", "_proofs", "_table")

    def __init__(self, node: SchemaNode, table: Table, others: _Proofs | None, depth: int) -> None:
        self._node, self._table, self._others, self._depth = node, table, others, depth
        self._needed = frozenset((*(table.schema.get("required") or ()), *(name for name, _ in node.fillers)))
        self._proofs: dict[str, _Proofs] = {}

    def shape(self, names: tuple[str, ...]) -> _Shape:
        """Return the shape of objects with certain fields."""
        if not self._needed.issubset(names):
            return _UNPROVED
        fields = {name: proofs for name in names if (proofs := self._proofs_of(name)) is not None}
        if len(fields) < len(names):
            return _UNPROVED
        return fields, all(proofs[str] == (None, None) for proofs in fields.values())

    def _proofs_of(self, name: str) -> dict[type, _Entry] | None:
        is_root = self._depth == 1
        if is_root and name == "metadata":
            return _METADATA
        schema = (self._table.schema.get("properties") or NO_FIELDS).get(name)
        if schema is None:
            keeps = self._node.preserve or (is_root and name in META_FIELDS)
            return self._others if self._others is not None else _KEPT if keeps else None
        proofs = self._proofs.get(name)
        if proofs is None:
            proofs = self._proofs[name] = _Proofs(self._node.properties[name], self._table.below(schema), self._depth)
        return proofs


def _map_proof(values: _Proofs) -> Proof:
    """Return the proof of a map from any text to values of one schema."""

    def prove(value: dict[str, Any], failures: Failures) -> bool:
        for item in value.values():
            check, proof = values[item.__class__]
            if check is not None:
                check(item, None, failures, None)
                if failures:
                    return False
            if proof is not None and not proof(item, failures):
                return False
        return True

    return prove


def _list_proof(node: SchemaNode, table: Table, depth: int) -> Proof:
    keys = node.map_keys if node.list_type == "map" else ()
    items = None if node.items is None else _Proofs(node.items, table.below(table.schema["items"]), depth)

    def prove(value: list[Any], failures: Failures) -> bool:
        if items is None:
            return not any(item.__class__ in CONTAINERS for item in value)
        for item in value:
            check, proof = items[item.__class__]
            if check is not None:
                check(item, None, failures, None)
                if failures:
                    return False
            if proof is not None and not proof(item, failures):
                return False
        if node.list_type == "map":
            return _have_keys(value, keys)
        return node.list_type != "set" or (CONTAINERS.isdisjoint(map(type, value)) and differ(value))

    return prove


def _have_keys(items: list[Any], keys: Sequence[str]) -> bool:
    """Return whether the items of a map have all their keys, and no two have the same."""
    try:
        found = list(map(itemgetter(*keys), items))
    except (KeyError, TypeError):  # a key is absent, or an item is no object
        return False
    has_null = None in found if len(keys) == 1 else any(None in each for each in found)
    return not has_null and differ(found)
