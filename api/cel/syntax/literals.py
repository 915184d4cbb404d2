"""Values of literals: range-checked numbers, and strings and bytes without quotes and escapes.

Source: cel-go ``parser/unescape.go`` and its parser's visitors of literals.
"""

from __future__ import annotations

import re
from typing import Any, Final

from kubechronicle.api.cel.syntax import lexer
from kubechronicle.api.cel.values import INT_MAX, INT_MIN, UINT_MAX, UInt

_SIMPLE: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "`": "`",
    "?": "?",
}
_ESCAPE: Final = re.compile(
    r"\\(?:([abfnrtv\\'\"`?])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2}))|([^\\]+)"
)
_SURROGATES: Final = range(0xD800, 0xE000)


class LiteralError(Exception):
    """A literal without a value. The text is cel-go's."""


def value(kind: str, text: str) -> Any:
    """Return the value of a literal token. ``text`` may have a minus sign. LiteralError if it has no value."""
    return _READERS[kind](text)


def _int(text: str) -> int:
    number = _integer(text)
    if not INT_MIN <= number <= INT_MAX:
        raise LiteralError("invalid int literal")
    return number


def _uint(text: str) -> UInt:
    number = _integer(text[:-1])
    if number > UINT_MAX:
        raise LiteralError("invalid uint literal")
    return UInt(number)


def _integer(text: str) -> int:
    if len(text) > 100:  # out of any range; Python rejects very long integers
        return UINT_MAX + 1
    return int(text, 16) if "0x" in text else int(text)


def _double(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise LiteralError("invalid double literal")
    return number


def _string(text: str) -> str:
    raw, body = _unquoted(text)
    if raw or "\\" not in body:
        return body
    return "".join(_pieces(body))


def _pieces(body: str) -> list[str]:
    pieces = []
    for simple, hexadecimal, short, long, octal, plain in _escapes(body):
        if plain:
            pieces.append(plain)
        elif simple:
            pieces.append(_SIMPLE[simple])
        else:
            code = int(octal, 8) if octal else int(hexadecimal or short or long, 16)
            if code in _SURROGATES or code > 0x10FFFF:
                raise LiteralError("invalid unicode code point")
            pieces.append(chr(code))
    return pieces


def _bytes(text: str) -> bytes:
    raw, body = _unquoted(text[1:])
    if raw or "\\" not in body:
        return body.encode("utf-8", "surrogatepass")
    pieces = bytearray()
    for simple, hexadecimal, short, long, octal, plain in _escapes(body):
        if plain or simple:
            pieces += (plain or _SIMPLE[simple]).encode("utf-8", "surrogatepass")
        elif short or long:
            raise LiteralError("unable to unescape string")
        else:
            pieces.append(int(octal, 8) if octal else int(hexadecimal, 16))
    return bytes(pieces)


def _escapes(body: str) -> list[tuple[str, ...]]:
    return _ESCAPE.findall(body)


def _unquoted(text: str) -> tuple[bool, str]:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    raw = text[0] in "rR"
    if raw:
        text = text[1:]
    width = 3 if len(text) >= 6 and text[:3] in ('"""', "'''") else 1
    return raw, text[width:-width]


_READERS: Final = {
    lexer.INT: _int,
    lexer.UINT: _uint,
    lexer.FLOAT: _double,
    lexer.STRING: _string,
    lexer.BYTES: _bytes,
}
