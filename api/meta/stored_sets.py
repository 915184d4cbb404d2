"""The field sets of stored custom objects, which are decoded once for many objects and writes.

The set of the fields that a manager owns (``fieldsV1`` in ``metadata.managedFields``) takes as many bytes as the rest
of a large object. It stays the same while values change, and is the same in many objects. So the sets that were read
last are kept by their text, and a set that was read is written as that text.

    {…"managedFields":[{…"fieldsV1":{"f:spec":{}},"manager":"a",…}],…}     a stored object
                                    {"f:spec":{}}                          the text of its set

Not here: the contents of objects, the rest but the metadata (stored_contents.py).
Invariant: sets never change, so all objects share them.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from kubechronicle.api.meta import stored_contents
from kubechronicle.api.values.caches import CACHES
from kubechronicle.api.values.known_texts import KnownTexts

FieldSet = dict[str, Any]

KEPT_BYTES: Final = 512 * 1024
"""Bytes of the texts of a generation, of which there are two. A set takes up to ten times its text."""

LEAST: Final = 256
"""Bytes of a text that is kept. A shorter one is decoded as quickly as it is found."""

_BEGIN: Final = b'"fieldsV1":'
_END: Final = b',"manager":"'


_sets: Final[KnownTexts[FieldSet]] = CACHES.add("stored field sets", KnownTexts(KEPT_BYTES))


def _set_of(text: bytes) -> FieldSet:
    """Return the set of a text. orjson.JSONDecodeError if it is not JSON."""
    known = _sets.get(text)
    if known is not None:
        return known
    fields: FieldSet = orjson.loads(text)
    if len(text) >= LEAST:
        _sets.add(text, fields)
    return fields


def decode(stored: bytes) -> dict[str, Any]:
    """Return a stored object with sorted keys as orjson decodes it. It shares field sets and large values with others,
    so nothing in it may be changed but the object and its metadata."""
    split = stored_contents.split(stored)
    if split is not None:
        head, contents = split
        try:
            return _decode(head) | contents
        except orjson.JSONDecodeError:  # its metadata end elsewhere
            pass
    return _decode(stored)


def _decode(stored: bytes) -> dict[str, Any]:
    pieces: list[bytes] = []
    sets: list[FieldSet] = []
    done = 0
    try:
        while (begin := stored.find(_BEGIN, done)) >= 0:
            begin += len(_BEGIN)
            end = stored.find(_END, begin)
            if end < 0:
                break
            sets.append(_set_of(stored[begin:end]))
            pieces += (stored[done:begin], b"%d" % (len(sets) - 1))
            done = end
    except orjson.JSONDecodeError:  # not the set of a manager, or of one without a name
        sets = []
    if sets:
        obj: dict[str, Any] = orjson.loads(b"".join((*pieces, stored[done:])))
        if _insert(obj, sets):
            return obj
    whole: dict[str, Any] = orjson.loads(stored)
    return whole


def _insert(obj: dict[str, Any], sets: list[FieldSet]) -> bool:
    """Put sets in the places of their numbers. Return whether these are all in managedFields."""
    metadata = obj.get("metadata")
    entries = metadata.get("managedFields") if isinstance(metadata, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return False
    numbered = [entry for entry in entries if entry.get("fieldsV1").__class__ is int]
    if [entry["fieldsV1"] for entry in numbered] != list(range(len(sets))):
        return False
    for entry in numbered:
        entry["fieldsV1"] = sets[entry["fieldsV1"]]
    return True


def as_written(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries of managers for orjson, with the texts of the sets that were read."""
    written = []
    for entry in entries:
        text = _sets.text_of(entry.get("fieldsV1"))
        written.append(entry if text is None else {**entry, "fieldsV1": orjson.Fragment(text)})
    return written
