"""YAML bodies, as in sigs.k8s.io/yaml: from YAML to the values of equivalent JSON, and back.

libyaml parses events; an explicit stack builds the values, so that no document can exhaust Python's or C's stack.
`yaml_writer.py` decides the values of scalars, not PyYAML. Only the first document of a body is read. `MAX_ALIASED`
limits the values that aliases add, so that a small document cannot expand without limit.

Errors have go-yaml's texts, which are libyaml's: `yaml: line 3: mapping values are not allowed in this context`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import orjson
import yaml as pyyaml
from yaml._yaml import CParser
from yaml.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from yaml.reader import ReaderError
from yaml.scanner import ScannerError

from kubechronicle.api.codecs.budget import MAX_ALIASED, MAX_VALUES, require_within
from kubechronicle.api.codecs.errors import MAX_COMPLAINTS, MAX_DEPTH, Complaints, DecodeError
from kubechronicle.api.codecs.json import as_object, has_unique_keys, holds_any, loads
from kubechronicle.api.codecs.yaml_writer import go_float, resolve, resolve_tagged, write

__all__ = ["decode", "decode_all", "decode_nearly_plain", "decode_plain", "decode_value", "encode", "is_plain"]

SEVERAL = "yaml: unmarshal errors:"
"""The first line of one error about several keys."""

_MERGE = object()  # the key <<


def decode(data: bytes, *, strict: bool = False) -> tuple[dict[str, Any], Complaints]:
    """Return (the API object of a YAML body, its strict errors). Raises DecodeError.

    With `strict`, one error lists all duplicate keys, in apimachinery's words: `yaml: unmarshal errors:\\n  line 7:
    key "k" already set in map`.
    """
    value, duplicates = decode_value(data)
    sentences = ["\n  ".join([SEVERAL, *duplicates])] if duplicates and strict else ()
    complaints = Complaints(sentences)
    complaints.keys_sorted = True
    return as_object(value), complaints


def decode_value(data: bytes) -> tuple[Any, list[str]]:
    """Return (the JSON value of a YAML document, its duplicate keys: `line 7: key "k" already set in map`).

    Of a duplicate key the last value counts. DecodeError for malformed YAML, or YAML without a JSON form.
    """
    plain = decode_plain(data)
    if plain is not None:
        return plain, []
    with _explaining():
        builder = _Builder(CParser(data))
        return builder.document(), builder.duplicates


# Parts of a JSON text that libyaml rejects or reads differently from a JSON parser: an escaped surrogate, null or
# slash, DEL, blanks other than spaces and line feeds, and a line feed between a key and its colon.
_READ_OTHERWISE = (b"\\ud", b"\\uD", b"\\u0000", b"\\/", b"\x7f", b"\r", b"\t")
_COLON_ON_NEXT_LINE = re.compile(rb"\n *:").search
MAX_PLAIN_DEPTH: Final = 100
MAX_PLAIN_KEY: Final = 160
"""Characters of a key. libyaml limits one in flow style to 1,024 bytes; written as \\u003c, a character is six."""


def decode_plain(data: bytes) -> Any:
    """Return the value of a YAML body that is a JSON object, None for any other. A fast `decode_value`.

    Nearly all YAML bodies of programs have this form. The object must have no duplicate keys, and no numbers beyond 64
    bits.
    """
    value = _decode_json(data)
    try:
        return value if value is not None and _make_plain(value, 0) else None
    except TypeError:  # too deep to be encoded
        return None


def decode_nearly_plain(data: bytes) -> Any:
    """Return the value of ``decode_plain`` before the walk through it; None also if an integer has more than 53 bits.

    It is the body's value if ``is_plain`` tells so; otherwise decode again.
    """
    return _decode_json(data, orjson.OPT_STRICT_INTEGER)


def is_plain(value: Any, depth: int) -> bool:
    """Return whether a JSON parser and libyaml read a value alike, if its integers have at most 53 bits.

    ``depth``: the number of the objects and lists around it.
    """
    if value.__class__ is dict:
        return (
            depth <= MAX_PLAIN_DEPTH
            and all(len(name) <= MAX_PLAIN_KEY for name in value)
            and all(item.__class__ is str or is_plain(item, depth + 1) for item in value.values())
        )
    if value.__class__ is list:
        return depth <= MAX_PLAIN_DEPTH and all(item.__class__ is str or is_plain(item, depth + 1) for item in value)
    return value.__class__ is not float or go_float(value) is value


def _decode_json(data: bytes, option: int = 0) -> Any:
    """Return the value of a body whose text is JSON to libyaml, too: an object without duplicate keys. None otherwise.

    Its values may have another meaning there: ``_make_plain``. ``option``: of orjson, which must encode the value.
    """
    text = data.strip(b" \n")
    if not text.startswith(b"{") or not text.isascii() or holds_any(text, _READ_OTHERWISE):
        return None
    try:
        value = loads(text)
        return value if not _COLON_ON_NEXT_LINE(text) and has_unique_keys(text, value, option=option) else None
    except (orjson.JSONDecodeError, TypeError):  # no JSON, or not to be encoded
        return None


def _make_plain(value: Any, depth: int) -> bool:
    """Make whole floats integers, in place. Return False for a value that libyaml may read differently."""
    if depth > MAX_PLAIN_DEPTH:
        return False
    named = value.__class__ is dict
    items: Iterable[tuple[Any, Any]] = value.items() if named else enumerate(value)
    for key, item in items:
        if named and len(key) > MAX_PLAIN_KEY:
            return False
        kind = item.__class__
        if kind is str or kind is bool:
            continue
        if kind is dict or kind is list:
            if not _make_plain(item, depth + 1):
                return False
        elif kind is int:
            if not -(1 << 63) <= item < 1 << 63:
                return False
        elif kind is float:
            value[key] = go_float(item)
    return True


def decode_all(data: bytes) -> list[Any]:
    """Return the documents of a YAML stream as JSON values, None for an empty one. DecodeError as in `decode_value`."""
    with _explaining():
        return _Builder(CParser(data)).documents()


@contextmanager
def _explaining() -> Iterator[None]:
    """Turn every exception of PyYAML into DecodeError."""
    try:
        yield
    except ReaderError as error:
        raise DecodeError(f"yaml: {error.reason}") from None
    except pyyaml.MarkedYAMLError as error:
        raise DecodeError(_explained(error)) from None
    except (pyyaml.YAMLError, ValueError, RecursionError) as error:
        raise DecodeError(f"yaml: {error}") from None


def encode(value: Any) -> bytes:
    """Return YAML text with sorted keys and a newline at the end."""
    return write(value).encode("utf-8", "replace")


def _explained(error: pyyaml.MarkedYAMLError) -> str:
    """Return libyaml's message with go-yaml's line number: from one for errors of the scanner, else from zero."""
    line = 0
    if error.problem_mark is not None and error.problem_mark.line:
        line = error.problem_mark.line + isinstance(error, ScannerError)
    elif error.context_mark is not None:
        line = error.context_mark.line
    problem = error.problem or "unknown problem parsing YAML content"
    return f"yaml: line {line}: {problem}" if line else f"yaml: {problem}"


class _Builder:
    """Builds values from events. Each frame of its stack is an open container."""

    def __init__(self, parser: Any) -> None:
        self._next = parser.get_event
        self.duplicates: list[str] = []
        self._anchors: dict[str, Any] = {}
        self._aliased = 0
        self._containers = self._keys = self._values = 0

    def document(self) -> Any:
        """Return the first document's value, None if there is none."""
        while True:
            event = self._next()
            if event is None or isinstance(event, pyyaml.StreamEndEvent):
                return None
            if isinstance(event, pyyaml.DocumentStartEvent):
                value = self._value()
                self._next()  # reports an error right behind the document
                return value

    def documents(self) -> list[Any]:
        """Return the values of all documents. An anchor is valid in its own document only."""
        values: list[Any] = []
        while True:
            event = self._next()
            if event is None or isinstance(event, pyyaml.StreamEndEvent):
                return values
            if isinstance(event, pyyaml.DocumentStartEvent):
                self._anchors.clear()
                self._containers = self._keys = self._values = 0
                values.append(self._value())

    def _value(self) -> Any:
        stack: list[_Frame] = []
        read = self._next
        while True:
            event: Any = read()
            kind = event.__class__
            frame: _Frame | None = None
            if kind is ScalarEvent:
                self._values += 1
                if self._values > MAX_VALUES:
                    self._count(0, 0)
                value = self._scalar(event, is_key=bool(stack) and stack[-1].wants_key)
            elif kind is MappingStartEvent or kind is SequenceStartEvent:
                if len(stack) >= MAX_DEPTH:
                    raise DecodeError(f"yaml: exceeded max depth of {MAX_DEPTH}")
                self._count(1, 0)
                container: Any = {} if kind is MappingStartEvent else []
                stack.append(_Frame(container, event.anchor, event.start_mark.line + 1))
                self._anchors.pop(event.anchor or "", None)
                continue
            elif kind is MappingEndEvent or kind is SequenceEndEvent:
                frame = stack.pop()
                value = frame.value
                if value.__class__ is dict:
                    self._count(0, len(value))
                if frame.anchor:
                    self._anchors[frame.anchor] = value
            else:
                value = self._alias(event, stack)
            if not stack:
                return value
            duplicate = stack[-1].take(value)
            if duplicate is not None and len(self.duplicates) < MAX_COMPLAINTS:
                line = event.start_mark.line + 1 if frame is None else frame.line
                self.duplicates.append(f"line {line}: key {duplicate} already set in map")

    def _count(self, containers: int, keys: int) -> None:
        self._containers += containers
        self._keys += keys
        require_within(self._containers, self._keys, self._values)

    def _scalar(self, event: ScalarEvent, *, is_key: bool) -> Any:
        if event.tag is None or event.tag == "!":
            plain = event.implicit[0] and event.tag is None
            if is_key and plain and event.value == "<<":
                return _MERGE
            value = resolve(event.value) if plain else event.value
        elif is_key and event.tag == "tag:yaml.org,2002:merge":
            return _MERGE
        else:
            value = resolve_tagged(event.tag, event.value)
        if value.__class__ is float and not is_key:
            value = go_float(value)
        elif value.__class__ is int and not -(1 << 63) <= value < 1 << 63:
            value = float(value)
        if event.anchor:
            self._anchors[event.anchor] = value
        return value

    def _alias(self, event: AliasEvent, stack: list[_Frame]) -> Any:
        if any(frame.anchor == event.anchor for frame in stack):
            raise DecodeError(f"yaml: anchor '{event.anchor}' value contains itself")
        if event.anchor not in self._anchors:
            raise DecodeError(f"yaml: unknown anchor '{event.anchor}' referenced")
        return self._copy(self._anchors[event.anchor], len(stack))

    def _copy(self, value: Any, depth: int) -> Any:
        """Copy an aliased value. Values must not be shared, because objects are changed in place."""
        self._aliased += 1
        if self._aliased > MAX_ALIASED:
            raise DecodeError("yaml: document contains excessive aliasing")
        if depth > MAX_DEPTH:
            raise DecodeError(f"yaml: exceeded max depth of {MAX_DEPTH}")
        if value.__class__ is dict:
            return {key: self._copy(item, depth + 1) for key, item in value.items()}
        if value.__class__ is list:
            return [self._copy(item, depth + 1) for item in value]
        return value


_NO_KEY: Any = object()


class _Frame:
    """An open container: its value, anchor and first line, and the pending key of a mapping."""

    __slots__ = ("anchor", "key", "line", "value", "wants_key")

    def __init__(self, value: Any, anchor: str | None, line: int) -> None:
        self.value = value
        self.anchor = anchor
        self.line = line
        self.key: Any = _NO_KEY
        self.wants_key = value.__class__ is dict

    def take(self, value: Any) -> str | None:
        """Add the next key, value or item. Return a duplicate key as Go prints it, else None."""
        if self.value.__class__ is list:
            self.value.append(value)
            return None
        if self.wants_key:
            self.key, self.wants_key = value, False
            return None
        key, self.key, self.wants_key = self.key, _NO_KEY, True
        if key is _MERGE:
            self._merge(value)
            return None
        name = _key_text(key, value)
        duplicate = name in self.value
        self.value[name] = value
        if not duplicate:
            return None
        return _go_quoted(name) if key.__class__ is str else name

    def _merge(self, value: Any) -> None:
        """Apply the key <<. In a list of mappings, earlier ones take precedence."""
        sources = reversed(value) if value.__class__ is list else (value,)
        for source in sources:
            if source.__class__ is not dict:
                raise DecodeError("yaml: map merge requires map or sequence of maps as the value")
            self.value.update(source)


def _key_text(key: Any, value: Any) -> str:
    """Return a mapping's key as a JSON key."""
    if key.__class__ is str:
        return str(key)
    if key.__class__ is bool:
        return "true" if key else "false"
    if key.__class__ is int:
        return str(key)
    if key.__class__ is float:
        if key - key != 0:
            return ".nan" if key != key else ".inf" if key > 0 else "-.inf"
        return f"{key:.8g}"
    if key is None:
        raise DecodeError(
            f"unsupported map key of type: %!s(<nil>), key: <nil>, value: {'<nil>' if value is None else value!r}"
        )
    raise DecodeError("yaml: invalid map key: a mapping or a list")


def _go_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'
