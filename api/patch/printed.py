"""The text of a patched object, as Go's library for JSON patches and merge patches leaves it.

The library decodes an object only as far as a patch reaches into it. It writes the objects that it has decoded with
sorted keys. All others keep the text they had: the stored object's that of Go's structs, the patch's that of the
client, with its numbers such as ``1e3``, its escape sequences and its repeated keys.

So the patch is applied here on a copy that remembers what was decoded, and how each part was written. That happens for
an error, and for a JSON patch whose result depends on its text: one with repeated keys, of which every value must have
the right type, and one that tests a value which can be written in several ways. ``test`` compares texts. The text of a
stored object contains ``\u003c`` for ``<``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

import orjson

from kubechronicle.api.codecs.json_order import in_go_order
from kubechronicle.api.errors.field_errors import HTML_ESCAPES
from kubechronicle.api.patch import json_patch

MAX_PRINTED: Final = 256 * 1024
"""Bytes of an object and its patch that are printed in this way, which is slow. Of larger ones, all keys are sorted."""


class _PrintedNumber(str):
    """A number as the client wrote it."""

    __slots__ = ()


class _Text(str):
    """A string, and the client's text between its quotes."""

    __slots__ = ("written",)
    written: str


class _Decoded:
    """The objects that the library has decoded. It keeps them, so that their ids stay theirs."""

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}
        self._repeated: dict[int, tuple[Any, list[tuple[str, Any]]]] = {}

    def add(self, value: Any) -> None:
        self._objects[id(value)] = value

    def __contains__(self, value: Any) -> bool:
        return id(value) in self._objects

    def make(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Return an object of these members, of which several may have the same key."""
        made = dict(pairs)
        if len(made) < len(pairs):
            self._repeated[id(made)] = made, pairs
        return made

    def pairs(self, value: dict[str, Any]) -> Iterable[tuple[str, Any]]:
        """Return the members of an object as the library writes them."""
        if value in self:
            return [(name, value[name]) for name in sorted(value)]
        _, repeated = self._repeated.get(id(value), (None, None))
        return value.items() if repeated is None else repeated


def after_merge_patch(base: bytes, patch: bytes) -> str:
    """Return the text of the object ``base`` after a merge patch that has succeeded."""
    decoded, document = _Decoded(), in_go_order(orjson.loads(base))
    changes = _loads(patch, decoded)
    if not isinstance(changes, dict):
        return _text(_pruned(changes, decoded), decoded)
    return _text(_merged(document, changes, decoded), decoded)


def after_json_patch(base: bytes, patch: bytes) -> str:
    """Return the text of the object ``base`` after a JSON patch. Raises json_patch.PatchFailed."""
    patching = _Remembering(in_go_order(orjson.loads(base)))
    result = json_patch.run(patching, _loads(patch, patching.decoded) or [])
    patching.decoded.add(result)
    return _text(result, patching.decoded)


_SEVERAL_TEXTS: Final = re.compile(rb"[\\<>&]|\xe2\x80[\xa8\xa9]|[0-9][.eE]|-0")


def depends_on_text(patch: bytes) -> bool:
    """Return True if a JSON patch may test a value that can be written in several ways."""
    return b"test" in patch and _SEVERAL_TEXTS.search(patch) is not None


_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED_TWICE: Final = {'"': r"\\\"", "\\": r"\\\\"}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def _loads(patch: bytes, decoded: _Decoded) -> Any:
    """Decode a patch that is JSON. Its numbers and strings know their texts."""

    def made(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return decoded.make([(_string(name), _strings(value)) for name, value in pairs])

    # With their backslashes escaped, escape sequences are part of the strings.
    text = patch.decode("utf-8", "replace")
    text = _ESCAPE.sub(lambda found: _ESCAPED_TWICE.get(found[1], r"\\" + found[1]), text)
    return _strings(json.loads(text, parse_float=_PrintedNumber, parse_int=_PrintedNumber, object_pairs_hook=made))


def _string(written: str) -> _Text:
    value = _SURROGATE.sub("\ufffd", json.loads(f'"{written}"')) if "\\" in written else written
    text = _Text(value)
    text.written = written
    return text


def _strings(value: Any) -> Any:
    if value.__class__ is list:
        return [_strings(item) for item in value]
    return _string(value) if value.__class__ is str else value


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
        self.count(len(_text(value, self.decoded)))
        return _arranged(value, self.decoded)

    def equal(self, found: Any, wanted: Any) -> bool:
        """Compare as the library does: it decodes objects, and compares the texts of everything else."""
        if found.__class__ is dict:
            self.decoded.add(found)
            if wanted.__class__ is not dict or found.keys() != wanted.keys():
                return False
            return all(self.equal(value, wanted[name]) for name, value in found.items())
        if found.__class__ is list:
            return wanted.__class__ is list and len(found) == len(wanted) and all(map(self.equal, found, wanted))
        return wanted.__class__ not in (dict, list) and _scalar(found) == _scalar(wanted)


def _arranged(value: Any, decoded: _Decoded) -> Any:
    """Return a copy as Go writes it: the keys of decoded objects sorted, some characters escaped."""
    if value.__class__ is dict:
        return decoded.make([(name, _arranged(item, decoded)) for name, item in decoded.pairs(value)])
    if value.__class__ is list:
        return [_arranged(item, decoded) for item in value]
    return _string(_escaped(value.written)) if value.__class__ is _Text else value


def _text(value: Any, decoded: _Decoded) -> str:
    pieces: list[str] = []
    _write(value, decoded, pieces)
    return _escaped("".join(pieces))


def _escaped(text: str) -> str:
    for character, escape in HTML_ESCAPES:
        text = text.replace(character, escape)
    return text


def _write(value: Any, decoded: _Decoded, pieces: list[str]) -> None:
    if value.__class__ is dict:
        before, known = "{", value in decoded
        for name, item in decoded.pairs(value):
            pieces += before, _scalar(str(name) if known else name), ":"
            _write(item, decoded, pieces)
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
        pieces.append(_scalar(value))


def _scalar(value: Any) -> str:
    """Return the text of a value without members."""
    if value.__class__ is _Text:
        return f'"{value.written}"'
    return value if value.__class__ is _PrintedNumber else _escaped(orjson.dumps(value).decode())
