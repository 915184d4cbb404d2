"""From an expression's text to its tree, with macros expanded.

A precedence parser for cel-go's grammar. Errors carry the words ANTLR gives them, and what it does to go on after one
is followed as far as it shows in a second message: one token too many is skipped, one that lacks is thought there,
and a missing operand ends at the next operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.cel import lexer, literals
from kubechronicle.api.cel.ast import Call, Entry, Ident, ListNode, Literal, MapNode, Node, Select, StructNode
from kubechronicle.api.cel.errors import CompileError, Issue
from kubechronicle.api.cel.lexer import ESCAPED, IDENTIFIER, Source, Token
from kubechronicle.api.cel.macros import Macro, MacroError

MAX_SIZE: Final = 100_000
"""Characters of an expression."""
MAX_DEPTH: Final = 250
"""How deep a rule of the grammar may contain itself."""
MAX_ERRORS: Final = 30

_RESERVED: Final = frozenset(
    {
        *("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop"),
        *("package", "namespace", "null", "return", "true", "var", "void", "while"),
    }
)
_RELATIONS: Final = frozenset({"<", "<=", ">=", ">", "==", "!=", "in"})
_SUMS: Final = frozenset({"+", "-"})
_PRODUCTS: Final = frozenset({"*", "/", "%"})
_FUNCTIONS: Final = {operator: f"_{operator}_" for operator in (*_RELATIONS, *_SUMS, *_PRODUCTS, "&&", "||")}
_FUNCTIONS["in"] = "@in"

_LITERALS: Final = frozenset({lexer.FLOAT, lexer.INT, lexer.UINT, lexer.STRING, lexer.BYTES})
_NUMBERS: Final = frozenset({lexer.FLOAT, lexer.INT})
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_OPERAND: Final = frozenset({"[", "{", "(", ".", "-", "!", IDENTIFIER, *_LITERALS, *_CONSTANTS})
_AFTER_OPERAND: Final = frozenset({*_RELATIONS, *_SUMS, *_PRODUCTS, "&&", "||", "?", ".", "[", lexer.EOF})


def too_deep() -> Issue:
    return Issue(-1, -1, f"expression recursion limit exceeded: {MAX_DEPTH}")


Macros = Mapping[tuple[str, int, bool], Macro]
"""(name, number of arguments, with a receiver) -> macro."""


class _Stop(Exception):
    """The parser gives up; what it had to say is among the issues."""


def parse(source: Source, macros: Macros) -> Node:
    """Return the tree of an expression. CompileError with all that is wrong with its form."""
    if len(source.text) > MAX_SIZE:
        limit = f"expression code point size exceeds limit: size: {len(source.text)}, limit {MAX_SIZE}"
        raise CompileError([Issue(-1, -1, limit)], source.text)
    issues: list[Issue] = []
    parser = _Parser(source, macros, issues)
    try:
        tree = parser.whole()
    except _Stop:
        tree = Literal(0, None)
    except RecursionError:
        issues.append(too_deep())
    if issues:
        raise CompileError(issues, source.text)
    return tree


class _Parser:
    def __init__(self, source: Source, macros: Macros, issues: list[Issue]) -> None:
        self._source = source
        self._macros = macros
        self._issues = issues
        self._tokens = lexer.tokens(source, issues)
        self._at = 0
        self._token = self._tokens[0]
        self._quiet = False
        """After an error, until a token fits again: what follows from the first is not worth telling."""
        self._syntax_errors = 0
        self._depths = {"expr": 0, "relation": 0, "calc": 0, "member": 0}
        self._closers: list[str] = []

    def whole(self) -> Node:
        tree = self._expression()
        self._match(lexer.EOF)
        return tree

    # -- rules --------------------------------------------------------------------------------------------------------

    def _expression(self) -> Node:
        """conditionalOr ('?' conditionalOr ':' expr)?"""
        self._enter("expr")
        tree = self._binary(0)
        if self._token.kind == "?":
            operator = self._advance()
            self._closers.append(":")
            first = self._binary(0)
            self._closers.pop()
            self._match(":")
            second = self._expression()
            tree = self._call(operator.offset, "_?_:_", [tree, first, second])
        self._depths["expr"] -= 1
        return tree

    def _binary(self, level: int) -> Node:
        """Operators that bind at least as tightly as ``level``: 0 ||, 1 &&, 2 relations, 3 sums, 4 products, 5 none."""
        depths = self._depths
        before = depths["relation"], depths["calc"]
        if level <= 2:
            self._enter("relation")
        if level <= 4:
            self._enter("calc")
        tree = self._operand()
        while True:
            kind = self._token.kind
            if kind in _PRODUCTS:
                binding, rule = 4, "calc"
            elif kind in _SUMS:
                binding, rule = 3, "calc"
            elif kind in _RELATIONS:
                binding, rule = 2, "relation"
            else:
                break
            if binding < level:
                break
            self._enter(rule)
            operator = self._advance()
            tree = self._call(operator.offset, _FUNCTIONS[kind], [tree, self._binary(binding + 1)])
        depths["relation"], depths["calc"] = before
        if level <= 1 and self._token.kind == "&&":
            tree = self._logic("&&", tree, 2)
        if level == 0 and self._token.kind == "||":
            tree = self._logic("||", tree, 1)
        return tree

    def _logic(self, kind: str, first: Node, level: int) -> Node:
        terms = [first]
        offset = self._token.offset
        while self._token.kind == kind:
            self._advance()
            terms.append(self._binary(level))
        return Call(offset, _FUNCTIONS[kind], terms)

    def _operand(self) -> Node:
        """unary, member and primary: a chain of selections, calls and indexes behind a value."""
        token = self._token
        if token.kind in ("!", "-") and not (token.kind == "-" and self._peek().kind in _NUMBERS):
            times = 0
            while self._token.kind == token.kind:
                self._advance()
                times += 1
            operand = self._members(self._primary())
            if times % 2 == 0:
                return operand
            return self._call(token.offset, "!_" if token.kind == "!" else "-_", [operand])
        return self._members(self._primary())

    def _members(self, tree: Node) -> Node:
        depth = self._depths["member"]
        while self._token.kind in (".", "["):
            self._enter("member")
            operator = self._advance()
            tree = self._selection(operator, tree) if operator.kind == "." else self._index(operator, tree)
        self._depths["member"] = depth
        return tree

    def _selection(self, dot: Token, operand: Node) -> Node:
        optional = self._token.kind == "?"
        if optional:
            self._advance()
        name = self._token
        if name.kind not in (IDENTIFIER, ESCAPED):
            self._no_viable(dot)
        self._advance()
        if optional:
            return Call(dot.offset, "_?._", [operand, Literal(name.offset, _identifier(name))])
        if self._token.kind == "(" and name.kind == IDENTIFIER:
            opening = self._advance()
            return self._call(opening.offset, name.text, self._arguments(), operand)
        return Select(dot.offset, operand, _identifier(name))

    def _index(self, bracket: Token, operand: Node) -> Node:
        optional = self._token.kind == "?"
        if optional:
            self._advance()
        index = self._within("]")
        return self._call(bracket.offset, "_[?_]" if optional else "_[_]", [operand, index])

    def _primary(self) -> Node:
        self._need_operand()
        token = self._token
        kind = token.kind
        if kind == IDENTIFIER or kind == ".":
            return self._named()
        if kind in _LITERALS or kind == "-":
            return self._literal()
        if kind in _CONSTANTS:
            self._advance()
            return Literal(token.offset, _CONSTANTS[kind])
        if kind == "(":
            self._advance()
            return self._within(")")
        if kind == "[":
            return self._list()
        if kind == "{":
            return self._map()
        return Literal(token.offset, None)  # an error, reported already

    def _literal(self) -> Node:
        token = self._advance()
        text = token.text
        kind = token.kind
        if kind == "-":
            number = self._advance()
            kind, text = number.kind, "-" + number.text
        try:
            return Literal(token.offset, literals.value(kind, text))
        except literals.LiteralError as error:
            return self._error(token.offset, str(error))

    def _named(self) -> Node:
        """An identifier, a call of a function, or the construction of an object."""
        dot = self._advance() if self._token.kind == "." else None
        first = self._token
        if first.kind != IDENTIFIER:
            self._no_viable(dot or first)
        self._advance()
        prefix = "." if dot else ""
        offset = dot.offset if dot else first.offset
        end = self._object_name_end()
        if end is not None:
            name = first.text
            while self._at < end:
                name += self._advance().text
            return self._object(prefix + name)
        if first.text in _RESERVED:
            node = self._error(offset, f"reserved identifier: {first.text}")
            if self._token.kind == "(":
                self._advance()
                self._arguments()
            return node
        if self._token.kind == "(":
            opening = self._advance()
            return self._call(opening.offset, prefix + first.text, self._arguments())
        return Ident(first.offset, prefix + first.text)

    def _object_name_end(self) -> int | None:
        """The place of the ``{`` if from here on ``.name`` repeats until one."""
        at = self._at
        while self._tokens[at].kind == "." and self._tokens[at + 1].kind == IDENTIFIER:
            at += 2
        return at if self._tokens[at].kind == "{" else None

    def _object(self, name: str) -> Node:
        opening = self._advance()
        entries: list[Entry] = []
        self._closers.append("}")
        self._sync(frozenset({"}", ",", "?", IDENTIFIER, ESCAPED}))
        while self._token.kind in ("?", IDENTIFIER, ESCAPED):
            optional = self._token.kind == "?"
            if optional:
                self._advance()
            field = self._token
            if field.kind not in (IDENTIFIER, ESCAPED):
                self._mismatch(frozenset({IDENTIFIER, ESCAPED}))
                raise _Stop
            self._advance()
            colon = self._token
            self._match(":")
            entries.append(Entry(colon.offset, _identifier(field), self._expression(), optional))
            if not self._comma("}"):
                break
        self._closers.pop()
        self._close("}")
        return StructNode(opening.offset, name, entries)

    def _list(self) -> Node:
        opening = self._advance()
        elements: list[Node] = []
        optional = set()
        self._closers.append("]")
        self._sync(_OPERAND | {"]", ",", "?"})
        while self._token.kind not in ("]", ","):
            if self._token.kind == "?":
                self._advance()
                optional.add(len(elements))
            elements.append(self._expression())
            if not self._comma("]"):
                break
        self._closers.pop()
        self._close("]")
        return ListNode(opening.offset, elements, frozenset(optional))

    def _map(self) -> Node:
        opening = self._advance()
        entries: list[Entry] = []
        self._closers.append("}")
        self._sync(_OPERAND | {"}", ",", "?"})
        while self._token.kind not in ("}", ","):
            optional = self._token.kind == "?"
            if optional:
                self._advance()
            key = self._expression()
            colon = self._token
            self._match(":")
            entries.append(Entry(colon.offset, key, self._expression(), optional))
            if not self._comma("}"):
                break
        self._closers.pop()
        self._close("}")
        return MapNode(opening.offset, entries)

    def _comma(self, closer: str) -> bool:
        """Whether another element follows; a comma before the closer belongs to the closer."""
        if self._token.kind != "," or self._peek().kind == closer:
            return False
        self._advance()
        return True

    def _close(self, closer: str) -> None:
        if self._token.kind not in (",", closer):
            self._sync(frozenset({closer, ","}))
        if self._token.kind == ",":
            self._advance()
        self._match(closer)

    def _arguments(self) -> list[Node]:
        arguments: list[Node] = []
        self._closers.append(")")
        self._sync(_OPERAND | {")"})
        if self._token.kind != ")":
            arguments.append(self._expression())
            while self._token.kind == ",":
                self._advance()
                arguments.append(self._expression())
        self._closers.pop()
        self._match(")")
        return arguments

    def _within(self, closer: str) -> Node:
        self._closers.append(closer)
        tree = self._expression()
        self._closers.pop()
        self._match(closer)
        return tree

    def _call(self, offset: int, function: str, arguments: list[Node], target: Node | None = None) -> Node:
        macro = self._macros.get((function, len(arguments), target is not None))
        if macro is not None:
            try:
                expanded = macro.expand(offset, target, arguments)
            except MacroError as error:
                return self._error(error.offset, error.message)
            if expanded is not None:
                return expanded
        return Call(offset, function, arguments, target)

    # -- tokens and errors --------------------------------------------------------------------------------------------

    def _enter(self, rule: str) -> None:
        depth = self._depths[rule] = self._depths[rule] + 1
        if depth > MAX_DEPTH:
            self._issues.append(too_deep())
            raise _Stop

    def _peek(self) -> Token:
        return self._tokens[min(self._at + 1, len(self._tokens) - 1)]

    def _advance(self) -> Token:
        token = self._token
        self._quiet = False
        self._skip()
        return token

    def _skip(self) -> None:
        if self._at < len(self._tokens) - 1:
            self._at += 1
        self._token = self._tokens[self._at]

    def _error(self, offset: int, message: str) -> Node:
        self._issues.append(self._source.issue(offset, message))
        return Literal(offset, None)

    def _syntax(self, message: str) -> None:
        if self._quiet:
            return
        self._quiet = True
        self._syntax_errors += 1
        if self._syntax_errors > MAX_ERRORS:
            self._error(self._token.offset, f"Syntax error: error recovery attempt limit exceeded: {MAX_ERRORS}")
            raise _Stop
        self._error(self._token.offset, f"Syntax error: {message}")

    def _mismatch(self, kinds: frozenset[str]) -> None:
        self._syntax(f"mismatched input {lexer.quoted(self._token)} expecting {lexer.expected(kinds)}")

    def _extraneous(self, kinds: frozenset[str]) -> None:
        self._syntax(f"extraneous input {lexer.quoted(self._token)} expecting {lexer.expected(kinds)}")
        self._skip()

    def _match(self, kind: str) -> None:
        if self._token.kind == kind:
            self._advance()
        elif self._peek().kind == kind and self._token.kind != lexer.EOF:
            self._extraneous(frozenset({kind}))
            self._advance()
        elif kind not in (":", lexer.EOF) and self._follows():
            self._syntax(f"missing '{kind}' at {lexer.quoted(self._token)}")
        else:
            self._mismatch(frozenset({kind}))
            raise _Stop

    def _follows(self) -> bool:
        """Whether the token could stand behind a closing bracket here."""
        kind = self._token.kind
        if kind == lexer.EOF:
            return not self._closers
        return kind in _AFTER_OPERAND or (bool(self._closers) and kind in (self._closers[-1], ","))

    def _sync(self, kinds: frozenset[str]) -> None:
        """See that one of the kinds comes next, skipping one token if that helps."""
        if self._token.kind in kinds:
            return
        if self._token.kind != lexer.EOF and self._peek().kind in kinds:
            self._extraneous(kinds)
            return
        self._mismatch(kinds)
        raise _Stop

    def _need_operand(self) -> None:
        if self._token.kind in _OPERAND and (self._token.kind not in ("-", "!") or self._peek().kind in _NUMBERS):
            return
        if self._token.kind != lexer.EOF and self._peek().kind in _OPERAND:
            self._extraneous(_OPERAND)
            return
        self._mismatch(_OPERAND)
        stops = {*_AFTER_OPERAND, *self._closers, ","}
        while self._token.kind not in stops:
            self._skip()

    def _no_viable(self, start: Token) -> None:
        token = self._token
        if token.kind in _CONSTANTS:
            self._syntax(f"mismatched input {lexer.quoted(token)} expecting IDENTIFIER")
        else:
            end = token.offset + (0 if token.kind == lexer.EOF else len(token.text))
            text = self._source.text[start.offset : end].rstrip()
            self._syntax(f"no viable alternative at input {lexer.quoted(Token('', text, 0))}")
        raise _Stop


def _identifier(token: Token) -> str:
    return token.text[1:-1] if token.kind == ESCAPED else token.text
