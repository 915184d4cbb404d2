"""The parts of configurations and of objects that were seen before.

Operators apply the same configuration again and again, or change one field of it. So the set of each large top-level
field is kept by the digest of its JSON text, and only the others are read:

    apply 1    metadata, spec (20 KB)    both are read
    apply 2    metadata, the same spec   metadata is read

Only valid parts are kept, so a known one needs no validation. Its text decides: 1 is not 1.0, and the order of keys
counts. The metadata is never kept: it differs from object to object.

The large parts of the object that an apply makes are noted, too. The next apply finds them in the live object, and need
not check their types again.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

import orjson

from kubechronicle.api.managed_fields.field_sets import FieldSet
from kubechronicle.api.patch import typed_values
from kubechronicle.api.schema.equality import same_json
from kubechronicle.api.schema.types import ObjectType
from kubechronicle.api.values.recent import Recent

LARGE: Final = 1024
"""Bytes from which a part is kept. A smaller one is read as quickly as its digest is computed."""

KEPT_BYTES: Final = 1024 * 1024
"""Bytes of the parts of a generation, of which there are two. A set takes up to ten times its part."""

FITTING: Final = 1024
"""Parts of objects of a generation, of which there are two: a hundred bytes each."""

_fitting: Final[Recent[tuple[ObjectType, str, bytes], bool]] = Recent(FITTING)
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
    text = _text_of_large(value)
    if text is None:
        return typed_values.read({name: value}, kind)
    key = (kind, name, sha256(text, usedforsecurity=False).digest())
    part = _known.get(key)
    if part is None:
        part = typed_values.read({name: value}, kind)
        if part is not None:
            _known.add(key, part, len(text))
    return part


def note_fitting(obj: dict[str, Any], live: dict[str, Any], kind: ObjectType) -> None:
    """Note the large parts of an object that is merged from a fitting one and a valid configuration.

    ``live``: the former. Its parts that are still there are not noted again.
    """
    for name, value in obj.items():
        if value.__class__ in _CONTAINERS and name != "metadata" and live.get(name) is not value:
            text = _text_of_large(value)
            if text is not None:
                _fitting.add((kind, name, sha256(text, usedforsecurity=False).digest()), value=True)


def misfits(live: dict[str, Any], kind: ObjectType, config: dict[str, Any]) -> list[str]:
    """Return ``typed_values.misfits`` of a live object. ``config``: a valid configuration for it."""
    left = {name: value for name, value in live.items() if not _fits(name, value, config.get(name), kind)}
    return typed_values.misfits(left, kind, valid=config) and typed_values.misfits(live, kind, valid=config)


def _fits(name: str, value: Any, applied: Any, kind: ObjectType) -> bool:
    """Return whether a part is known to fit."""
    if value.__class__ not in _CONTAINERS or name == "metadata":
        return False
    if same_json(value, applied):
        return True
    text = _text_of_large(value)
    return text is not None and _fitting.get((kind, name, sha256(text, usedforsecurity=False).digest())) is True


def _text_of_large(value: Any) -> bytes | None:
    """Return the JSON text of a large part; None if it is small or has none."""
    try:
        text = orjson.dumps(value)
    except TypeError:  # too deep, or an integer beyond 64 bits
        return None
    return text if len(text) >= LARGE else None
