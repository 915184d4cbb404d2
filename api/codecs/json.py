"""JSON bodies: decoded by orjson where it agrees with Go's decoder, and as Go does where they differ.

Go replaces invalid UTF-8 and lone surrogates with U+FFFD. Of duplicate keys, the last wins (unless the document has a
type: see `errors.py`). An integer beyond 64 bits becomes a float. Go's error texts are in `json_syntax.py`. Only
`decode` knows fields: apiVersion and kind of objects.

A document may be nested 250 levels deep; Go allows 10,000. orjson writes 254 levels, and no Kubernetes schema comes
near. The error has Go's text.
"""

from __future__ import annotations

import json as stdlib_json
import re
from collections.abc import Iterable
from typing import Any, NoReturn

import orjson

from kubechronicle.api.codecs.budget import require_for_document, require_json_within
from kubechronicle.api.codecs.errors import MAX_COMPLAINTS, MAX_DEPTH, Complaints, DecodeError, EncodeError
from kubechronicle.api.codecs.json_syntax import syntax_error

__all__ = [
    "as_object",
    "decode",
    "decode_value",
    "encode",
    "find_duplicates",
    "go_kind",
    "has_unique_keys",
    "loads",
    "loads_as_written",
    "summary",
]

# The validator that finds Go's text is slow. The text about a larger document helps no client.
_MAX_EXPLAINED = 512 * 1024
_SURROGATE = re.compile("[\ud800-\udfff]")

# The type into which apimachinery's MetaFactory decodes a body first, as Go prints it.
_VERSION_AND_KIND = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)


def decode(data: bytes, *, strict: bool = False) -> tuple[dict[str, Any], Complaints]:
    """Return (the API object of a body, its strict errors). An error reads `duplicate field "data.k"`.

    Strict errors are looked for only with `strict`. Raises DecodeError with the text of apimachinery's JSON serializer,
    `couldn't get version/kind; json parse error: …`; also if the document is no object, or its apiVersion or kind is no
    string.
    """
    try:
        value, duplicates = decode_value(data, strict=strict)
    except DecodeError as error:
        raise DecodeError(f"couldn't get version/kind; json parse error: {error}") from None
    obj = as_object(value)
    duplicates.source = data
    if duplicates.document:
        for field, text in duplicates.document:
            _check_type_field(field, text)
    return obj, duplicates


def as_object(value: Any) -> dict[str, Any]:
    """Return a decoded document as an API object; null becomes an empty one. DecodeError as in `decode`."""
    if value is None:
        return {}
    if value.__class__ is not dict:
        problem = f"json: cannot unmarshal {go_kind(value)} into Go value of type {_VERSION_AND_KIND}"
        raise DecodeError(f"couldn't get version/kind; json parse error: {problem}")
    version, kind = value.get("apiVersion"), value.get("kind")
    if version.__class__ is not str or kind.__class__ is not str:
        _check_type_field("apiVersion", version)
        _check_type_field("kind", kind)
    if version and version.count("/") > 1:
        raise DecodeError(f"unexpected GroupVersion string: {version}")
    result: dict[str, Any] = value
    return result


def _check_type_field(field: str, text: Any) -> None:
    """Reject an apiVersion or kind that is no string. Objects may be tuples of (key, value)."""
    if text is None or text.__class__ is str or field not in ("apiVersion", "kind"):
        return
    problem = f"json: cannot unmarshal {go_kind(text)} into Go struct field .{field} of type string"
    raise DecodeError(f"couldn't get version/kind; json parse error: {problem}")


def decode_value(data: bytes, *, strict: bool = False) -> tuple[Any, Complaints]:
    """Return (JSON value, duplicate fields if `strict`). DecodeError with the text of Go's encoding/json."""
    try:
        value = loads(data)
    except orjson.JSONDecodeError as error:
        value, text = _as_go_reads(data, error)
        return value, _duplicates(text) if strict else Complaints()
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH:
        _check_depth(data, value)
    if not strict:
        return value, Complaints()
    small_integers = True
    try:
        unique = has_unique_keys(data, value, option=orjson.OPT_STRICT_INTEGER)
    except TypeError:  # an integer beyond 53 bits
        unique, small_integers = has_unique_keys(data, value), False
    complaints = Complaints() if unique else _duplicates(data.decode())
    complaints.small_integers = small_integers
    return value, complaints


def loads(data: bytes) -> Any:
    """Decode a document by orjson. Raises orjson.JSONDecodeError, TooManyPartsError. MemoryError: the process has no
    memory for it.

    Of a document that starts as if it were indented, orjson expects few values, and runs out of memory if it is not.
    Within a list it expects more.
    """
    require_json_within(data)
    require_for_document(len(data))
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if error.msg.startswith("failed to allocate memory"):
            return orjson.loads(b"[%b]" % data)[0]
        if error.msg.startswith("Not enough memory"):
            raise MemoryError(error.msg) from None
        raise
    except SystemError as error:  # an allocation failed, and orjson did not notice
        raise MemoryError("no memory to decode a document") from error


class WrittenNumber(float):
    """A number that prints as it was written, such as 1e3."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> WrittenNumber:
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __repr__(self) -> str:
        return self.text


def loads_as_written(data: bytes | str) -> Any:
    """Decode a document that is known to be JSON for an error about it: its floats print as they were written.

    Slower than ``loads``. Raises ValueError or RecursionError for documents beyond the bounds of this decoder.
    """
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    return stdlib_json.loads(text, parse_float=WrittenNumber)


# Blanks between a key and its colon, and escape sequences of a quote or colon.
_UNUSUAL_KEY_ENDS = (b" :", b"\t:", b"\n:", b"\r:", b"\\u0022", b"\\u003a", b"\\u003A")


def has_unique_keys(data: bytes, value: Any, *, option: int = 0) -> bool:
    """Return True if no object of a document has duplicate keys; False if one may have.

    ``value``: the decoded document. ``option``: of orjson. TypeError if the value cannot be encoded with it.

    Every key ends in ``":``. The document and the re-encoded value have these bytes equally often in strings. A
    duplicate key, and everything in its first value, is missing from the re-encoded value.
    """
    printed = orjson.dumps(value, option=option)
    if printed == data.rstrip():
        return True
    return data.count(b'":') == printed.count(b'":') and not holds_any(data, _UNUSUAL_KEY_ENDS)


def holds_any(data: bytes, texts: Iterable[bytes]) -> bool:
    """Return whether data contains one of these texts. The search for a first byte that is absent is the fastest."""
    return any(text[0] in data and text in data for text in texts)


def encode(value: Any, *, pretty: bool = False) -> bytes:
    """Return compact or indented JSON, without a newline at the end. EncodeError for values that JSON cannot hold."""
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 if pretty else None)
    except TypeError as error:
        raise EncodeError(f"json: {error}") from error


def summary(data: bytes, length: int = 30) -> str:
    """Return the beginning of a body as kube-apiserver shows it behind an error: text if JSON, else hexadecimal."""
    if not data:
        return "<empty>"
    shown = data[:length]
    text = shown.decode("utf-8", "replace") if data.startswith(b"{") else shown.hex()
    return text + " ..." if len(data) > length else text


def _check_depth(data: bytes, value: Any) -> None:
    try:
        orjson.dumps([[[[value]]]])  # fails at 255 levels
    except TypeError:
        _raise_syntax(data, "exceeded max depth")


def _as_go_reads(data: bytes, error: orjson.JSONDecodeError) -> tuple[Any, str]:
    """Return (value, text) of a document that orjson rejects, if Go accepts it; else raise Go's error."""
    if len(data) > _MAX_EXPLAINED:
        raise DecodeError(f"invalid JSON: {error}")
    _raise_syntax(data)
    text = data.decode("utf-8", "replace")
    try:
        value = stdlib_json.loads(text, parse_float=_float, parse_int=_int)
    except (ValueError, RecursionError) as problem:
        raise DecodeError(f"invalid JSON: {problem}") from None
    return _without_surrogates(value), text


def _raise_syntax(data: bytes, otherwise: str = "") -> None:
    problem = syntax_error(data, max_depth=MAX_DEPTH) or otherwise
    if problem:
        raise DecodeError(problem)


def _float(text: str) -> float:
    value = float(text)
    return _no_number(text) if value - value != 0 else value


def _int(text: str) -> int | float:
    value = int(text) if len(text) < 20 else float(text)
    return value if -(1 << 63) <= value < 1 << 63 else _float(text)


def _no_number(text: str) -> NoReturn:
    raise DecodeError(f"json: cannot unmarshal number {text} into Go value of type float64")


def _without_surrogates(value: Any) -> Any:
    if value.__class__ is str:
        return _SURROGATE.sub("\ufffd", value)
    if value.__class__ is list:
        return [_without_surrogates(item) for item in value]
    if value.__class__ is tuple:
        return tuple((_without_surrogates(key), _without_surrogates(item)) for key, item in value)
    if value.__class__ is dict:
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


def _duplicates(text: str) -> Complaints:
    """Return `duplicate field "path"` for the duplicate keys of a document's objects, each path once."""
    document = stdlib_json.loads(text, parse_float=_float, parse_int=_int, object_pairs_hook=tuple)
    found: dict[str, None] = {}
    find_duplicates(document, "", found)
    if not found:
        return Complaints()
    sentences = [f"duplicate field {_quoted(path)}" for path in list(found)[:MAX_COMPLAINTS]]
    complaints = Complaints(sentences)
    complaints.document = _without_surrogates(document)
    return complaints


def find_duplicates(value: Any, path: str, found: dict[str, None]) -> None:
    """Add the paths of duplicate keys, in the order of the document. Objects are tuples of (key, value)."""
    if value.__class__ is tuple:
        prefix = f"{path}." if path else ""
        seen: set[str] = set()
        for key, item in value:
            if key in seen:
                found[prefix + key] = None
            seen.add(key)
            if item.__class__ in _CONTAINERS:
                find_duplicates(item, prefix + key, found)
    elif value.__class__ is list:
        for index, item in enumerate(value):
            if item.__class__ in _CONTAINERS:
                find_duplicates(item, f"{path}[{index}]", found)


_CONTAINERS = frozenset((tuple, list))


def _quoted(text: str) -> str:
    return orjson.dumps(_SURROGATE.sub("\ufffd", text)).decode()


def go_kind(value: Any) -> str:
    """Return the JSON type of a value in encoding/json's terms."""
    kinds = {dict: "object", tuple: "object", list: "array", str: "string", bool: "bool"}
    return kinds.get(value.__class__, "number")
