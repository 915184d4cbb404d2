"""JSON bodies: orjson where it agrees with Go's decoder, and what Go does where they differ.

Go takes bytes that are not UTF-8 and lone surrogates and replaces them by U+FFFD; it takes duplicate keys, of which
the last wins; it reads an integer beyond 64 bits as a float. Its errors have their own words (`json_syntax.py`).
Nothing here knows what the fields mean, except that `decode` reads objects, which have an apiVersion and a kind.

Unlike Go, which allows 10,000 levels, a document may be nested 250 deep: the JSON library writes 254, and no
Kubernetes schema comes near. The refusal has the same words.
"""

from __future__ import annotations

import json as stdlib_json
import re
from typing import Any, NoReturn

import orjson

from kubechronicle.api.codecs.errors import DecodeError, EncodeError
from kubechronicle.api.codecs.json_syntax import syntax_error

__all__ = ["MAX_DEPTH", "as_object", "decode", "decode_value", "encode", "nothing_twice", "summary"]

MAX_DEPTH = 250
# The validator that finds Go's words runs at Python's speed; nobody reads the words about a larger document.
_MAX_EXPLAINED = 512 * 1024
# As in sigs.k8s.io/json: more than this many strict errors help nobody.
_MAX_DUPLICATES = 100
_SURROGATE = re.compile("[\ud800-\udfff]")

# The type into which apimachinery's MetaFactory reads a body first, as Go prints it.
_VERSION_AND_KIND = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)


def decode(data: bytes, *, strict: bool = False) -> tuple[dict[str, Any], list[str]]:
    """The API object of a body, and with `strict` what a strict decoder has against it: `duplicate field "data.k"`.

    Raises DecodeError with the text of apimachinery's JSON serializer, `couldn't get version/kind; json parse error:
    …`, also when the document is not an object, or when its apiVersion or kind is not a string.
    """
    try:
        value, duplicates = decode_value(data, strict=strict)
    except DecodeError as error:
        raise DecodeError(f"couldn't get version/kind; json parse error: {error}") from None
    return as_object(value), duplicates


def as_object(value: Any) -> dict[str, Any]:
    """A decoded document as an API object, in which null is an empty one; DecodeError as `decode`."""
    problem = ""
    if value is None:
        return {}
    if value.__class__ is not dict:
        problem = f"json: cannot unmarshal {_go_kind(value)} into Go value of type {_VERSION_AND_KIND}"
    else:
        for field in ("apiVersion", "kind"):
            found = value.get(field)
            if found is not None and found.__class__ is not str:
                problem = f"json: cannot unmarshal {_go_kind(found)} into Go struct field .{field} of type string"
    if problem:
        raise DecodeError(f"couldn't get version/kind; json parse error: {problem}")
    result: dict[str, Any] = value
    return result


def decode_value(data: bytes, *, strict: bool = False) -> tuple[Any, list[str]]:
    """Any JSON document and, with `strict`, its duplicate fields. DecodeError has the text of Go's encoding/json."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        value, duplicates = _as_go_reads(data, error)
        return value, duplicates if strict else []
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH:
        _check_depth(data, value)
    if not strict or nothing_twice(data, value):
        return value, []
    return value, _duplicates(data.decode())


# Blanks between a key and its colon, and a quote or a colon that a string holds in other than the usual writing.
_COUNTED_ELSEHOW = (b" :", b"\t:", b"\n:", b"\r:", b"\\u0022", b"\\u003a", b"\\u003A")


def nothing_twice(data: bytes, value: Any) -> bool:
    """Tell whether no object of a document, of which ``value`` has been read, has a key twice; False: it may have.

    Every key ends in ``":``. Those bytes stand in strings too, but there as often in what was read as in what it prints
    as; of a key set twice, and of all in its first value, there is less in the latter.
    """
    printed = orjson.dumps(value)
    if printed == data.rstrip():
        return True
    return data.count(b'":') == printed.count(b'":') and not any(odd in data for odd in _COUNTED_ELSEHOW)


def encode(value: Any, *, pretty: bool = False) -> bytes:
    """Compact JSON, or indented by two blanks; no newline at the end. EncodeError for what JSON cannot hold."""
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 if pretty else None)
    except TypeError as error:
        raise EncodeError(f"json: {error}") from error


def summary(data: bytes, length: int = 30) -> str:
    """The beginning of a body as an apiserver shows it behind an error: text if JSON, else hexadecimal."""
    if not data:
        return "<empty>"
    shown = data[:length]
    text = shown.decode("utf-8", "replace") if data.startswith(b"{") else shown.hex()
    return text + " ..." if len(data) > length else text


def _check_depth(data: bytes, value: Any) -> None:
    try:
        orjson.dumps([[[[value]]]])  # refuses at 255 levels
    except TypeError:
        _raise_syntax(data, "exceeded max depth")


def _as_go_reads(data: bytes, error: orjson.JSONDecodeError) -> tuple[Any, list[str]]:
    """A document orjson refuses: Go's error, or the value if Go takes it."""
    if len(data) > _MAX_EXPLAINED:
        raise DecodeError(f"invalid JSON: {error}")
    _raise_syntax(data)
    text = data.decode("utf-8", "replace")
    try:
        value = stdlib_json.loads(text, parse_float=_float, parse_int=_int)
    except (ValueError, RecursionError) as refused:
        raise DecodeError(f"invalid JSON: {refused}") from None
    return _without_surrogates(value), _duplicates(text)


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
    if value.__class__ is dict:
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


def _duplicates(text: str) -> list[str]:
    """`duplicate field "path"` for every key an object of the document has twice."""
    twice: dict[int, list[str]] = {}

    def to_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            seen: set[str] = set()
            twice[id(result)] = [key for key, _ in pairs if key in seen or seen.add(key)]  # type: ignore[func-returns-value]
            kept.append(result)
        return result

    kept: list[dict[str, Any]] = []  # so that no id is used again
    value = stdlib_json.loads(text, object_pairs_hook=to_dict)
    if not twice:
        return []
    return list(dict.fromkeys(_paths(value, "", twice)))[:_MAX_DUPLICATES]


def _paths(value: Any, path: str, twice: dict[int, list[str]]) -> list[str]:
    found: list[str] = []
    if value.__class__ is dict:
        prefix = f"{path}." if path else ""
        for key, item in value.items():
            if item.__class__ in (dict, list):
                found += _paths(item, prefix + key, twice)
        found += [f"duplicate field {_quoted(prefix + key)}" for key in twice.get(id(value), ())]
    elif value.__class__ is list:
        for index, item in enumerate(value):
            if item.__class__ in (dict, list):
                found += _paths(item, f"{path}[{index}]", twice)
    return found


def _quoted(text: str) -> str:
    return orjson.dumps(_SURROGATE.sub("\ufffd", text)).decode()


def _go_kind(value: Any) -> str:
    """The JSON type of a value as encoding/json calls it."""
    kinds = {dict: "object", list: "array", str: "string", bool: "bool"}
    return kinds.get(value.__class__, "number")
