"""The parser: from an expression's text to its tree, with macros expanded.

A precedence parser for cel-go's grammar. Errors: see lexer.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kubechronicle.api.cel.errors import CompileError, Issue
from kubechronicle.api.cel.syntax import lexer, literals
from kubechronicle.api.cel.syntax.ast import (
    CallExpression,
    Ident,
    ListNode,
    Literal,
    MapEntry,
    MapNode,
    Node,
    Select,
    StructNode,
)
from kubechronicle.api.cel.syntax.lexer import (
    CONSTANTS,
    ESCAPED,
    IDENTIFIER,
    LITERALS,
    NUMBERS,
    OPERAND,
    PRODUCTS,
    RELATIONS,
    SUMS,
    ExpressionSource,
    Stop,
    Token,
    TokenStream,
    too_deep,
)
from kubechronicle.api.cel.syntax.macros import Macro, MacroError

MAX_SIZE: Final = 100_000
"""The longest expression, in characters."""

_RESERVED: Final = frozenset(
    {
        *("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop"),
        *("package", "namespace", "null", "return", "true", "var", "void", "while"),
    }
)
_FUNCTIONS: Final = {operator: f"_{operator}_" for operator in (*RELATIONS, *SUMS, *PRODUCTS, "&&", "||")}
_FUNCTIONS["in"] = "@in"


Macros = Mapping[tuple[str, int, bool], Macro]
"""(name, number of arguments, with a receiver) -> macro."""


def parse(source: ExpressionSource, macros: Macros, escaped_names: bool = False) -> Node:
    """Return the tree of an expression. CompileError with all its syntax errors.

    ``escaped_names``: allow field names in backticks, which Kubernetes v1.36 does not offer.
    """
    if len(source.text) > MAX_SIZE:
        limit = f"expression code point size exceeds limit: size: {len(source.text)}, limit {MAX_SIZE}"
        raise CompileError([Issue(-1, -1, limit)], source.text)
    issues: list[Issue] = []
    parser = _ExpressionParser(source, macros, issues, escaped_names)
    try:
        tree = parser.whole()
    except Stop:
        tree = Literal(0, None)
    except RecursionError:
        issues.append(too_deep())
    if issues:
        raise CompileError(issues, source.text)
    return tree


class _ExpressionParser(TokenStream):
    def __init__(self, source: ExpressionSource, macros: Macros, issues: list[Issue], escaped_names: bool) -> None:
        super().__init__(source, issues)
        self._macros = macros
        self._escaped_names = escaped_names
        self._readers: dict[str, Callable[[], Node]] = {
            **dict.fromkeys((IDENTIFIER, "."), self._named),
            **dict.fromkeys((*LITERALS, "-"), self._literal),
            **dict.fromkeys(CONSTANTS, self._constant),
            "(": self._nested,
            "[": self._list,
            "{": self._map,
        }
        """The reader of a value, by the kind of its first token."""

    def whole(self) -> Node:
        tree = self._binary(-1)
        self.match(lexer.EOF)
        return tree

    # -- rules --------------------------------------------------------------------------------------------------------

    def _binary(self, level: int) -> Node:
        """Read operators at least as tight as ``level``: -1 ?:, 0 ||, 1 &&, 2 relations, 3 sums, 4 products.

        One function reads all, because Python limits the depth of calls and expressions may be deep.
        """
        depths = self.depths
        before = depths["relation"], depths["calc"]
        if level < 0:
            self.enter("expr")
        if level <= 2:
            self.enter("relation")
        if level <= 4:
            self.enter("calc")
        tree = self._operand()
        while True:
            kind = self.token.kind
            if kind in PRODUCTS:
                binding = 4
            elif kind in SUMS:
                binding = 3
            elif kind in RELATIONS:
                binding = 2
            else:
                break
            if binding < level:
                break
            operator = self.advance()
            tree = self._call(operator.offset, _FUNCTIONS[kind], [tree, self._binary(binding + 1)], own=1)
        depths["relation"], depths["calc"] = before
        if level <= 1 and self.token.kind == "&&":
            tree = self._logic("&&", tree, 2)
        if level <= 0 and self.token.kind == "||":
            tree = self._logic("||", tree, 1)
        if level < 0:
            if self.token.kind == "?":
                tree = self._conditional(tree)
            depths["expr"] -= 1
        return tree

    def _conditional(self, condition: Node) -> Node:
        operator = self.advance()
        self.closers.append(":")
        first = self._binary(0)
        self.closers.pop()
        self.match(":")
        return self._call(operator.offset, "_?_:_", [condition, first, self._binary(-1)], own=1)

    def _logic(self, kind: str, first: Node, level: int) -> Node:
        terms = [first]
        offset = self.token.offset
        while self.token.kind == kind:
            self.advance()
            terms.append(self._binary(level))
        return self.measured(CallExpression(offset, _FUNCTIONS[kind], terms), terms, 0)

    def _operand(self) -> Node:
        """Read a value with signs before it, and selections, calls and indexes behind it (unary, member, primary)."""
        self.need_operand(unary=True)
        first = self.token
        times = 0
        if first.kind == "!" or (first.kind == "-" and self.peek().kind not in NUMBERS):
            while self.token.kind == first.kind:
                self.advance()
                times += 1
            self.need_operand(unary=False)
        reader = self._readers.get(self.token.kind)
        tree = Literal(self.token.offset, None) if reader is None else reader()
        while self.token.kind in (".", "["):
            operator = self.advance()
            tree = self._selection(operator, tree) if operator.kind == "." else self._index(operator, tree)
        if times % 2 == 0:
            return tree
        return self._call(first.offset, "!_" if first.kind == "!" else "-_", [tree])

    def _selection(self, dot: Token, operand: Node) -> Node:
        optional = self.token.kind == "?"
        if optional:
            self.advance()
        name = self.token
        if name.kind not in (IDENTIFIER, ESCAPED):
            self.no_viable(dot)
        self.advance()
        if optional:
            field = Literal(name.offset, self._name(name))
            return self.measured(CallExpression(dot.offset, "_?._", [operand, field]), [operand], 1)
        if self.token.kind == "(" and name.kind == IDENTIFIER:
            opening = self.advance()
            return self._call(opening.offset, name.text, self._arguments(), operand, own=1)
        return self.measured(Select(dot.offset, operand, self._name(name)), [operand], 1)

    def _index(self, bracket: Token, operand: Node) -> Node:
        self.sync(OPERAND | {"?"})
        optional = self.token.kind == "?"
        if optional:
            self.advance()
        self.closers.append("]")
        index = self._binary(-1)
        self.closers.pop()
        self.match("]")
        return self._call(bracket.offset, "_[?_]" if optional else "_[_]", [operand, index], own=1)

    def _constant(self) -> Node:
        token = self.advance()
        return Literal(token.offset, CONSTANTS[token.kind])

    def _nested(self) -> Node:
        self.advance()
        self.closers.append(")")
        tree = self._binary(-1)
        self.closers.pop()
        self.match(")")
        return tree

    def _literal(self) -> Node:
        token = self.advance()
        text = token.text
        kind = token.kind
        if kind == "-":
            if self.token.kind not in NUMBERS:
                return Literal(token.offset, None)  # an error, reported already
            number = self.advance()
            kind, text = number.kind, "-" + number.text
        try:
            return Literal(token.offset, literals.value(kind, text))
        except literals.LiteralError as error:
            return self.error(token.offset, str(error))

    def _named(self) -> Node:
        """Read an identifier, a function call, or the construction of an object."""
        dot = self.advance() if self.token.kind == "." else None
        first = self.token
        if first.kind != IDENTIFIER:
            self.no_viable(dot or first)
        self.advance()
        prefix = "." if dot else ""
        offset = dot.offset if dot else first.offset
        end = self._object_name_end()
        if end is not None:
            name = first.text
            while self.at < end:
                name += self.advance().text
            return self._object(prefix + name)
        if first.text in _RESERVED:
            node = self.error(offset, f"reserved identifier: {first.text}")
            if self.token.kind == "(":
                self.advance()
                self._arguments()
            return node
        if self.token.kind == "(":
            opening = self.advance()
            return self._call(opening.offset, prefix + first.text, self._arguments())
        return Ident(first.offset, prefix + first.text)

    def _object_name_end(self) -> int | None:
        """Return the place of the ``{`` behind repeated ``.name``, None if there is none."""
        at = self.at
        while self.tokens[at].kind == "." and self.tokens[at + 1].kind == IDENTIFIER:
            at += 2
        return at if self.tokens[at].kind == "{" else None

    def _object(self, name: str) -> Node:
        opening = self.advance()
        entries: list[MapEntry] = []
        self.closers.append("}")
        self.sync(frozenset({"}", ",", "?", IDENTIFIER, ESCAPED}))
        while self.token.kind in ("?", IDENTIFIER, ESCAPED):
            optional = self.token.kind == "?"
            if optional:
                self.advance()
            field = self.token
            if field.kind not in (IDENTIFIER, ESCAPED):
                self.mismatch(frozenset({IDENTIFIER, ESCAPED}))
                raise Stop
            self.advance()
            colon = self.token
            self.match(":")
            entries.append(MapEntry(colon.offset, self._name(field), self._binary(-1), optional))
            if not self._comma("}"):
                break
        self.closers.pop()
        self._close("}")
        return self.measured(StructNode(opening.offset, name, entries), [entry.value for entry in entries], 0)

    def _list(self) -> Node:
        opening = self.advance()
        elements: list[Node] = []
        optional = set()
        self.closers.append("]")
        self.sync(OPERAND | {"]", ",", "?"})
        while self.token.kind not in ("]", ","):
            if self.token.kind == "?":
                self.advance()
                optional.add(len(elements))
            elements.append(self._binary(-1))
            if not self._comma("]"):
                break
        self.closers.pop()
        self._close("]")
        return self.measured(ListNode(opening.offset, elements, frozenset(optional)), elements, 0)

    def _map(self) -> Node:
        opening = self.advance()
        entries: list[MapEntry] = []
        self.closers.append("}")
        self.sync(OPERAND | {"}", ",", "?"})
        while self.token.kind not in ("}", ","):
            optional = self.token.kind == "?"
            if optional:
                self.advance()
            key = self._binary(-1)
            colon = self.token
            self.match(":")
            entries.append(MapEntry(colon.offset, key, self._binary(-1), optional))
            if not self._comma("}"):
                break
        self.closers.pop()
        self._close("}")
        parts = [part for entry in entries for part in (entry.key, entry.value)]
        return self.measured(MapNode(opening.offset, entries), parts, 0)

    def _comma(self, closer: str) -> bool:
        """Skip a comma and return True if another element may follow. Another comma belongs to the closer."""
        if self.token.kind != "," or self.peek().kind in (closer, ",", lexer.EOF):
            return False
        self.advance()
        return True

    def _close(self, closer: str) -> None:
        if self.token.kind not in (",", closer):
            self.sync(frozenset({closer, ","}))
        if self.token.kind == ",":
            self.advance()
        self.match(closer)

    def _arguments(self) -> list[Node]:
        arguments: list[Node] = []
        self.closers.append(")")
        self.sync(OPERAND | {")"})
        if self.token.kind != ")":
            arguments.append(self._binary(-1))
            while self.token.kind == ",":
                self.advance()
                arguments.append(self._binary(-1))
        self.closers.pop()
        self.match(")")
        return arguments

    def _call(
        self, offset: int, function: str, arguments: list[Node], target: Node | None = None, own: int = 0
    ) -> Node:
        macro = self._macros.get((function, len(arguments), target is not None))
        expanded: Node | None = None
        if macro is not None:
            try:
                expanded = macro.expand(offset, target, arguments)
            except MacroError as error:
                return self.error(error.offset, error.message)
        node = expanded or CallExpression(offset, function, arguments, target)
        return self.measured(node, arguments if target is None else [target, *arguments], own)

    def _name(self, token: Token) -> str:
        if token.kind != ESCAPED:
            return token.text
        if not self._escaped_names:
            self.error(token.offset, "unsupported syntax: '`'")
        return token.text[1:-1]
