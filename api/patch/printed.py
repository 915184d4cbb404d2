"""The text of a patched object in the error about it: as Go's library for JSON patches and merge patches leaves it.

The library decodes an object only as far as a patch reaches into it. It writes the objects that it has decoded with
sorted keys. All others keep the text they had: the stored object's that of Go's structs, the patch's that of the
client, numbers such as ``1e3`` included.

So the patch is applied a second time here, on a copy that remembers what was decoded. That happens for an error only.
"""

from __future__ import annotations

import json
from typing import Any, Final

import orjson

from kubechronicle.api.codecs.wire.json_order import in_go_order
from kubechronicle.api.errors.field_errors import HTML_ESCAPES
from kubechronicle.api.patch import json_patch

MAX_PRINTED: Final = 256 * 1024
"""Bytes of an object and its patch that are printed in this way, which is slow. Of larger ones, all keys are sorted."""


class _Number(str):
    """A number as the client wrote it."""

    __slots__ = ()


class _Decoded:
    """The objects that the library has decoded. It keeps them, so that their ids stay theirs."""

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}

    def add(self, value: Any) -> None:
        self._objects[id(value)] = value

    def __contains__(self, value: Any) -> bool:
        return id(value) in self._objects


def after_merge_patch(base: bytes, patch: bytes) -> str:
    """Return the text of the object ``base`` after a merge patch that has succeeded."""
    decoded, document, changes = _Decoded(), in_go_order(orjson.loads(base)), _loads(patch)
    if not isinstance(changes, dict):
        return _text(_pruned(changes, decoded), decoded)
    return _text(_merged(document, changes, decoded), decoded)


def after_json_patch(base: bytes, patch: bytes) -> str:
    """Return the text of the object ``base`` after a JSON patch that has succeeded."""
    patching = _Remembering(in_go_order(orjson.loads(base)))
    result = json_patch.run(patching, _loads(patch) or [])
    patching.decoded.add(result)
    return _text(result, patching.decoded)


def _loads(patch: bytes) -> Any:
    return json.loads(patch.decode("utf-8", "replace"), parse_float=_Number, parse_int=_Number)


def _merged(document: dict[str, Any], patch: dict[str, Any], decoded: _Decoded) -> dict[str, Any]:
    decoded.add(document)
    for name, value in patch.items():
        held = document.get(name)
        if value is None:
            document.pop(name, None)
        elif held.__class__ is not dict:
            document[name] = _pruned(value, decoded)
        elif value.__class__ is dict:
            _merged(held, value, decoded)
        else:
            document[name] = value
    return document


def _pruned(value: Any, decoded: _Decoded) -> Any:
    """Drop the null members of objects, which the library decodes for that."""
    if value.__class__ is dict:
        kept = {name: _pruned(item, decoded) for name, item in value.items() if item is not None}
        decoded.add(kept)
        return kept
    if value.__class__ is list:
        return [_pruned(item, decoded) for item in value]
    return value


class _Remembering(json_patch.Patching):
    """Applies a patch that has succeeded, and remembers the objects that the library decodes."""

    def __init__(self, document: dict[str, Any]) -> None:
        super().__init__(document)
        self.decoded = _Decoded()

    def find(self, path: str) -> tuple[Any, str]:
        holder = self.document
        for token in path.split("/")[1:-1]:
            self.decoded.add(holder)
            holder = json_patch.member(holder, token)
        self.decoded.add(holder)
        return super().find(path)

    def copy(self, value: Any) -> Any:
        return _arranged(value, self.decoded)

    def equal(self, found: Any, wanted: Any) -> bool:
        if found.__class__ is dict:
            self.decoded.add(found)
        for item in found.values() if found.__class__ is dict else found if found.__class__ is list else ():
            self.equal(item, None)
        return True


def _arranged(value: Any, decoded: _Decoded) -> Any:
    """Return a copy, with the keys of decoded objects sorted."""
    if value.__class__ is dict:
        names = sorted(value) if value in decoded else value
        return {name: _arranged(value[name], decoded) for name in names}
    if value.__class__ is list:
        return [_arranged(item, decoded) for item in value]
    return value


def _text(value: Any, decoded: _Decoded) -> str:
    pieces: list[str] = []
    _write(value, decoded, pieces)
    text = "".join(pieces)
    for character, escape in HTML_ESCAPES:
        text = text.replace(character, escape)
    return text


def _write(value: Any, decoded: _Decoded, pieces: list[str]) -> None:
    if value.__class__ is dict:
        before = "{"
        for name in sorted(value) if value in decoded else value:
            pieces += before, orjson.dumps(name).decode(), ":"
            _write(value[name], decoded, pieces)
            before = ","
        pieces.append("}" if value else "{}")
    elif value.__class__ is list:
        before = "["
        for item in value:
            pieces.append(before)
            _write(item, decoded, pieces)
            before = ","
        pieces.append("]" if value else "[]")
    else:
        pieces.append(value if value.__class__ is _Number else orjson.dumps(value).decode())
