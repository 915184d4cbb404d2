"""The parts of configurations that were seen before.

Operators apply the same configuration again and again, or change one field of it. So the set of each large top-level
field is kept by the digest of its JSON text, and only the others are read:

    apply 1    metadata, spec (20 KB)    both are read
    apply 2    metadata, the same spec   metadata is read

Only valid parts are kept, so a known one needs no validation. Its text decides: 1 is not 1.0, and the order of keys
counts. The metadata is never kept: it differs from object to object.

A part whose apply to a value of the live object left that as it was will do so again. So it is taken out of the body,
which is decoded without it (``Settled``):

    apply 2    {"metadata":{…},"spec":{…20 KB…}}     the live spec stays as it is
    apply 3    {"metadata":{…},"spec":"…taken"}      is decoded
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import msgspec
import orjson

from kubechronicle.api.managed_fields.field_sets import FieldSet
from kubechronicle.api.meta import stored_contents
from kubechronicle.api.patch import typed_matchers, typed_readers
from kubechronicle.api.schema.types import ObjectType
from kubechronicle.api.values.caches import CACHES
from kubechronicle.api.values.recent import Recent

LARGE: Final = 1024
"""Bytes from which a part is kept. A smaller one is read as quickly as its digest is computed."""

KEPT_BYTES: Final = 1024 * 1024
"""Bytes of the parts of a generation, of which there are two. A set takes up to ten times its part."""

NOTHING: Final[FieldSet] = {}
_Part = tuple[ObjectType, str, bytes]
_known: Final[Recent[_Part, FieldSet]] = CACHES.add("parts of configurations", Recent(KEPT_BYTES))
_CONTAINERS: Final = frozenset((dict, list))


def read(config: dict[str, Any], kind: ObjectType, last: FieldSet = NOTHING) -> FieldSet | None:
    """Return ``typed_readers.read`` of a configuration: its field set, None if it may be invalid.

    ``last``: the set of the manager's last apply. The result has its nodes for the fields that are the same.
    """
    named: FieldSet = {}
    for name, value in config.items():
        known = value.__class__ in _CONTAINERS and name != "metadata"
        part = _read_known(name, value, kind, last) if known else typed_readers.read({name: value}, kind)
        if part is None:
            return None
        named.update(part)
    return named


def _read_known(name: str, value: Any, kind: ObjectType, last: FieldSet) -> FieldSet | None:
    text = _text_of_large(value)
    if text is None:
        return typed_readers.read({name: value}, kind)
    key = (kind, name, sha256(text, usedforsecurity=False).digest())
    former = last.get(f"f:{name}")
    part = _known.get(key)
    if part is not None:
        node = part.get(f"f:{name}")
        if node is former or node != former:
            return part
    elif former is None or name not in kind.fields or not typed_matchers.matches(value, former, kind.fields[name].type):
        former = None
    if former is not None:
        part = {f"f:{name}": former}  # so that later comparisons end at the identity
    elif part is None:
        part = typed_readers.read({name: value}, kind)
    if part is not None:
        _known.add(key, part, len(text))
    return part


def _text_of_large(value: Any) -> bytes | None:
    """Return the JSON text of a large part; None if it is small or has none."""
    try:
        text = orjson.dumps(value)
    except TypeError:  # too deep, or an integer beyond 64 bits
        return None
    return text if len(text) >= LARGE else None


# -- parts that leave the object as it is -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Settled:
    """A part that leaves the value of its field as it is.

    ``text``: of the part, as it stands in bodies. ``live``: the value. ``node``: that of the part in a field set.
    """

    kind: ObjectType
    name: str
    text: bytes
    live: Any
    node: FieldSet


_settled: Final[Recent[tuple[int, str], Settled]] = CACHES.add("settled parts", Recent(KEPT_BYTES))
"""By the identity of the live value, which lives as long as the entry, and the manager."""

TAKEN: Final = "kubechronicle: taken out"
"""The text in the place of a part."""

_TAKEN: Final = orjson.dumps(TAKEN)
_SOUGHT: Final = 64  # bytes by which a text is found
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def take_out(body: bytes, live: dict[str, Any], kind: ObjectType, manager: str) -> tuple[bytes, Settled] | None:
    """Return (the body with TAKEN in the place of a settled part, that part); None if it has none.

    The text may stand for another field: ``was_taken_out`` tells.
    """
    for name, value in live.items():
        known = _settled.get((id(value), manager)) if value.__class__ is dict else None
        if known is not None and (known.kind, known.name) == (kind, name):
            begin = body.find(known.text[:_SOUGHT])
            if begin >= 0 and body.startswith(known.text, begin):
                return _TAKEN.join((body[:begin], body[begin + len(known.text) :])), known
    return None


def was_taken_out(config: dict[str, Any], part: Settled) -> bool:
    """Remove TAKEN from a decoded body. Return whether it stood in the place of the part, and nowhere else."""
    return config.pop(part.name, None) == TAKEN and _TAKEN not in orjson.dumps(config)


def note_settled(body: bytes, name: str, live: dict[str, Any], kind: ObjectType, manager: str, node: FieldSet) -> None:
    """Note that the part of this name in a body, which has been read as plain, left the live object as it is.

    ``node``: that of the part. Only for values that are known (stored_contents.py), which never change.
    """
    stored = stored_contents.text_of(name, live[name])
    text = bytes(_members(body)[name])
    if stored is not None and len(text) >= LARGE:
        part = Settled(kind, name, text, live[name], node)
        _settled.add((id(live[name]), manager), part, len(text) + len(stored))
