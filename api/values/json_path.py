"""The syntax of JSONPath as kubectl and Kubernetes' rules know it: ``{.spec.ports[0].name}``.

Source: k8s.io/client-go/util/jsonpath.
"""

from __future__ import annotations

import re
from typing import Final

_END: Final = ""
_TERMINATORS: Final = frozenset((_END, " ", "\t", "\r", "\n", *".,[]$@{}"))
_KEY: Final = re.compile(r"'([^']*)'\Z")
_SLICE: Final = re.compile(r"(-?[0-9]*)(?::(-?[0-9]*))?(?::(-?[0-9]*))?\Z")
_COMPARISON: Final = re.compile(r"([^!<>=]+)([!<>=]+)(.+)\Z")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)\Z")
_LONGEST_NUMBER: Final = 309
"""Digits of a number that no float reaches."""
_ESCAPES: Final = r"\\([abfnrtv\\]|x[0-9a-fA-F]{2}|[0-3][0-7]{2}|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|U000[0-9a-fA-F]{5})"
_MAX_INDEX: Final = 2**63


class _SyntaxError(Exception):
    """``args[0]``: the problem."""


def problem(text: str) -> str:
    """Return the first syntax error of a template, empty if there is none."""
    try:
        _PathParser(text).parse()
    except _SyntaxError as error:
        return str(error.args[0])
    return ""


class _PathParser:
    """``start``: the place after the last part. ``pos``: the place of the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.start = self.pos = 0

    def parse(self) -> None:
        while (opened := self.text.find("{", self.pos)) >= 0:
            self.start = self.pos = opened + 1
            self._action()

    def _next(self) -> str:
        if self.pos >= len(self.text):
            return _END
        self.pos += 1
        return self.text[self.pos - 1]

    def _peek(self) -> str:
        return self.text[self.pos : self.pos + 1]

    def _take(self) -> str:
        taken = self.text[self.start : self.pos]
        self.start = self.pos
        return taken

    def _action(self) -> None:
        """Read the parts up to the closing brace."""
        recursive = False  # the part before was ".."
        while True:
            if self.text.startswith("}", self.pos):
                self.pos += 1
                self._take()
                return
            recursive = self._part(after_recursive=recursive)

    def _part(self, *, after_recursive: bool) -> bool:
        """Read one part. Return whether ".." is now the last part."""
        if self.text.startswith("[?(", self.pos):
            self._filter()
            return False
        if self.text.startswith("..", self.pos):
            return self._recursive(after_recursive=after_recursive)
        char = self._next()
        if char in (_END, "\r", "\n"):
            raise _SyntaxError("unclosed action")
        if char in (" ", "@", "$"):
            self._take()
            return after_recursive
        if char == "[":
            self._array()
        elif char in ('"', "'"):
            self._quoted(char)
        elif char == ".":
            self._field()
        elif char in "+-" or char.isdecimal():
            self._number(char)
        elif char == "_" or char.isalpha():
            self._identifier()
        else:
            shown = f" '{char}'" if char.isprintable() else ""
            raise _SyntaxError(f"unrecognized character in action: U+{ord(char):04X}{shown}")
        return False

    def _recursive(self, *, after_recursive: bool) -> bool:
        if after_recursive:
            raise _SyntaxError("invalid multiple recursive descent")
        self.pos += 2
        self._take()
        char = self._peek()
        if char and (char == "_" or char.isalpha() or char.isdecimal()):
            self._field()
            return False
        return True

    def _identifier(self) -> None:
        while self._peek() not in _TERMINATORS:
            self.pos += 1
        self._take()

    def _field(self) -> None:
        while (char := self._peek()) not in _TERMINATORS:
            self.pos += 2 if char == "\\" else 1
        self.pos = min(self.pos, len(self.text))
        self._take()

    def _number(self, first: str) -> None:
        while (char := self._peek()) == "." or char.isdecimal():
            self.pos += 1
        text = self._take()
        whole = text.partition(".")[0].lstrip("+-0")
        if not _DECIMAL.match(text) or len(whole) >= _LONGEST_NUMBER:
            raise _SyntaxError(f"cannot parse number {text}")

    def _quoted(self, quote: str) -> None:
        while (char := self._next()) != quote or self.text[self.pos - 2] == "\\":
            if char in (_END, "\n"):
                raise _SyntaxError("unterminated quoted string")
        text = self._take()
        if not re.fullmatch(rf"(?:[^\\{quote}]|\\{quote}|{_ESCAPES})*", text[1:-1]):
            raise _SyntaxError(f"unquote string {text} error invalid syntax")

    def _array(self) -> None:
        while (char := self._next()) != "]":
            if char in (_END, "\n"):
                raise _SyntaxError("unterminated array")
        text = self._take()[1:-1]
        parts = text.split(",")
        if len(parts) > 1:
            for part in parts:
                _parse_action(f"[{part.strip(' ')}]")
            return
        if key := _KEY.match(text):
            _parse_action(f".{key[1]}")
            return
        found = _SLICE.match(":" if text == "*" else text)
        if found is None:
            raise _SyntaxError(f"invalid array index {text}")
        for number in found.groups():
            if number and (number == "-" or not -_MAX_INDEX <= _bounded(number) < _MAX_INDEX):
                raise _SyntaxError(f"array index {number} is not a number")

    def _filter(self) -> None:
        self.pos += 3
        self._take()
        self._skip_condition()
        if self._next() != "]":
            raise _SyntaxError("unclosed array expect ]")
        text = self._take()[:-2]
        found = _COMPARISON.match(text)
        for side in (text,) if found is None else (found[1], found[3]):
            _parse_action(side)

    def _skip_condition(self) -> None:
        """Move behind the closing parenthesis of a filter, past one quoted text."""
        pair, closed = "", False
        while True:
            char = self._next()
            if char in (_END, "\n"):
                raise _SyntaxError("unterminated filter")
            if char in ('"', "'"):
                if not pair:
                    pair = char
                elif self.text[self.pos - 2] != "\\" and char == pair:
                    closed = True
            elif char == ")" and bool(pair) == closed:
                return


def _bounded(number: str) -> int:
    """Return a number, or any one out of range for a long text."""
    return int(number) if len(number) < 30 else _MAX_INDEX


def _parse_action(text: str) -> None:
    _PathParser(f"{{{text}}}").parse()
