"""Syntax errors of JSON documents, with the texts of Go's encoding/json.

Lives here: a validator for documents that another decoder has rejected, which finds the text clients expect. Not here:
values. The states and texts are those of encoding/json's scanner.go. One regular expression skips runs of valid members
and items whose own members are scalars; the scanner reads the rest. The error is at the same byte, for example

    nonsense      invalid character 'o' in literal null (expecting 'u')
    {"a":1,}      invalid character '}' looking for beginning of object key string
    {"a":         unexpected end of JSON input
"""

from __future__ import annotations

import re

__all__ = ["syntax_error"]

_END = "unexpected end of JSON input"
_BLANK = re.compile(rb"[ \t\r\n]*")
_PLAIN = re.compile(rb'[^"\\\x00-\x1f]*')
_DIGITS = re.compile(rb"[0-9]*")
# Groups are repeated greedily: some releases of Python match possessive groups wrongly.
_SPACE = rb"[ \t\r\n]*+"
_TEXT = rb'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*"'
_NUMBER = rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?"
_SCALAR = rb"(?:%b|%b|true|false|null)%b" % (_TEXT, _NUMBER, _SPACE)
_MEMBER = rb"%b%b:%b%b" % (_TEXT, _SPACE, _SPACE, _SCALAR)
_LIST, _OBJECT = (rb"%%b%b(?:%b(?:,%b%b)*)?%%b%b" % (_SPACE, one, _SPACE, one, _SPACE) for one in (_SCALAR, _MEMBER))
_ITEM = rb"(?:%b|%b|%b),%b" % (_SCALAR, _LIST % (rb"\[", rb"\]"), _OBJECT % (rb"\{", rb"\}"), _SPACE)
_ITEMS = re.compile(rb"(?:%b){0,1000}" % _ITEM)
_MEMBERS = re.compile(rb"(?:%b%b:%b%b){0,1000}" % (_TEXT, _SPACE, _SPACE, _ITEM))
_ESCAPES = frozenset(b'bfnrt\\/"')
_HEX = frozenset(b"0123456789abcdefABCDEF")
_LITERALS = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}


class _SyntaxFound(Exception):
    """Stops the scanner at the first error."""


def syntax_error(data: bytes, *, max_depth: int) -> str | None:
    """Return Go's text for the first syntax error of a document, None if there is none."""
    try:
        _document(data, max_depth)
    except _SyntaxFound as problem:
        return str(problem)
    return None


def _document(data: bytes, max_depth: int) -> None:
    """Read one value with blanks around it. `stack` holds the closing byte of each open object or array."""
    at = _blanks(data, 0)
    stack: list[int] = []
    while True:
        at = _begin_value(data, at, stack, max_depth)
        while True:  # behind a value: the continuation depends on the innermost container
            at = _blanks(data, at)
            if not stack:
                if at < len(data):
                    _reject(data, at, "after top-level value")
                return
            if _byte(data, at) == stack[-1]:
                stack.pop()
                at += 1
                continue
            inside_object = stack[-1] == 0x7D
            if data[at] != 0x2C:
                _reject(data, at, "after object key:value pair" if inside_object else "after array element")
            at = _blanks(data, at + 1)
            if len(stack) < max_depth:  # else a container in the run would be too deep
                run = _MEMBERS if inside_object else _ITEMS
                while at < (at := _skip(run, data, at)):
                    pass
            if inside_object:
                at = _key(data, at)
            break


def _begin_value(data: bytes, at: int, stack: list[int], max_depth: int) -> int:
    """Skip a scalar or an empty object or array. Enter any other one, up to its first scalar."""
    while True:
        at = _blanks(data, at)
        first = _byte(data, at)
        if first not in (0x7B, 0x5B):
            return _scalar(data, at, first)
        if len(stack) >= max_depth:
            _reject(data, at, "exceeded max depth")
        closing = first + 2
        start, at = at, _blanks(data, at + 1)
        if _byte(data, at) == closing:
            return at + 1
        stack.append(closing)
        if first == 0x7B:
            at = _key(data, at)
        if at <= start:
            raise AssertionError("the scanner must move on")


def _key(data: bytes, at: int) -> int:
    if _byte(data, at) != 0x22:
        _reject(data, at, "looking for beginning of object key string")
    at = _blanks(data, _string(data, at + 1))
    if _byte(data, at) != 0x3A:
        _reject(data, at, "after object key")
    return _blanks(data, at + 1)


def _scalar(data: bytes, at: int, first: int) -> int:
    if first == 0x22:
        return _string(data, at + 1)
    if first in _LITERALS:
        return _literal(data, at, _LITERALS[first])
    if first == 0x2D or 0x30 <= first <= 0x39:
        return _number(data, at)
    return _reject(data, at, "looking for beginning of value")


def _string(data: bytes, at: int) -> int:
    while True:
        at = _skip(_PLAIN, data, at)
        byte = _byte(data, at)
        if byte == 0x22:
            return at + 1
        if byte != 0x5C:
            _reject(data, at, "in string literal")
        escape = _inside(data, at + 1)
        at += 2
        if escape == 0x75:
            for place in range(at, at + 4):
                if _inside(data, place) not in _HEX:
                    _reject(data, place, "in \\u hexadecimal character escape")
            at += 4
        elif escape not in _ESCAPES:
            _reject(data, at - 1, "in string escape code")


def _literal(data: bytes, at: int, word: bytes) -> int:
    for place in range(1, len(word)):
        if _inside(data, at + place) != word[place]:
            _reject(data, at + place, f"in literal {word.decode()} (expecting '{chr(word[place])}')")
    return at + len(word)


def _number(data: bytes, at: int) -> int:
    if data[at] == 0x2D:
        at += 1
    if _inside(data, at) == 0x30:
        at += 1
    else:
        at = _digits(data, at, "in numeric literal")
    if data[at : at + 1] == b".":
        at = _digits(data, at + 1, "after decimal point in numeric literal")
    if data[at : at + 1] in (b"e", b"E"):
        at += 1
        if data[at : at + 1] in (b"+", b"-"):
            at += 1
        at = _digits(data, at, "in exponent of numeric literal")
    return at


def _digits(data: bytes, at: int, context: str) -> int:
    if not 0x30 <= _inside(data, at) <= 0x39:
        _reject(data, at, context)
    return _skip(_DIGITS, data, at)


def _blanks(data: bytes, at: int) -> int:
    return _skip(_BLANK, data, at)


def _skip(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    match = pattern.match(data, at)
    return match.end() if match else at


def _byte(data: bytes, at: int) -> int:
    if at >= len(data):
        raise _SyntaxFound(_END)
    return data[at]


def _inside(data: bytes, at: int) -> int:
    """Return a byte within a scalar; a blank behind the last one, which Go's scanner is given there."""
    return data[at] if at < len(data) else 0x20


def _reject(data: bytes, at: int, context: str) -> int:
    raise _SyntaxFound(f"invalid character {_quoted(_inside(data, at))} {context}")


def _quoted(byte: int) -> str:
    """Return one byte as a Go character literal (encoding/json's quoteChar)."""
    special = {0x27: "\\'", 0x5C: "\\\\", 7: "\\a", 8: "\\b", 12: "\\f", 10: "\\n", 13: "\\r", 9: "\\t", 11: "\\v"}
    character = chr(byte)
    if byte in special:
        return f"'{special[byte]}'"
    if character.isprintable():
        return f"'{character}'"
    return f"'\\x{byte:02x}'" if byte < 0x80 else f"'\\u{byte:04x}'"
