"""Compiles a message of the table into a function from its bytes to its JSON form.

Writers emit fields in ascending number, so the function is one pass of `if tag == ...` over the fields. When a tag
does not match any more, the pass starts again; an unknown tag is skipped. The result is the JSON that Go prints of the
decoded struct: a zero value is left out if the field is omitempty, an unset list without omitempty is null, a struct
that is no pointer is always present. A repeated field counts as in Go: the last scalar wins, messages are merged, lists
joined.

A decoder is called as (data, text, start, end, depth, into=None). `text` is `data` as latin-1: strings are sliced from
it without copying bytes first. It is compiled at its first call. Truncated data raises DecodeError or IndexError.

Each decoder has two forms. The counted one takes what it makes from the budget that `data` carries (budget.Message).
Counting takes a third of the time again, so small bodies, which cannot make much, are decoded without it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kubechronicle.api.codecs import values
from kubechronicle.api.codecs.budget import Message as Counted
from kubechronicle.api.codecs.compiler import SCHEMA, WireCompiler, function_name, indented, schema_unions
from kubechronicle.api.codecs.errors import DecodeError
from kubechronicle.api.codecs.table import SCALARS, WireField, WireMessage, message_named

__all__ = ["decoder_of"]

Decoder = Callable[..., Any]

# Types that are one value in JSON -> (decoder, source of the zero value, "" if the field is then left unset).
_VALUES: dict[str, tuple[Decoder, str]] = {
    "time": (values.read_time, "None"),
    "microtime": (values.read_microtime, "None"),
    "quantity": (values.read_quantity, "'0'"),
    "intorstring": (values.read_intorstring, "0"),
    "rawextension": (values.read_raw, "None"),
    "rawjson": (values.read_raw, "None"),
    "fieldsv1": (values.read_fields, "None"),
    "strings": (values.read_strings, ""),
}
_ZEROS = {"string": "''", "bool": "False", "double": "0", "int32": "0", "int64": "0", "bytes": "None"}


def _union(zero: Any, list_of_strings: bool, counted: bool) -> Decoder:
    """Return the decoder of a union of a schema (field 1, or 2 if 1 is a bool) and a list (field 2)."""

    def decode(data: bytes, text: str, at: int, end: int, depth: int) -> Any:
        if depth > values.MAX_DEPTH:
            raise DecodeError("exceeded max depth")
        read = decoder_of(SCHEMA, counted=counted)
        result, items = zero, []
        for number, wire, start, stop in values.fields_of(data, at, end):
            if number == 1 and wire == 0:
                result = data[start] != 0 if result.__class__ is bool else result
            elif wire == 2 and (number == 1 or (number == 2 and zero is False)):
                result = read(data, text, start, stop, depth + 1)
            elif wire == 2 and number == 2 and list_of_strings:
                items.append(data[start:stop].decode("utf-8", "replace"))
            elif wire == 2 and number == 2:
                items.append(read(data, text, start, stop, depth + 1))
        return items or result

    return decode


def _unions(counted: bool) -> dict[str, Decoder]:
    return schema_unions(_union(False, False, counted), _union(None, False, counted), _union(None, True, counted))


_UNIONS = _unions(False)


def _counted_raw(read: Decoder) -> Decoder:
    """Return a reader of raw JSON within the budget of the message."""

    def decode(data: Counted, text: str, at: int, end: int, depth: int) -> Any:
        data.take_json(values.raw_bytes(data, at, end))
        return read(data, text, at, end, depth)

    return decode


_RAW: Final = (values.read_raw, values.read_fields)


def _entry(data: bytes, text: str, at: int, end: int, depth: int, read: Decoder, zero: Any) -> tuple[str, Any]:
    """Decode one entry of a map, the message {1: key, 2: value}."""
    key, value = "", zero
    for number, wire, start, stop in values.fields_of(data, at, end):
        if wire != 2 or number > 2:
            continue
        if number == 1:
            key = data[start:stop].decode("utf-8", "replace")
        else:
            value = read(data, text, start, stop, depth)
    return key, value() if callable(value) else value


def _string_entry(data: bytes, text: str, at: int, end: int) -> tuple[str, str]:
    """Decode an `_entry` of a string to a string, fast if both are short and ASCII."""
    middle = at + 2 + data[at + 1]
    if data[at] == 10 and middle + 2 <= end and data[middle] == 18 and middle + 2 + data[middle + 1] == end:
        key, value = text[at + 2 : middle], text[middle + 2 : end]
        if key.isascii() and value.isascii() and data[at + 1] < 0x80 and data[middle + 1] < 0x80:
            return key, value
    return _entry(data, text, at, end, 0, _read_string, "")


def _quantity_entry(data: bytes, text: str, at: int, end: int) -> tuple[str, str]:
    """Decode an `_entry` of a string to a Quantity, fast if both are short and ASCII."""
    middle = at + 2 + data[at + 1]
    if (
        data[at] == 10
        and middle + 4 <= end < middle + 0x7F
        and data[middle] == 18
        and middle + 2 + data[middle + 1] == end
        and data[middle + 2] == 10
        and middle + 4 + data[middle + 3] == end
    ):
        key, value = text[at + 2 : middle], text[middle + 4 : end]
        if key.isascii() and value.isascii() and data[at + 1] < 0x80 and value.strip() == value:
            return key, value
    return _entry(data, text, at, end, 0, values.read_quantity, "0")


def _read_string(data: bytes, text: str, at: int, end: int, depth: int) -> str:
    return data[at:end].decode("utf-8", "replace")


def _read_bytes(data: bytes, text: str, at: int, end: int, depth: int) -> str:
    return values.base64_text(data[at:end])


def _unexpected(data: bytes, at: int, end: int, fields: dict[int, WireField]) -> tuple[int, bytes]:
    """Read a field that the pass did not take. Return (index after the field, the field in its usual form or b"").

    Three cases remain for it: an unknown field (skipped), a packed list of numbers, and an unusual encoding of a tag or
    wire type.
    """
    for number, wire, start, stop in values.fields_of(data, at, end):
        field = fields.get(number)
        if field is None:
            return stop, b""
        tag = values.varint(field.tag).encode("latin-1")
        if wire == 2 and field.repeated and field.type in SCALARS:
            return stop, _unpacked(tag, data, start, stop, field)
        if wire != field.wire_type:
            name = field.name[:1].upper() + field.name[1:]
            raise DecodeError(f"proto: wrong wireType = {wire} for field {name}")
        size = values.varint(stop - start).encode("latin-1") if wire == 2 else b""
        return stop, tag + size + data[start:stop]
    raise values.truncated()


def _unpacked(tag: bytes, data: bytes, at: int, end: int, field: WireField) -> bytes:
    out = bytearray()
    while at < end:
        start = at
        if field.wire_type == 1:
            at += 8
        else:
            while data[at] > 0x7F:
                at += 1
            at += 1
        out += tag + data[start:at]
    if at > end:
        raise values.truncated()
    return bytes(out)


_namespace: dict[str, Any] = {
    "L": values.length,
    "int32": values.int32,
    "int64": values.int64,
    "F": values.double_at,
    "U": values.utf8_text,
    "B": values.base64_text,
    "MAX": values.MAX_DEPTH,
    "entry": _entry,
    "quantity_entry": _quantity_entry,
    "time_": values.time,
    "string_entry": _string_entry,
    "unexpected": _unexpected,
    "truncated": values.truncated,
    "DecodeError": DecodeError,
    function_name("string"): _read_string,
    function_name("bytes"): _read_bytes,
    **{function_name(name): function for name, (function, _) in _VALUES.items()},
}


_counted_namespace: dict[str, Any] = {
    **_namespace,
    **{function_name(name): _counted_raw(read) for name, (read, _) in _VALUES.items() if read in _RAW},
}


def decoder_of(message: str, *, counted: bool = False) -> Decoder:
    """Return the decoder of the message of this name. ``counted``: in the form for a `Counted` message."""
    return (_counting if counted else _compiler).function(message)


def _reference(kind: str) -> str:
    """Return the name of a type's decoder, which both forms know from then on."""
    _counting.reference(kind)
    return _compiler.reference(kind)


def _source(message: WireMessage, name: str, *, counted: bool) -> str:
    names = _counted_namespace if counted else _namespace
    names["fields_" + name] = {field.number: field for field in message.fields}
    names["known_" + name] = frozenset(field.tag for field in message.fields)
    text = "again.decode('latin-1')"
    again = f"  if again: {name}(again, {text}, 0, len(again), z, o)"
    if counted:
        again = f"  if again: p = d.part(again); {name}(p, {text}, 0, len(again), z, o); d.left = p.left"
    wide = any(field.tag > 0x7F for field in message.fields)
    advance = ["h = i; k = d[i]; i += 1", *(["if k > 127: k += (d[i] << 7) - 128; i += 1"] if wide else [])]
    zeros = ", ".join(f"{f.name!r}: {zero}" for f in message.fields if (zero := _scalar_zero(f)))
    lines = [
        f"def {name}(d, t, i, e, z, o=None):",
        ' if z > MAX: raise DecodeError("exceeded max depth")',
        f" if o is None: o = {{{zeros}}}",
    ]
    if zeros:
        lines += [" else:", f"  for k, v in {{{zeros}}}.items(): o.setdefault(k, v)"]
    lines += [" while i < e:", *indented(advance, 2)]
    for field in message.fields:
        lines += indented(_step(field, advance, counted=counted), 2)
    lines += [
        "  i = h",
        f"  if k in known_{name}: continue",
        f"  i, again = unexpected(d, i, e, fields_{name})",
        again,
        *(["  d.take(1)"] if counted else []),
        " if i > e: raise truncated()",
        *([" d.take(1 + len(o))"] if counted else []),
    ]
    for field in message.fields:
        lines += indented(_struct_zero(field), 1)
    lines.append(" return o")
    return "\n".join(lines)


def _scalar_zero(field: WireField) -> str:
    """Return the source of an unset field's JSON value, "" for none and for a struct."""
    if field.omitempty or not field.name:
        return ""
    if field.repeated or field.map or field.pointer:
        return "None"
    if field.type in _VALUES:
        return _VALUES[field.type][1] or "None"
    return _ZEROS.get(field.type, "")


def _struct_zero(field: WireField) -> list[str]:
    """Return the source that adds a missing struct; Go prints it in spite of omitempty."""
    if field.repeated or field.map or field.pointer or field.omitzero or field.type in _ZEROS:
        return []
    if field.type in _VALUES:
        zero = _VALUES[field.type][1]
        if field.omitempty and zero:
            return [f"if {field.name!r} not in o: o[{field.name!r}] = {zero}"]
        return []
    empty = f'{_reference(field.type)}(d, "", 0, 0, z + 1'
    if not field.name:
        return [f"{empty}, o)"] if _has_zeros(field.type) else []
    return [f"if {field.name!r} not in o: o[{field.name!r}] = {empty})"]


def _has_zeros(name: str) -> bool:
    return any(_scalar_zero(field) or _struct_zero(field) for field in message_named(name).fields)


def _step(field: WireField, advance: list[str], *, counted: bool) -> list[str]:
    """Return the source for one field: read it if the tag `k` is its own, then read the next tag."""
    tag = field.tag
    if field.repeated or field.map:
        first = f"x = o.get({field.name!r})"
        make = f"if x is None: x = o[{field.name!r}] = {'{}' if field.map else '[]'}"
        again = ["if i >= e: k = -1; break", *advance]
        count = ["d.take(1)"] if counted else []
        body = [*count, *(_take_entry(field) if field.map else [*_take(field), "x.append(v)"])]
        return [
            f"if k == {tag}:",
            *indented([first, make, f"while k == {tag}:", *indented([*body, *again], 1), "if k < 0: break"], 1),
        ]
    body = _merge(field) if _is_message(field) else [*_take(field), *_keep(field)]
    return [f"if k == {tag}:", *indented([*body, "if i >= e: break", *advance], 1)]


def _is_message(field: WireField) -> bool:
    return field.type not in _ZEROS and field.type not in _VALUES and field.type not in _UNIONS


def _keep(field: WireField) -> list[str]:
    """Return the source that stores the value `v` in the object, unless Go omits it."""
    put = f"o[{field.name!r}] = v"
    if field.pointer or (not field.omitempty and not field.omitzero):
        return [put]
    if field.type in _VALUES and not field.omitzero and field.type != "strings":
        return [put]
    return [f"if v: {put}", f"else: o.pop({field.name!r}, None)"]


# A length beyond the message is not checked here: it moves `i` behind the end, which is checked after the pass.
_SIZE = [
    "n = d[i]; i += 1",
    "if n > 127:",
    " if d[i] < 128: n += (d[i] << 7) - 128; i += 1",
    " else: n, i = L(d, i, n)",
    "j = i + n",
]


def _take(field: WireField) -> list[str]:
    """Return the source that reads one value into `v` and moves `i` behind it."""
    match field.type:
        case "string":
            return [*_SIZE, "v = t[i:j]", "if not v.isascii(): v = U(v)", "i = j"]
        case "time" | "microtime":
            return [*_SIZE, f"v = time_(d[i:j], {field.type == 'microtime'})", "i = j"]
        case "bytes":
            return [*_SIZE, "v = B(d[i:j])", "i = j"]
        case "int32" | "int64":
            return ["v = d[i]; i += 1", f"if v > 127: v, i = {field.type}(d, i, v)"]
        case "bool":
            return ["v = d[i]; i += 1", "if v > 127: v, i = L(d, i, v)", "v = v != 0"]
        case "double":
            return ["v = F(d, i); i += 8"]
        case _:
            return [*_SIZE, f"v = {_reference(field.type)}(d, t, i, j, z + 1)", "i = j"]


def _merge(field: WireField) -> list[str]:
    """Return the source that reads a message into the object. A repeated message is merged into the first."""
    call = f"{_reference(field.type)}(d, t, i, j, z + 1"
    if not field.name:
        return [*_SIZE, f"{call}, o)", "i = j"]
    return [*_SIZE, f"o[{field.name!r}] = {call}, o.get({field.name!r}))", "i = j"]


def _take_entry(field: WireField) -> list[str]:
    if field.type in ("string", "quantity"):
        return [*_SIZE, f"k, v = {field.type}_entry(d, t, i, j)", "x[k] = v", "i = j"]
    zero = {"bytes": "None"}.get(field.type) or (_VALUES[field.type][1] or "list" if field.type in _VALUES else "dict")
    read = _reference(field.type)
    return [*_SIZE, f"k, v = entry(d, t, i, j, z + 1, {read}, {zero})", "x[k] = v", "i = j"]


_compiler = WireCompiler(_namespace, _UNIONS, partial(_source, counted=False), label="decoder")
_counting = WireCompiler(_counted_namespace, _unions(True), partial(_source, counted=True), label="counted decoder")
