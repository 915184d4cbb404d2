"""Label selectors: parsing with apimachinery's grammar and words, matching by closures.

    <selector>    ::= <requirement> | <requirement> "," <selector>
    <requirement> ::= ["!"] KEY | KEY ("=" | "==" | "!=" | "<" | ">") VALUE | KEY ("in" | "notin") "(" VALUES ")"

Source: apimachinery ``pkg/labels``. Every parse error is a 400 BadRequest with Kubernetes' own message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import Cause, Path, aggregate, invalid_value
from kubechronicle.api.values import names

Matcher = Callable[[Mapping[str, str]], bool]


class SelectorSyntaxError(Exception):
    """A selector that cannot be parsed; its text is the client's message."""


class Requirement(NamedTuple):
    """One condition on a label. ``operator`` is one of = == != in notin exists ! gt lt; ``values`` sorted."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.operator == "exists":
            return self.key
        if self.operator == "!":
            return f"!{self.key}"
        if self.operator in ("in", "notin"):
            return f"{self.key} {self.operator} ({','.join(self.values)})"
        return f"{self.key}{_SYMBOLS.get(self.operator, self.operator)}{self.values[0]}"


_SYMBOLS: Final = {"gt": ">", "lt": "<"}


class LabelSelector:
    """A parsed label selector. ``matches(labels)`` is a plain function."""

    __slots__ = ("empty", "matches", "requirements")

    def __init__(self, requirements: Iterable[Requirement] = ()) -> None:
        self.requirements = tuple(sorted(requirements, key=lambda requirement: requirement.key))
        self.empty = not self.requirements
        self.matches: Matcher = _matcher_of(self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


# -- matching ---------------------------------------------------------------------------------------------------------


def all_of(matchers: list[Matcher]) -> Matcher:
    """Return a matcher for all of at most two."""
    if not matchers:
        return lambda _: True
    if len(matchers) == 1:
        return matchers[0]
    first, second = matchers
    return lambda labels: first(labels) and second(labels)


FEW: Final = 2
"""Conditions that are tried one after another. More of them are combined by key."""


def _matcher_of(requirements: Sequence[Requirement]) -> Matcher:
    if len(requirements) <= FEW:
        return all_of([_label_matcher(requirement) for requirement in requirements])
    return _combined(requirements)


def _combined(requirements: Sequence[Requirement]) -> Matcher:
    """Return a matcher whose cost grows with the labels of an object, not with the requirements.

    A URL has room for a selector of thousands of them, and a list tries it on every object.
    """
    needed: set[str] = set()
    absent: set[str] = set()
    allowed: dict[str, frozenset[str]] = {}
    excluded: dict[str, set[str]] = {}
    above: dict[str, int] = {}
    below: dict[str, int] = {}
    for requirement in requirements:
        key, operator, values = requirement
        if operator == "!":
            absent.add(key)
        elif operator in ("!=", "notin"):
            excluded.setdefault(key, set()).update(values)
        else:
            needed.add(key)
            if operator in ("=", "==", "in"):
                allowed[key] = frozenset(values) & allowed.get(key, frozenset(values))
            elif operator == "gt":
                above[key] = max(int(values[0]), above.get(key, int(values[0])))
            elif operator == "lt":
                below[key] = min(int(values[0]), below.get(key, int(values[0])))
    numbers = [_comparison(key, bound, greater=True) for key, bound in above.items()]
    numbers += [_comparison(key, bound, greater=False) for key, bound in below.items()]

    def matches(labels: Mapping[str, str]) -> bool:
        if len(needed) > len(labels) or not all(key in labels for key in needed):
            return False
        for key, value in labels.items():
            if key in absent or value in excluded.get(key, ()) or value not in allowed.get(key, (value,)):
                return False
        return all(compare(labels) for compare in numbers)

    return matches


def _label_matcher(requirement: Requirement) -> Matcher:
    key, operator, values = requirement
    if operator in ("=", "=="):
        value = values[0]
        return lambda labels: labels.get(key) == value
    if operator == "!=":
        value = values[0]
        return lambda labels: labels.get(key) != value
    if operator == "exists":
        return lambda labels: key in labels
    if operator == "!":
        return lambda labels: key not in labels
    if operator in ("gt", "lt"):
        return _comparison(key, int(values[0]), greater=operator == "gt")
    members = frozenset(values)
    if operator == "in":
        return lambda labels: labels.get(key) in members
    return lambda labels: labels.get(key) not in members


def _comparison(key: str, bound: int, *, greater: bool) -> Matcher:
    def matches(labels: Mapping[str, str]) -> bool:
        number = _int64(labels.get(key, ""))
        if number is None:
            return False
        return number > bound if greater else number < bound

    return matches


_INTEGER: Final = re.compile(r"[+-]?[0-9]+\Z", re.ASCII)


def _int64(text: str) -> int | None:
    """Return the result of Go's strconv.ParseInt(text, 10, 64), None for an error."""
    # 20 characters hold every int64; longer texts have leading zeros or overflow, and must not cost time.
    if not _INTEGER.match(text) or len(text) > 64:
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None


# -- parsing label selectors ------------------------------------------------------------------------------------------


_KEYWORDS: Final = frozenset((")", ",", "!", "==", "=", ">", "in", "<", "!=", "notin", "("))
_TOKEN: Final = re.compile(r"(==|!=|[=!(),><]|[^ \t\r\n=!(),><\0]+)\0?|\0")
_IDENTIFIER: Final = "identifier"
_END: Final = "end"
_OPERATORS: Final = {
    "in": "in",
    "notin": "notin",
    "=": "=",
    "==": "==",
    "!=": "!=",
    ">": "gt",
    "<": "lt",
}
_ORDERS: Final = ("<", ">")
_BINARY_OPERATORS: Final = "in, notin, =, ==, !=, gt, lt"


class _Token(NamedTuple):
    type: str
    text: str


_SYMBOL: Final = {word: _Token(word, word) for word in _KEYWORDS}
_WORD: Final = {word: _Token(_IDENTIFIER, word) for word in ("in", "notin")}


def _tokens(text: str) -> list[_Token]:
    """Split into symbols, keywords and words, with end tokens: an error at the end looks at two of them.

    As in apimachinery's lexer, a NUL ends the text, but one right behind a symbol or word is skipped.
    """
    words = _TOKEN.findall(text)
    if "" in words:  # a NUL
        del words[words.index("") :]
    return [_SYMBOL.get(word) or _Token(_IDENTIFIER, word) for word in words] + [_Token(_END, "")] * 4


_TEXT: Final = r"[^ \t\r\n=!(),><\0]"
_SIMPLE: Final = re.compile(
    rf"(!?)({_TEXT}+)(?:(==|=|!=|<|>)({_TEXT}*)| (in|notin) \(((?:{_TEXT}|,)+)\))?(,(?!\0)|\Z)",
)
"""A requirement as programs write it. There may be thousands in a selector."""


def _read_simple(text: str) -> tuple[list[Requirement], int]:
    """Return the requirements at the begin of a selector that have their usual form and are valid, and the position
    behind them and a comma; -1: nothing is left."""
    found: list[Requirement] = []
    at = 0
    while match := _SIMPLE.match(text, at):
        absent, key, operator, value, set_operator, members, comma = match.groups()
        operator = operator or set_operator
        if names.qualified_name(key) or (absent and operator) or (operator in _ORDERS and _int64(value) is None):
            break
        values = tuple(sorted(set(members.split(",")))) if members else () if value is None else (value,)
        if any(names.label_value(each) for each in values):
            break
        found.append(Requirement(key, _OPERATORS.get(operator, absent or "exists"), values))
        at = match.end()
        if not comma:
            return found, -1
    return found, at


def _read(text: str, path: Path) -> list[Requirement]:
    found, rest = _read_simple(text)
    return found if rest < 0 else _SelectorParser(text[rest:], path).parse(found)


class _SelectorParser:
    """Recursive descent over the tokens; ``in`` and ``notin`` are words, except where the grammar needs an operator."""

    def __init__(self, text: str, path: Path) -> None:
        self._tokens = _tokens(text)
        self._position = 0
        self._path = path

    def parse(self, found: list[Requirement]) -> list[Requirement]:
        """Return the requirements, added to those already found, which a comma follows."""
        while True:
            token = self._peek()
            if token.type not in (_IDENTIFIER, "!"):
                if found:
                    raise SelectorSyntaxError(f"found '{token.text}', expected: identifier after ','")
                if token.type == _END:
                    return found
                raise SelectorSyntaxError(f"found '{token.text}', expected: !, identifier, or 'end of string'")
            try:
                found.append(self._requirement())
            except SelectorSyntaxError as error:
                raise SelectorSyntaxError(f"unable to parse requirement: {error}") from None
            token = self._next()
            if token.type == _END:
                return found
            if token.type != ",":
                raise SelectorSyntaxError(f"found '{token.text}', expected: ',' or 'end of string'")

    def _peek(self) -> _Token:
        token = self._tokens[self._position]
        return _WORD.get(token.type, token)

    def _next(self, *, operator: bool = False) -> _Token:
        token = self._tokens[self._position] if operator else self._peek()
        self._position += 1
        return token

    def _requirement(self) -> Requirement:
        token = self._next()
        absent = token.type == "!"
        if absent:
            token = self._next()
        if token.type != _IDENTIFIER:
            raise SelectorSyntaxError(f"found '{token.text}', expected: identifier")
        key = token.text
        problems = names.qualified_name(key)
        if problems:
            raise SelectorSyntaxError(str(invalid_value(self._path, key, "; ".join(problems))))
        if absent:
            return Requirement(key, "!")
        if self._peek().type in (_END, ","):
            return Requirement(key, "exists")
        token = self._next(operator=True)
        operator = _OPERATORS.get(token.type)
        if operator is None:
            raise SelectorSyntaxError(f"found '{token.text}', expected: {_BINARY_OPERATORS}")
        values = self._set() if operator in ("in", "notin") else {self._value()}
        return self._checked(Requirement(key, operator, tuple(sorted(values))))

    def _value(self) -> str:
        if self._peek().type in (_END, ","):
            return ""
        token = self._next()
        if token.type != _IDENTIFIER:
            raise SelectorSyntaxError(f"found '{token.text}', expected: identifier")
        return token.text

    def _set(self) -> set[str]:
        token = self._next()
        if token.type != "(":
            raise SelectorSyntaxError(f"found '{token.text}' expected: '('")
        first = self._peek()
        if first.type == ")":
            self._next()
            return {""}
        if first.type not in (_IDENTIFIER, ","):
            raise SelectorSyntaxError(f"found '{first.text}', expected: ',', ')' or identifier")
        found: set[str] = set()
        while True:
            token = self._next()
            follower = self._peek()
            if token.type == _IDENTIFIER:
                found.add(token.text)
                if follower.type not in (",", ")"):
                    raise SelectorSyntaxError(f"found '{follower.text}', expected: ',' or ')'")
            elif token.type == ",":
                # "(,", ",," and ",)" have an empty value beside the comma.
                if not found or follower.type in (",", ")"):
                    found.add("")
            else:
                raise SelectorSyntaxError(f"found '{token.text}', expected: ',', or identifier")
            if follower.type == ")":
                self._next()
                return found

    def _checked(self, requirement: Requirement) -> Requirement:
        """Check the values as NewRequirement does: numbers where compared, then each one's syntax."""
        path = self._path.child("values")
        causes: list[Cause] = []
        for index, value in enumerate(requirement.values):
            if requirement.operator in ("gt", "lt") and _int64(value) is None:
                detail = "for 'Gt', 'Lt' operators, the value must be an integer"
                causes.append(invalid_value(path.index(index), value, detail))
        for index, value in enumerate(requirement.values):
            problems = names.label_value(value)
            if problems:
                causes.append(invalid_value(path.index(index).key(requirement.key), value, "; ".join(problems)))
        if causes:
            raise SelectorSyntaxError(aggregate(causes))
        return requirement


def parse_label_selector(text: str) -> LabelSelector:
    """Return the selector of a ``labelSelector`` parameter. StatusError 400 if it is malformed."""
    try:
        return LabelSelector(_read(text, Path()))
    except SelectorSyntaxError as error:
        raise status.bad_request(str(error)) from None


def label_selector_problem(text: str, path: Path) -> str | None:
    """Return the problem of a label selector in the field ``path``, None if it has none."""
    try:
        _read(text, path)
    except SelectorSyntaxError as error:
        return str(error)
    return None


_SPEC_OPERATORS: Final = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


def operator_of(name: str) -> str:
    """Return a Requirement's operator by its name in objects, such as ``NotIn``; ``Gt`` and ``Lt`` are of nodes."""
    return _SPEC_OPERATORS.get(name) or name.lower()


def selector_from_spec(spec: Mapping[str, Any] | None) -> LabelSelector | None:
    """Return the selector of a LabelSelector object (matchLabels, matchExpressions), which must be valid.

    None for an absent one, which selects nothing; an empty one selects everything (LabelSelectorAsSelector).
    """
    if spec is None:
        return None
    found = [Requirement(key, "=", (value,)) for key, value in (spec.get("matchLabels") or {}).items()]
    for expression in spec.get("matchExpressions") or ():
        values = tuple(sorted(set(expression.get("values") or ())))
        found.append(Requirement(expression["key"], _SPEC_OPERATORS[expression["operator"]], values))
    return LabelSelector(found)


def selector_from_labels(labels: Mapping[str, str] | None) -> LabelSelector:
    """Return the selector of a plain map, as in Services and ReplicationControllers: all labels must match."""
    return LabelSelector(Requirement(key, "=", (value,)) for key, value in (labels or {}).items())
