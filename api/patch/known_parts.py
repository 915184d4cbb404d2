"""The field sets of configurations whose parts were applied before.

Operators apply the same configuration again and again, or change one field of it. So the set of each large top-level
field is kept by the digest of its JSON text, and only the others are read:

    apply 1    metadata, spec (20 KB)    both are read
    apply 2    metadata, the same spec   metadata is read

Only valid parts are kept, so a known one needs no validation. Its text decides: 1 is not 1.0, and the order of keys
counts. The metadata is never kept: it differs from object to object.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

import orjson

from kubechronicle.api.managed_fields.field_sets import FieldSet
from kubechronicle.api.patch import typed_values
from kubechronicle.api.schema.types import ObjectType
from kubechronicle.api.values.recent import Recent

LARGE: Final = 1024
"""Bytes from which a part is kept. A smaller one is read as quickly as its digest is computed."""

KEPT_BYTES: Final = 1024 * 1024
"""Bytes of the parts of a generation, of which there are two. A set takes up to ten times its part."""

_known: Final[Recent[tuple[ObjectType, str, bytes], FieldSet]] = Recent(KEPT_BYTES)
_CONTAINERS: Final = frozenset((dict, list))


def read(config: dict[str, Any], kind: ObjectType) -> FieldSet | None:
    """Return ``typed_values.read`` of a configuration: its field set, None if it may be invalid."""
    named: FieldSet = {}
    for name, value in config.items():
        known = value.__class__ in _CONTAINERS and name != "metadata"
        part = _read_known(name, value, kind) if known else typed_values.read({name: value}, kind)
        if part is None:
            return None
        named.update(part)
    return named


def _read_known(name: str, value: Any, kind: ObjectType) -> FieldSet | None:
    try:
        text = orjson.dumps(value)
    except TypeError:  # too deep, or an integer beyond 64 bits
        return typed_values.read({name: value}, kind)
    if len(text) < LARGE:
        return typed_values.read({name: value}, kind)
    key = (kind, name, sha256(text, usedforsecurity=False).digest())
    part = _known.get(key)
    if part is None:
        part = typed_values.read({name: value}, kind)
        if part is not None:
            _known.add(key, part, len(text))
    return part
