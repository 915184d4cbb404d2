"""The conversion of decoded JSON into a Go type without JSON: of the results of strategic patches and of applies.

It accepts nearly what Go's JSON decoder accepts, with other errors: whole floats are integers, large integers wrap
around in 32 bits. It runs only on an object that the decoder (check.py) refused.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.schema import check, values
from kubechronicle.api.schema.empties import Empty
from kubechronicle.api.schema.types import ListType, MapType, ObjectType, Scalar, Type
from kubechronicle.api.schema.values import ValueDecodeError


class ConversionError(ValueError):
    """A value that does not fit its field. The text is Go's."""


_KINDS: Final[dict[type, str]] = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    dict: "map",
    list: "slice",
}
_PLAIN: Final = {"string": "string", "boolean": "bool", "int32": "int32", "int64": "int64", "number": "float64"}
_DECODERS: Final = {
    "time": values.time,
    "microtime": values.microtime,
    "quantity": values.quantity_text,
    "intorstring": values.int_or_string,
}


def check_converted(obj: dict[str, Any], kind: ObjectType, empties: list[Empty] | None = None) -> list[str]:
    """Do as ``check.check``, with the rules and errors of the conversion. Raises ConversionError."""
    try:
        return check.check(obj, kind, empties)
    except check.TypeMismatch:
        convert(obj, kind)
    try:
        return check.check(obj, kind, empties)
    except check.TypeMismatch as error:
        raise ConversionError(str(error)) from None


def convert(value: dict[str, Any], kind: ObjectType) -> None:
    """Convert an object in place to a form that check.py takes. Raises ConversionError for the first other value."""
    _convert(value, kind)


def _convert(value: Any, kind: Type) -> Any:
    if value is None:
        return None
    if isinstance(kind, ObjectType):
        if value.__class__ is not dict:
            raise ConversionError(f"cannot restore struct from: {_KINDS[value.__class__]}")
        for name, field in kind.fields.items():
            if name in value:
                value[name] = _convert(value[name], field.type)
    elif isinstance(kind, MapType):
        if value.__class__ is not dict:
            raise ConversionError(f"cannot restore map from {_KINDS[value.__class__]}")
        for name, item in value.items():
            value[name] = _convert(item, kind.value)
    elif isinstance(kind, ListType):
        if value.__class__ is not list:
            raise ConversionError(f"cannot restore slice from {_KINDS[value.__class__]}")
        value[:] = [_convert(item, kind.item) for item in value]
    elif isinstance(kind, Scalar):
        return _convert_scalar(value, kind)
    return value


_LONG_FLOAT: Final = 1e21
"""Go writes floats from this one on with an exponent."""


def _convert_scalar(value: Any, kind: Scalar) -> Any:
    if kind.kind == "bytes":
        return _convert_bytes(value)
    if kind.kind in _DECODERS:
        if value.__class__ is float and value.is_integer() and abs(value) < _LONG_FLOAT:
            value = int(value)  # as Go writes it for such a decoder
        try:
            _DECODERS[kind.kind](value)
        except ValueDecodeError as error:
            word = f"json: cannot unmarshal {error.wrong_type} into Go value of type {error.go_type}"
            raise ConversionError(error.text or word) from None
        return value
    if value.__class__ is int and not -(2**63) <= value < 2**63:
        value = float(value)  # as Go reads it
    given, wanted = _KINDS[value.__class__], _PLAIN[kind.kind]
    if given == wanted:
        return value
    if value.__class__ is int and wanted in ("int32", "float64"):
        return _wrapped(value) if wanted == "int32" else value
    if value.__class__ is float and value.is_integer() and wanted in ("int32", "int64"):
        whole = int(value) if abs(value) < 2**63 else _BEYOND
        return _wrapped(whole) if wanted == "int32" else whole
    if (value.__class__ is int and wanted == "string") or (value.__class__ is float and wanted.startswith("int")):
        raise ConversionError(f"cannot convert {given} to {kind.go_type}")
    raise ConversionError(f"unrecognized type: {wanted}")


_BEYOND: Final = -(2**63)
"""The integer that a processor (amd64) makes of a float outside 64 bits."""


def _wrapped(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def _convert_bytes(value: Any) -> Any:
    if value.__class__ is str:
        try:
            return values.data_bytes(value)
        except ValueDecodeError as error:
            raise ConversionError(f"error decoding from json: {error.text}") from None
    if value.__class__ is not list:
        raise ConversionError(f"cannot restore slice from {_KINDS[value.__class__]}")
    if any(item is not None and item.__class__ not in (int, float) for item in value):
        raise ConversionError("unrecognized type: uint8")
    return value
