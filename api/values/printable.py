"""Printable text: characters that a terminal, a browser or a log acts on, instead of showing them, become escapes.

    printable("a\\x1b[2J\\nb")  ->  a\\x1b[2J\\nb, in which the escapes are ordinary characters

Others choose names, users and values, and so could move the cursor, begin a new line or reverse the order of letters.
Unprintable are control characters, format characters such as bidirectional marks, line separators, blanks other than
the space, halves of surrogate pairs, and characters that Unicode does not assign: str.isprintable has the rule.
"""

from __future__ import annotations

import json
from typing import Any, Final

_SHORT: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def printable(text: str) -> str:
    """Return the text on one line. A printable text is returned unchanged."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def printable_lines(text: str) -> str:
    """Return the text with its line breaks, and all else escaped."""
    return "\n".join(map(printable, text.split("\n")))


def printable_json(text: str) -> str:
    """Return the same JSON with unprintable characters as its own escapes; line breaks between values stay."""
    lines = text.split("\n")
    return text if all(map(str.isprintable, lines)) else "\n".join(map(_json_line, lines))


def _json_line(line: str) -> str:
    return line if line.isprintable() else "".join(each if each.isprintable() else json_escape(each) for each in line)


def json_escape(character: str) -> str:
    """Return a character as JSON writes it in ASCII: two escapes for those beyond U+FFFF."""
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x100:
        return _SHORT.get(character) or f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# -- compact json ------------------------------------------------------------------------------------------------------
#
# JSON on one line without blanks, as orjson writes it.
#
# Commands of `kubectl chronicle` show numbers and words far more often than whole objects. So orjson, whose import
# takes as long as the rest of such a command, is imported for mappings, lists and fractions alone.

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)


def compact_json(value: Any) -> str:
    """Return a value of JSON as text."""
    if value is None or isinstance(value, str | int):
        return _ENCODER.encode(value)
    import orjson

    return orjson.dumps(value).decode()
