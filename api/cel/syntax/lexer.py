"""Tokens of an expression, by cel-go's grammar (``parser/gen/CEL.g4``).

Errors are reported as by ANTLR's lexers: with the text up to and including the character that fits no token.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from kubechronicle.api.cel.errors import Issue

EOF: Final = "<EOF>"
IDENTIFIER: Final = "IDENTIFIER"
ESCAPED: Final = "ESC_IDENTIFIER"
STRING: Final = "STRING"
BYTES: Final = "BYTES"
INT: Final = "NUM_INT"
UINT: Final = "NUM_UINT"
FLOAT: Final = "NUM_FLOAT"

_ESCAPE: Final = r"\\(?:[abfnrtv\"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
_PARTIAL_ESCAPE: Final = r"\\(?:[0-3][0-7]?|[xX][0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7})?"
_QUOTED: Final = (
    rf'"""(?:{_ESCAPE}|[^\\])*?"""',
    rf"'''(?:{_ESCAPE}|[^\\])*?'''",
    rf'"(?:{_ESCAPE}|[^\\"\n\r])*"',
    rf"'(?:{_ESCAPE}|[^\\'\n\r])*'",
    r'[rR]"""[\s\S]*?"""',
    r"[rR]'''[\s\S]*?'''",
    r'[rR]"[^"\n\r]*"',
    r"[rR]'[^'\n\r]*'",
)
_STRING: Final = "|".join(_QUOTED)
_EXPONENT: Final = r"[eE][+-]?[0-9]+"

_TOKEN: Final = re.compile(
    rf"""(?P<SPACE>[\t \r\n\f]+|//[^\n]*)
|(?P<BYTES>[bB](?:{_STRING}))
|(?P<STRING>{_STRING})
|(?P<NUM_FLOAT>[0-9]+\.[0-9]+(?:{_EXPONENT})?|[0-9]+{_EXPONENT}|\.[0-9]+(?:{_EXPONENT})?)
|(?P<NUM_UINT>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
|(?P<NUM_INT>0x[0-9a-fA-F]+|[0-9]+)
|(?P<IDENTIFIER>[A-Za-z_][A-Za-z0-9_]*)
|(?P<ESC_IDENTIFIER>`[A-Za-z0-9_.\-/\ ]+`)
|(?P<SYMBOL>==|!=|<=|>=|&&|\|\||[<>\[\]{{}}().,\-!?:+*/%])""",
    re.VERBOSE,
)
_KEYWORDS: Final = frozenset({"in", "true", "false", "null"})

_UNFINISHED: Final = re.compile(
    rf"""(?:"(?:{_ESCAPE}|[^\\"\n\r])*|'(?:{_ESCAPE}|[^\\'\n\r])*)(?:{_PARTIAL_ESCAPE})?|`[A-Za-z0-9_.\-/ ]*|[|&=]"""
)
"""The beginning of a token that is broken by the next character."""

ORDER: Final = (
    *("==", "!=", "in", "<", "<=", ">=", ">", "&&", "||", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":"),
    *("+", "*", "/", "%", "true", "false", "null", FLOAT, INT, UINT, STRING, BYTES, IDENTIFIER, ESCAPED),
)
"""The kinds of tokens in the order of messages."""

_NAMED: Final = frozenset({FLOAT, INT, UINT, STRING, BYTES, IDENTIFIER, ESCAPED, EOF})


class Token(NamedTuple):
    """``kind``: the text of an operator or keyword, or one of the names above. ``offset`` counts characters."""

    kind: str
    text: str
    offset: int


class Place(NamedTuple):
    """A place in the source: line from 1, column from 0."""

    line: int
    column: int


class ExpressionSource:
    """The text of an expression, with the offsets of its lines."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0, *(newline.end() for newline in re.finditer("\n", text))]

    def place(self, offset: int) -> Place:
        starts = self._starts
        low, high = 0, len(starts)
        while high - low > 1:
            middle = (low + high) // 2
            if starts[middle] <= offset:
                low = middle
            else:
                high = middle
        return Place(low + 1, offset - starts[low])

    def issue(self, offset: int, message: str) -> Issue:
        return Issue(*self.place(offset), message)


def tokens(source: ExpressionSource, issues: list[Issue]) -> list[Token]:
    """Return the tokens and a last one of kind EOF. Text that is no token becomes an issue instead."""
    text = source.text
    listed: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            end = _failing_end(text, position)
            shown = _shown(text[position:end])
            issues.append(source.issue(position, f"Syntax error: token recognition error at: '{shown}'"))
            position = end
            continue
        kind = str(match.lastgroup)
        if kind != "SPACE":
            value = match.group()
            if kind == "SYMBOL" or (kind == IDENTIFIER and value in _KEYWORDS):
                kind = value
            listed.append(Token(kind, value, position))
        position = match.end()
    listed.append(Token(EOF, EOF, len(text)))
    return listed


def _failing_end(text: str, position: int) -> int:
    match = _UNFINISHED.match(text, position)
    return min(len(text), (match.end() if match else position) + 1)


def _shown(text: str) -> str:
    return text.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")


def quoted(token: Token) -> str:
    """Return a token as messages show it."""
    return f"'{_shown(token.text)}'"


def expected(kinds: frozenset[str]) -> str:
    """Return a set of kinds as in messages: ``{'[', '{', IDENTIFIER}``, or a single one without braces."""
    listed = [_kind(kind) for kind in sorted(kinds, key=lambda kind: ORDER.index(kind) if kind in ORDER else -1)]
    return listed[0] if len(listed) == 1 else f"{{{', '.join(listed)}}}"


def _kind(kind: str) -> str:
    return kind if kind in _NAMED else f"'{kind}'"
