"""The parser's view of the tokens: look-ahead, counted depth, and syntax errors.

Recovery from an error follows ANTLR, as far as it affects a second message.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubechronicle.api.cel.errors import Issue
from kubechronicle.api.cel.syntax import lexer
from kubechronicle.api.cel.syntax.ast import Literal, Node
from kubechronicle.api.cel.syntax.lexer import IDENTIFIER, ExpressionSource, Token

MAX_DEPTH: Final = 250
"""The deepest nesting of a grammar rule in itself."""
MAX_ERRORS: Final = 30

RELATIONS: Final = frozenset({"<", "<=", ">=", ">", "==", "!=", "in"})
SUMS: Final = frozenset({"+", "-"})
PRODUCTS: Final = frozenset({"*", "/", "%"})
LITERALS: Final = frozenset({lexer.FLOAT, lexer.INT, lexer.UINT, lexer.STRING, lexer.BYTES})
NUMBERS: Final = frozenset({lexer.FLOAT, lexer.INT})
CONSTANTS: Final = {"true": True, "false": False, "null": None}
OPERAND: Final = frozenset({"[", "{", "(", ".", "-", "!", IDENTIFIER, *LITERALS, *CONSTANTS})
_AFTER_OPERAND: Final = frozenset({*RELATIONS, *SUMS, *PRODUCTS, "&&", "||", "?", ".", "[", lexer.EOF})


class Stop(Exception):
    """The parser stops. The reason is among the issues."""


def too_deep() -> Issue:
    return Issue(-1, -1, f"expression recursion limit exceeded: {MAX_DEPTH}")


class TokenStream:
    """``token``: the next token. ``closers``: the closing brackets still due, innermost last."""

    def __init__(self, source: ExpressionSource, issues: list[Issue]) -> None:
        self.source = source
        self.issues = issues
        self.tokens = lexer.tokens(source, issues)
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
        self._syntax(f"mismatched input {lexer.quoted(self.token)} expecting {lexer.expected(kinds)}")

    def _extraneous(self, kinds: frozenset[str]) -> None:
        self._syntax(f"extraneous input {lexer.quoted(self.token)} expecting {lexer.expected(kinds)}")
        self._skip()

    def match(self, kind: str) -> None:
        if self.token.kind == kind:
            self.advance()
        elif self.peek().kind == kind and self.token.kind != lexer.EOF:
            self._extraneous(frozenset({kind}))
            self.advance()
        elif self._may_be_missing(kind):
            self._syntax(f"missing '{kind}' at {lexer.quoted(self.token)}")
        else:
            self.mismatch(frozenset({kind}))
            raise Stop

    def _may_be_missing(self, kind: str) -> bool:
        """Return whether the token may follow one of a kind, so that ANTLR goes on as if that was there."""
        if kind == ":":
            return self.token.kind in OPERAND
        return kind != lexer.EOF and self._follows()

    def _follows(self) -> bool:
        """Return whether the token may follow a closing bracket here."""
        kind = self.token.kind
        if kind == lexer.EOF:
            return not self.closers
        return kind in _AFTER_OPERAND or (bool(self.closers) and kind in (self.closers[-1], ","))

    def sync(self, kinds: frozenset[str]) -> None:
        """Require one of the kinds next. Skip one token if that helps, else report and stop."""
        if self.token.kind in kinds:
            return
        if self.token.kind != lexer.EOF and self.peek().kind in kinds:
            self._extraneous(kinds)
            return
        self.mismatch(kinds)
        raise Stop

    def need_operand(self, unary: bool) -> None:
        """Require the beginning of a value, or with ``unary`` a sign. Else report, and skip behind the value."""
        kind = self.token.kind
        if kind in OPERAND and (unary or kind not in ("-", "!") or (kind == "-" and self.peek().kind in NUMBERS)):
            return
        if kind != lexer.EOF and self.peek().kind in OPERAND:
            self._extraneous(OPERAND)
            return
        self.mismatch(OPERAND)
        stops = {*_AFTER_OPERAND, *self.closers, ","}
        while self.token.kind not in stops:
            self._skip()

    def no_viable(self, start: Token) -> None:
        token = self.token
        if token.kind in CONSTANTS:
            self._syntax(f"mismatched input {lexer.quoted(token)} expecting IDENTIFIER")
        else:
            if token.kind == lexer.EOF and self.issues:  # text that is no token is left out
                text = start.text
            else:
                end = token.offset + (0 if token.kind == lexer.EOF else len(token.text))
                text = self.source.text[start.offset : end]
            self._syntax(f"no viable alternative at input {lexer.quoted(Token('', text, 0))}")
        raise Stop
