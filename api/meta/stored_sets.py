"""The field sets of stored custom objects, which are decoded once for many objects and writes.

The set of the fields that a manager owns (``fieldsV1`` in ``metadata.managedFields``) takes as many bytes as the rest
of a large object. It stays the same while values change, and is the same in many objects. So the sets that were read
last are kept by their text, and a set that was read is written as that text.

    {…"managedFields":[{…"fieldsV1":{"f:spec":{}},"manager":"a",…}],…}     a stored object
                                    {"f:spec":{}}                          the text of its set

Invariant: sets never change, so all objects share them.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

FieldSet = dict[str, Any]

KEPT_BYTES: Final = 512 * 1024
"""Bytes of the texts of a generation, of which there are two. A set takes up to ten times its text."""

LEAST: Final = 256
"""Bytes of a text that is kept. A shorter one is decoded as quickly as it is found."""

_BEGIN: Final = b'"fieldsV1":'
_END: Final = b',"manager":"'


class _Generation:
    """Sets by their text, and texts by the identity of their set, which lives as long as the generation."""

    __slots__ = ("by_identity", "by_text", "weight")

    def __init__(self) -> None:
        self.by_text: dict[bytes, FieldSet] = {}
        self.by_identity: dict[int, tuple[FieldSet, bytes]] = {}
        self.weight = 0

    def add(self, text: bytes, fields: FieldSet) -> None:
        self.by_text[text] = fields
        self.by_identity[id(fields)] = fields, text
        self.weight += len(text)


class StoredSets:
    """The sets that were read last; several threads may use it at once."""

    __slots__ = ("_former", "_now")

    def __init__(self) -> None:
        self._now = _Generation()
        self._former = _Generation()

    def of(self, text: bytes) -> FieldSet:
        """Return the set of a text. orjson.JSONDecodeError if it is not JSON."""
        fields = self._now.by_text.get(text)
        if fields is not None:
            return fields
        fields = self._former.by_text.get(text)
        if fields is None:
            fields = orjson.loads(text)
        if len(text) >= LEAST:
            if self._now.weight > KEPT_BYTES:
                self._former, self._now = self._now, _Generation()
            self._now.add(text, fields)
        return fields

    def text_of(self, fields: Any) -> bytes | None:
        """Return the text of a set that was read; None if it is not known."""
        key = id(fields)
        found = self._now.by_identity.get(key) or self._former.by_identity.get(key)
        return found[1] if found is not None and found[0] is fields else None


_sets: Final = StoredSets()


def decode(stored: bytes) -> dict[str, Any]:
    """Return a stored object with sorted keys as orjson decodes it. It shares field sets with others."""
    pieces: list[bytes] = []
    sets: list[FieldSet] = []
    done = 0
    try:
        while (begin := stored.find(_BEGIN, done)) >= 0:
            begin += len(_BEGIN)
            end = stored.find(_END, begin)
            if end < 0:
                break
            sets.append(_sets.of(stored[begin:end]))
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
