"""A writer of block-style YAML with Kubernetes' layout: keys sorted, two blanks a level, lists not indented.

A string is plain if go-yaml reads it back as that string. It is "double quoted" if it would read as another value
(`"true"`, `"1"`), 'single quoted' if it conflicts with YAML's punctuation, and a | block if it has several lines.
Unprintable characters, bidirectional marks among them, are always escaped, because YAML is read on terminals.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from typing import Any

from kubechronicle.api.codecs.errors import MAX_DEPTH, DecodeError, EncodeError
from kubechronicle.api.values.objects import whole

# -- yaml scalars ------------------------------------------------------------------------------------------------------
#
# Values of plain YAML scalars, by the rules of go-yaml v2, which Kubernetes uses.
#
# Booleans and numbers are those of YAML 1.1, but dates and base 60 numbers stay strings. An integer may be decimal, 0x,
# 0o, 0b or, with a leading 0, octal, and may have underscores. As in go-yaml's resolve.go, a table of words comes
# first, then the hint of the first character.


_WORDS: dict[str, Any] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
}
_LEADING_DOT = re.compile(r"\.[0-9]+([eE][-+]?[0-9]+)?", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_INTEGER = re.compile(r"([-+]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)", re.ASCII)
_STARTS_NUMBER = frozenset("+-0123456789")
# A longer run of digits is no 64-bit integer in any base.
_LONGEST_INTEGER = 80

_PREFIX = "tag:yaml.org,2002:"
_RESOLVED_TAGS = frozenset(_PREFIX + name for name in ("bool", "int", "float", "null", "timestamp"))


def resolve(text: str) -> Any:
    """Return the value of a plain scalar without a tag: str, bool, int, float or None."""
    if text in _WORDS:
        return _WORDS[text]
    first = text[0]
    if first == ".":
        return _finite(text) if _LEADING_DOT.fullmatch(text) else text
    if first not in _STARTS_NUMBER:
        return text
    plain = text.replace("_", "") if "_" in text else text
    integer = _integer(plain)
    if integer is not None:
        return integer
    value = _finite(plain) if _FLOAT.fullmatch(plain) else plain
    return value if value.__class__ is float else text


def resolve_tagged(tag: str, text: str) -> Any:
    """Return the value of a scalar with an explicit tag, the text for an unknown tag. DecodeError if it misfits."""
    if tag == _PREFIX + "binary":
        try:
            return b64decode("".join(text.split()), validate=True).decode("utf-8", "replace")
        except ValueError:
            raise DecodeError("yaml: !!binary value contains invalid base64 data") from None
    if tag not in _RESOLVED_TAGS:
        return text
    value = resolve(text)
    wanted = tag.removeprefix(_PREFIX)
    kind = {bool: "bool", int: "int", float: "float", str: "str"}.get(value.__class__, "null")
    if wanted == kind or (wanted == "timestamp" and kind == "str"):
        return value
    if wanted == "float" and kind == "int":
        return float(value)
    raise DecodeError(f"yaml: cannot decode !!{kind} `{text}` as a !!{wanted}")


def go_float(value: float) -> int | float:
    """Return a float as in the JSON that Kubernetes makes of YAML: whole numbers become integers.

    DecodeError for NaN and infinities, which JSON cannot hold.
    """
    if value - value != 0:
        name = "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
        raise DecodeError(f"json: unsupported value: {name}")
    return int(value) if value.is_integer() and abs(value) < 1 << 63 else value


def _integer(text: str) -> int | None:
    if len(text) > _LONGEST_INTEGER:
        return None
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    digits = match[2]
    if len(digits) > 1 and digits[0] == "0" and digits[1] in "01234567":
        value = int(digits, 8)
    else:
        value = int(digits, 0)
    if match[1] == "-":
        value = -value
    # strconv.ParseInt, then ParseUint, which takes no sign
    limit = 1 << 63 if match[1] else 1 << 64
    return value if -(1 << 63) <= value < limit else None


def _finite(text: str) -> float | str:
    value = float(text)
    return text if value - value != 0 else value


# Strings that are certainly valid plain scalars; all others are checked further.
_PLAIN = re.compile(r"[A-Za-z0-9_/.$+\-][A-Za-z0-9_/.$+\-@=()<>;,^%]*(?: [A-Za-z0-9_/.$+\-@=()<>;,^%]+)*", re.ASCII)
# Timestamps of go-yaml: unquoted, they would read back as times, not as strings.
_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
    r"(?:[Tt ][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]+)?(?:[Zz]|[-+][0-9]{2}:[0-9]{2})?)?",
    re.ASCII,
)
_BASE_60 = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?", re.ASCII)
_NO_LITERAL = re.compile(r" \n| $")
_STRINGS = json.JSONEncoder(ensure_ascii=False)


def write(value: Any) -> str:
    """Return the document, with a newline at its end. EncodeError for values that JSON cannot hold."""
    out: list[str] = []
    if value.__class__ is dict and value:
        _mapping(out, value, 0, first="")
    elif value.__class__ is list and value:
        _list(out, value, 0, first="")
    else:
        out.append(_scalar(value, 0) + "\n")
    return "".join(out)


def _mapping(out: list[str], value: dict[str, Any], indent: int, *, first: str) -> None:
    """Write a mapping. `first`: the text before the first key instead of indentation, such as a list's dash."""
    if indent > 4 * MAX_DEPTH:
        raise EncodeError("yaml: exceeded max depth")
    blanks = " " * indent
    lead = first or blanks
    for key in sorted(value):
        item = value[key]
        out.append(f"{lead}{_key(key)}:")
        lead = blanks
        if item.__class__ is dict and item:
            out.append("\n")
            _mapping(out, item, indent + 2, first="")
        elif item.__class__ is list and item:
            out.append("\n")
            _list(out, item, indent, first="")
        else:
            out.append(f" {_scalar(item, indent)}\n")


def _list(out: list[str], value: list[Any], indent: int, *, first: str) -> None:
    if indent > 4 * MAX_DEPTH:
        raise EncodeError("yaml: exceeded max depth")
    blanks = " " * indent
    lead = first or blanks
    for item in value:
        if item.__class__ is dict and item:
            _mapping(out, item, indent + 2, first=f"{lead}- ")
        elif item.__class__ is list and item:
            _list(out, item, indent + 2, first=f"{lead}- ")
        else:
            out.append(f"{lead}- {_scalar(item, indent)}\n")
        lead = blanks


def _key(key: str) -> str:
    return _double(key) if "\n" in key else _string(key, 0)


def _scalar(value: Any, indent: int) -> str:
    """Return a scalar or an empty container. A block's lines are indented deeper than `indent`."""
    if value.__class__ is str:
        return _string(value, indent)
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if value.__class__ is int:
        return str(value)
    if value.__class__ is float:
        return _float(value)
    if value.__class__ in (dict, list):
        return "{}" if value.__class__ is dict else "[]"
    raise EncodeError(f"yaml: cannot marshal {value.__class__.__name__}")


def _float(value: float) -> str:
    if value - value != 0:
        raise EncodeError("json: unsupported value: a number beyond JSON")
    return str(whole(value))


def _string(value: str, indent: int) -> str:
    if not value.isprintable():
        return _literal(value, indent) if _has_lines(value) else _double(value)
    if resolve(value).__class__ is not str or value == "<<" or _BASE_60.fullmatch(value) or _TIMESTAMP.fullmatch(value):
        return _double(value)
    if _PLAIN.fullmatch(value) and value not in ("-", "---", "...") and not value.startswith(("- ", "--- ", "... ")):
        return value
    if _needs_quotes(value):
        return "'" + value.replace("'", "''") + "'"
    return value


def _has_lines(value: str) -> bool:
    """Return whether an unprintable string may be a | block: only its line breaks are unprintable."""
    if "\n" not in value or _NO_LITERAL.search(value) or not value.strip("\n"):
        return False
    return value.replace("\n", "").isprintable()


def _needs_quotes(value: str) -> bool:
    """Return whether YAML's indicators force quotes on a printable string."""
    return (
        value[0] in "#,[]{}&*!|>'\"%@`"
        or (value[0] in "-?:" and (len(value) == 1 or value[1] == " "))
        or value[0] == " "
        or value[-1] in " :"
        or ": " in value
        or " #" in value
        or value.startswith(("---", "..."))
        or value[0] in "?:="
    )


def _literal(value: str, indent: int) -> str:
    body = value.rstrip("\n")
    ending = len(value) - len(body)
    chomp = "-" if ending == 0 else "" if ending == 1 else "+"
    hint = "2" if value[0] in " \n" else ""
    blanks = " " * (indent + 2)
    lines = [f"{blanks}{line}" if line else "" for line in body.split("\n")]
    lines += [""] * max(0, ending - 1)
    return f"|{hint}{chomp}\n" + "\n".join(lines)


def _double(value: str) -> str:
    text = _STRINGS.encode(value.encode("utf-8", "replace").decode())
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
