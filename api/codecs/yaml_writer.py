"""A writer of block-style YAML with Kubernetes' layout: keys sorted, two blanks a level, lists not indented.

A string is plain if go-yaml reads it back as that string. It is "double quoted" if it would read as another value
(`"true"`, `"1"`), 'single quoted' if it conflicts with YAML's punctuation, and a | block if it has several lines.
Unprintable characters, bidirectional marks among them, are always escaped, because YAML is read on terminals.
"""

from __future__ import annotations

import json
import re
from typing import Any

from kubechronicle.api.codecs.depth import MAX_DEPTH
from kubechronicle.api.codecs.errors import EncodeError
from kubechronicle.api.codecs.yaml_scalars import resolve
from kubechronicle.api.values.numbers import whole

__all__ = ["write"]

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
