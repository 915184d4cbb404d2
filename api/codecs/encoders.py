"""Compiles a message of the table into a function from its JSON form to its bytes.

The function is straight-line Python source, one step per field in ascending number, like Go's generated marshallers: a
scalar or struct that is no pointer is always written, even if zero; a pointer, list, map or []byte only if set. Keys of
maps are sorted by their bytes. For `name 1 string; port 2 *int32?` it is

    def encode(o):
        g = o.get
        a = []
        p = a.append
        v = g("name")
        if v: ... p(f"\\n{S[n]}{v}")
        else: p("\\n\\0")
        v = g("port")
        if v is not None: p(f"\\x10{S[v] if 0 <= v < 2048 else I(v)}")
        return "".join(a)

It is compiled at its first call. Bytes are latin-1 text (see values.py). Keys without a field are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubechronicle.api.codecs import values
from kubechronicle.api.codecs.compiler import SCHEMA, WireCompiler, function_name, indented, schema_unions
from kubechronicle.api.codecs.table import SCALARS, WireField, WireMessage

__all__ = ["encoder_of"]

# A message's JSON form -> its bytes as latin-1 text.
Encoder = Callable[[Any], str]

# Types that are one value in JSON -> (function, written even if the Go field is unset).
_VALUES: dict[str, tuple[Encoder, bool]] = {
    "time": (values.write_time, True),
    "microtime": (values.write_microtime, True),
    "quantity": (values.write_quantity, True),
    "intorstring": (values.write_intorstring, True),
    "rawextension": (values.write_raw, True),
    "rawjson": (values.write_raw, True),
    "fieldsv1": (values.write_raw, True),
    "strings": (values.write_strings, False),
}


def _schema_or_bool(value: Any) -> str:
    if value.__class__ is bool:
        return "\x08\x01" if value else "\x08\0"
    schema = encoder_of(SCHEMA)(value)
    return f"\x08\x01\x12{values.varint(len(schema))}{schema}"


def _schema_or_array(value: Any) -> str:
    encode = encoder_of(SCHEMA)
    if value.__class__ is list:
        return "".join(f"\x12{values.varint(len(text))}{text}" for text in map(encode, value))
    schema = encode(value)
    return f"\n{values.varint(len(schema))}{schema}"


def _schema_or_strings(value: Any) -> str:
    if value.__class__ is list:
        texts = [item if item.isascii() else values.utf8(item) for item in value]
        return "".join(f"\x12{values.varint(len(text))}{text}" for text in texts)
    return _schema_or_array(value)


_namespace: dict[str, Any] = {
    "S": values.SMALL,
    "V": values.varint,
    "I": values.integer,
    "U": values.utf8,
    "B": values.bytes_text,
    "F": values.double_text,
    "sorted": sorted,
    **{function_name(name): function for name, (function, _) in _VALUES.items()},
}


def encoder_of(message: str) -> Encoder:
    """Return the encoder of the message of this name."""
    return _compiler.function(message)


def _source(message: WireMessage, name: str) -> str:
    lines = [f"def {name}(o):", " g = o.get", " a = []", " p = a.append"]
    for field in message.fields:
        lines += [f" {line}" for line in _step(field)]
    lines.append(' return "".join(a)')
    return "\n".join(lines)


def _step(field: WireField) -> list[str]:
    """Return the source for one field."""
    tag = _tag(field)
    if not field.name:
        return [f"s = {_compiler.reference(field.type)}(o)", *_put_sized(tag, "s")]
    get = f"v = g({field.name!r})"
    if field.map:
        return [get, "if v:", " for k in sorted(v):", "  v_ = v[k]", *indented(_map_entry(field, tag), 2)]
    if field.repeated:
        return [get, "if v:", " for v in v:", *indented(_put(field, tag), 2)]
    if field.pointer or not _always(field):
        return [get, "if v is not None:", *indented(_put(field, tag), 1)]
    if field.type in SCALARS or field.type == "string":
        zero = tag + "\0" * (8 if field.type == "double" else 1)
        return [get, "if v:", *indented(_put(field, tag), 1), f"else: p({zero!r})"]
    if field.type in _VALUES:
        return [get, *_put(field, tag)]
    return [get, "if v is None: v = {}", *_put(field, tag)]


def _always(field: WireField) -> bool:
    if field.type in _VALUES:
        return _VALUES[field.type][1]
    return field.type != "bytes"


def _put(field: WireField, tag: str) -> list[str]:
    """Return the source that writes the value `v`, which is set."""
    match field.type:
        case "string":
            return ["if not v.isascii(): v = U(v)", *_put_sized(tag, "v")]
        case "bool":
            return [f"p({tag + chr(1)!r} if v else {tag + chr(0)!r})"]
        case "int32" | "int64":
            return [f'p(f"{_literal(tag)}{{S[v] if 0 <= v < 2048 else I(v)}}")']
        case "double":
            return [f'p(f"{_literal(tag)}{{F(v)}}")']
        case "bytes":
            return ["v = B(v)", *_put_sized(tag, "v")]
        case _ if field.repeated and field.type not in _VALUES:
            return ["if v is None: v = {}", f"s = {_compiler.reference(field.type)}(v)", *_put_sized(tag, "s")]
        case _:
            return [f"s = {_compiler.reference(field.type)}(v)", *_put_sized(tag, "s")]


def _put_sized(tag: str, name: str) -> list[str]:
    return [f"n = len({name})", f'p(f"{_literal(tag)}{{S[n] if n < 2048 else V(n)}}{{{name}}}")']


def _map_entry(field: WireField, tag: str) -> list[str]:
    """Return the source that writes the entry of key `k` and value `v_`: the message {1: key, 2: value}."""
    match field.type:
        case "string":
            value = ["if not v_.isascii(): v_ = U(v_)"]
        case "bytes":
            value = ['v_ = B(v_ or "")']
        case _:
            value = [f"v_ = {_compiler.reference(field.type)}(v_)"]
    return [
        "if not k.isascii(): k = U(k)",
        *value,
        's = f"\\n{V(len(k))}{k}\\x12{V(len(v_))}{v_}"',
        *_put_sized(tag, "s"),
    ]


def _tag(field: WireField) -> str:
    return values.varint(field.tag)


def _literal(text: str) -> str:
    """Return latin-1 text escaped for a double-quoted f-string."""
    return "".join(f"\\x{ord(character):02x}" for character in text)


_compiler = WireCompiler(
    _namespace, schema_unions(_schema_or_bool, _schema_or_array, _schema_or_strings), _source, label="encoder"
)
