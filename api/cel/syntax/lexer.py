"""Tokens of an expression, by cel-go's grammar (``parser/gen/CEL.g4``).

Errors are reported as by ANTLR's lexers: with the text up to and including the character that fits no token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from kubechronicle.api.cel.errors import Issue
from kubechronicle.api.cel.syntax.ast import Literal, Node

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


# -- token stream ------------------------------------------------------------------------------------------------------
#
# The parser's view of the tokens: look-ahead, counted depth, and syntax errors.
#
# Recovery from an error follows ANTLR, as far as it affects a second message.


MAX_DEPTH: Final = 250
"""The deepest nesting of a grammar rule in itself."""
MAX_ERRORS: Final = 30

RELATIONS: Final = frozenset({"<", "<=", ">=", ">", "==", "!=", "in"})
SUMS: Final = frozenset({"+", "-"})
PRODUCTS: Final = frozenset({"*", "/", "%"})
LITERALS: Final = frozenset({FLOAT, INT, UINT, STRING, BYTES})
NUMBERS: Final = frozenset({FLOAT, INT})
CONSTANTS: Final = {"true": True, "false": False, "null": None}
OPERAND: Final = frozenset({"[", "{", "(", ".", "-", "!", IDENTIFIER, *LITERALS, *CONSTANTS})
_AFTER_OPERAND: Final = frozenset({*RELATIONS, *SUMS, *PRODUCTS, "&&", "||", "?", ".", "[", EOF})


class Stop(Exception):
    """The parser stops. The reason is among the issues."""


def too_deep() -> Issue:
    return Issue(-1, -1, f"expression recursion limit exceeded: {MAX_DEPTH}")


class TokenStream:
    """``token``: the next token. ``closers``: the closing brackets still due, innermost last."""

    def __init__(self, source: ExpressionSource, issues: list[Issue]) -> None:
        self.source = source
        self.issues = issues
        self.tokens = tokens(source, issues)
        self.at = 0
        self.token = self.tokens[0]
        self.depths = {"expr": 0, "relation": 0, "calc": 0}
        self._too_deep = False
        self.closers: list[str] = []
        self._quiet = False
        """Set after an error until a token fits again: consequences of the first error are not reported."""
        self._syntax_errors = 0

    def enter(self, rule: str) -> None:
        depth = self.depths[rule] = self.depths[rule] + 1
        if depth > MAX_DEPTH:
            self.issues.append(too_deep())
            raise Stop

    def measured(self, node: Node, parts: Iterable[Node], own: int) -> Node:
        """Set the depth of a node. Report once if it is beyond the limit."""
        node.depth = own + max((part.depth for part in parts), default=0)
        if node.depth > MAX_DEPTH and not self._too_deep:
            self._too_deep = True
            self.issues.append(Issue(-1, -1, "max recursion depth exceeded"))
        return node

    def peek(self) -> Token:
        return self.tokens[min(self.at + 1, len(self.tokens) - 1)]

    def advance(self) -> Token:
        token = self.token
        self._quiet = False
        self._skip()
        return token

    def _skip(self) -> None:
        if self.at < len(self.tokens) - 1:
            self.at += 1
        self.token = self.tokens[self.at]

    def error(self, offset: int, message: str) -> Node:
        self.issues.append(self.source.issue(offset, message))
        return Literal(offset, None)

    def _syntax(self, message: str) -> None:
        if self._quiet:
            return
        self._quiet = True
        self._syntax_errors += 1
        if self._syntax_errors > MAX_ERRORS:
            self.error(self.token.offset, f"Syntax error: error recovery attempt limit exceeded: {MAX_ERRORS}")
            raise Stop
        self.error(self.token.offset, f"Syntax error: {message}")

    def mismatch(self, kinds: frozenset[str]) -> None:
        self._syntax(f"mismatched input {quoted(self.token)} expecting {expected(kinds)}")

    def _extraneous(self, kinds: frozenset[str]) -> None:
        self._syntax(f"extraneous input {quoted(self.token)} expecting {expected(kinds)}")
        self._skip()

    def match(self, kind: str) -> None:
        if self.token.kind == kind:
            self.advance()
        elif self.peek().kind == kind and self.token.kind != EOF:
            self._extraneous(frozenset({kind}))
            self.advance()
        elif self._may_be_missing(kind):
            self._syntax(f"missing '{kind}' at {quoted(self.token)}")
        else:
            self.mismatch(frozenset({kind}))
            raise Stop

    def _may_be_missing(self, kind: str) -> bool:
        """Return whether the token may follow one of a kind, so that ANTLR goes on as if that was there."""
        if kind == ":":
            return self.token.kind in OPERAND
        return kind != EOF and self._follows()

    def _follows(self) -> bool:
        """Return whether the token may follow a closing bracket here."""
        kind = self.token.kind
        if kind == EOF:
            return not self.closers
        return kind in _AFTER_OPERAND or (bool(self.closers) and kind in (self.closers[-1], ","))

    def sync(self, kinds: frozenset[str]) -> None:
        """Require one of the kinds next. Skip one token if that helps, else report and stop."""
        if self.token.kind in kinds:
            return
        if self.token.kind != EOF and self.peek().kind in kinds:
            self._extraneous(kinds)
            return
        self.mismatch(kinds)
        raise Stop

    def need_operand(self, unary: bool) -> None:
        """Require the beginning of a value, or with ``unary`` a sign. Else report, and skip behind the value."""
        kind = self.token.kind
        if kind in OPERAND and (unary or kind not in ("-", "!") or (kind == "-" and self.peek().kind in NUMBERS)):
            return
        if kind != EOF and self.peek().kind in OPERAND:
            self._extraneous(OPERAND)
            return
        self.mismatch(OPERAND)
        stops = {*_AFTER_OPERAND, *self.closers, ","}
        while self.token.kind not in stops:
            self._skip()

    def no_viable(self, start: Token) -> None:
        token = self.token
        if token.kind in CONSTANTS:
            self._syntax(f"mismatched input {quoted(token)} expecting IDENTIFIER")
        else:
            if token.kind == EOF and self.issues:  # text that is no token is left out
                text = start.text
            else:
                end = token.offset + (0 if token.kind == EOF else len(token.text))
                text = self.source.text[start.offset : end]
            self._syntax(f"no viable alternative at input {quoted(Token('', text, 0))}")
        raise Stop
