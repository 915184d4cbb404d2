"""Templates of Go (text/template), as far as Stages of kwok use them.

    {{ range $i, $each := .spec.containers }}- name: {{ $each.name | Quote }}{{ end }}

There are if, else, with, range, variables, pipelines, parentheses, comments, and "-" that trims blanks. A template
names others (define, template, block) nowhere, and no break. A missing field is nil. Functions are given by the caller;
those of the language itself are here.

A template is compiled once into a list of nodes. Its run is bounded by the bytes that it writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kubechronicle.api.values.printable import compact_json

Function = Callable[..., Any]

MOST_BYTES: Final = 1 << 20
"""Characters that a template may write."""
_ACTION: Final = re.compile(
    r"\{\{(-(?=\s))?\s*(/\*.*?\*/|(?:\"(?:[^\"\\]|\\.)*\"|`[^`]*`|[^\"`])*?)\s*(?:(?<=\s)-)?\}\}", re.S
)
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*"|`[^`]*`)|(?P<number>-?\d+(?:\.\d+)?(?![\w.]))|(?P<sign>:=|[=|(),])"""
    r"""|(?P<chain>\$?\w*(?:\.\w+)+|\.|\$\w*|\w+))""",
    re.X,
)
_WORDS: Final = {"true": True, "false": False, "nil": None}


class TemplateError(ValueError):
    """A template that cannot be read, or whose run failed."""


# -- running -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _TemplateRun:
    functions: Mapping[str, Function]
    variables: dict[str, Any]
    written: list[str] = field(default_factory=list)
    size: int = 0

    def write(self, text: str) -> None:
        self.size += len(text)
        if self.size > MOST_BYTES:
            raise TemplateError(f"the template writes more than {MOST_BYTES} characters")
        self.written.append(text)


Expression = Callable[[_TemplateRun, Any], Any]
"""Returns the value, given the run and the present dot."""
Node = Callable[[_TemplateRun, Any], None]


def text_of(value: Any) -> str:
    """Return a value as a template prints it."""
    if value is None:
        return "<no value>"
    return value if isinstance(value, str) else compact_json(value)


def is_true(value: Any) -> bool:
    """Tell whether a value counts as true: not nil, false, 0 or empty."""
    return bool(value)


def _go_index(value: Any, *keys: Any) -> Any:
    for key in keys:
        try:
            value = value.get(key) if isinstance(value, Mapping) else value[key]
        except (TypeError, IndexError, AttributeError) as error:
            raise TemplateError(f"index {key!r}: {error}") from None
    return value


def _first_or(values: Sequence[Any], *, wanted: bool) -> Any:
    return next((each for each in values[:-1] if is_true(each) == wanted), values[-1])


BUILT_IN: Final[Mapping[str, Function]] = {
    "and": lambda *values: _first_or(values, wanted=False),
    "or": lambda *values: _first_or(values, wanted=True),
    "not": lambda value: not is_true(value),
    "eq": lambda one, *others: one in others,
    "ne": lambda one, other: one != other,
    "lt": lambda one, other: one < other,
    "le": lambda one, other: one <= other,
    "gt": lambda one, other: one > other,
    "ge": lambda one, other: one >= other,
    "len": lambda value: len(value or ()),
    "index": _go_index,
    "print": lambda *values: "".join(map(text_of, values)),
    "printf": lambda form, *values: re.sub(r"%[vdsq]", "{}", form.replace("{", "{{").replace("}", "}}")).format(
        *map(text_of, values)
    ),
}
"""The functions of the language."""


# -- reading -----------------------------------------------------------------------------------------------------------


class Template:
    """A compiled template. TemplateError: it cannot be read, or has an unknown function.

    ``functions``: the names of the functions that the caller of ``render`` gives.
    """

    def __init__(self, text: str, functions: Sequence[str] = ()) -> None:
        self._known = {*BUILT_IN, *functions}
        self._parts = list(_split(text))
        self._place = 0
        self._nodes, ended = self._read_until(("",))
        if ended:
            raise TemplateError(f"{{{{ {ended} }}}} closes nothing")

    def render(self, dot: Any, functions: Mapping[str, Function]) -> str:
        """Return the text. TemplateError."""
        run = _TemplateRun({**BUILT_IN, **functions}, {"$": dot})
        try:
            _run_all(self._nodes, run, dot)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            raise error if isinstance(error, TemplateError) else TemplateError(str(error)) from None
        return "".join(run.written)

    def _read_until(self, ends: Sequence[str]) -> tuple[list[Node], str]:
        """Return the nodes up to an action whose first word is in ``ends``, and that action; "" at the end."""
        nodes: list[Node] = []
        while self._place < len(self._parts):
            is_action, text = self._parts[self._place]
            self._place += 1
            if not is_action:
                nodes.append(_write_text(text))
                continue
            word = text.split(None, 1)[0] if text.split() else ""
            if word in ("end", "else"):
                if word not in ends:
                    raise TemplateError(f"{{{{ {word} }}}} closes nothing")
                return nodes, text
            if word in ("if", "with", "range"):
                nodes.append(self._block(word, text[len(word) :]))
            elif word in ("define", "template", "block", "break", "continue"):
                raise TemplateError(f"{{{{ {word} }}}} is not supported")
            elif text:
                nodes.append(self._action(text))
        if "" not in ends:
            raise TemplateError("a block has no {{ end }}")
        return nodes, ""

    def _block(self, word: str, head: str) -> Node:
        names, value = self._declaration(head)
        nodes, ended = self._read_until(("end", "else"))
        others: list[Node] = []
        if ended.startswith("else"):
            rest = ended[len("else") :].strip()
            if rest:
                inner, _, head = rest.partition(" ")
                if inner not in ("if", "with"):
                    raise TemplateError(f"{{{{ {ended} }}}} is not supported")
                others = [self._block(inner, head)]
            else:
                others, ended = self._read_until(("end",))
        return _range(names, value, nodes, others) if word == "range" else _choice(word, names, value, nodes, others)

    def _declaration(self, text: str) -> tuple[list[str], Expression]:
        """Return the variables that are set, and the pipeline."""
        found = re.match(r"\s*(\$\w+)(?:\s*,\s*(\$\w+))?\s*:?=\s*", text)
        names = [each for each in found.groups() if each] if found else []
        return names, self._pipeline(text[found.end() :] if found else text)

    def _action(self, text: str) -> Node:
        names, value = self._declaration(text)

        def act(run: _TemplateRun, dot: Any) -> None:
            result = value(run, dot)
            if names:
                run.variables[names[0]] = result
            else:
                run.write(text_of(result))

        return act

    def _pipeline(self, text: str) -> Expression:
        tokens = _tokens(text)
        value = self._commands(tokens)
        if tokens:
            raise TemplateError(f"{tokens[0][1]!r} in {{{{ {text.strip()} }}}} is not understood")
        return value

    def _commands(self, tokens: list[tuple[str, str]]) -> Expression:
        value = self._command(tokens, None)
        while tokens and tokens[0][1] == "|" and tokens[0][0] == "sign":
            tokens.pop(0)
            value = self._command(tokens, value)
        return value

    def _command(self, tokens: list[tuple[str, str]], piped: Expression | None) -> Expression:
        """Return a function with its arguments, or a single operand."""
        name = tokens[0][1] if tokens and tokens[0][0] == "chain" else ""
        is_call = bool(name) and name[0] not in ".$" and name not in _WORDS
        if is_call:
            if name not in self._known:
                raise TemplateError(f"there is no function {name}")
            tokens.pop(0)
        operands = []
        while tokens and (tokens[0][0] != "sign" or tokens[0][1] == "("):
            operands.append(self._operand(tokens))
        if is_call:
            arguments = [*operands, *([piped] if piped is not None else [])]
            return lambda run, dot: run.functions[name](*(each(run, dot) for each in arguments))
        if len(operands) != 1 or piped is not None:
            raise TemplateError("a command is a function with arguments, or one value")
        return operands[0]

    def _operand(self, tokens: list[tuple[str, str]]) -> Expression:
        kind, text = tokens.pop(0)
        if kind == "text":
            literal = json.loads(text) if text[0] == '"' else text[1:-1]
            return lambda run, dot: literal
        if kind == "number":
            number = float(text) if "." in text else int(text)
            return lambda run, dot: number
        if text == "(":
            value = self._commands(tokens)
            if not tokens or tokens.pop(0)[1] != ")":
                raise TemplateError("a parenthesis is not closed")
            return self._field_of(value, tokens)
        if text in _WORDS:
            return lambda run, dot: _WORDS[text]
        if text[0] in ".$":
            return _chain(text)
        if text not in self._known:
            raise TemplateError(f"there is no function {text}")
        return lambda run, dot: run.functions[text]()

    def _field_of(self, value: Expression, tokens: list[tuple[str, str]]) -> Expression:
        """Return ``(…).name``."""
        if tokens and tokens[0][0] == "chain" and tokens[0][1].startswith(".") and tokens[0][1] != ".":
            names = tokens.pop(0)[1].split(".")[1:]
            return lambda run, dot: _walk(value(run, dot), names)
        return value


def _split(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the texts and actions, blanks trimmed."""
    place, trims = 0, False
    for found in _ACTION.finditer(text):
        before = text[place : found.start()]
        before = before.lstrip() if trims else before
        yield False, before.rstrip() if found[1] else before
        trims = found[0].endswith("-}}")
        place = found.end()
        if not found[2].startswith("/*"):
            yield True, found[2].removesuffix("-").strip() if trims else found[2].strip()
    rest = text[place:]
    if "{{" in rest:
        raise TemplateError("{{ is not closed")
    yield False, rest.lstrip() if trims else rest


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, place = [], 0
    text = text.rstrip()
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None or found.lastgroup is None:
            raise TemplateError(f"{text[place:].strip()!r} is not understood")
        tokens.append((found.lastgroup, found[found.lastgroup]))
        place = found.end()
    return tokens


def _chain(text: str) -> Expression:
    """Return a field of the dot or of a variable: ``.spec.nodeName``, ``$pod.metadata``, ``.`` or ``$``."""
    first, *names = text.split(".")
    names = [each for each in names if each]
    if not first:
        return lambda run, dot: _walk(dot, names)

    def find(run: _TemplateRun, dot: Any) -> Any:
        if first not in run.variables:
            raise TemplateError(f"there is no variable {first}")
        return _walk(run.variables[first], names)

    return find


def _walk(value: Any, names: Sequence[str]) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _write_text(text: str) -> Node:
    return lambda run, dot: run.write(text)


def _run_all(nodes: Sequence[Node], run: _TemplateRun, dot: Any) -> None:
    for node in nodes:
        node(run, dot)


def _choice(word: str, names: Sequence[str], value: Expression, nodes: list[Node], others: list[Node]) -> Node:
    def choose(run: _TemplateRun, dot: Any) -> None:
        result = value(run, dot)
        if names:
            run.variables[names[0]] = result
        if is_true(result):
            _run_all(nodes, run, result if word == "with" else dot)
        else:
            _run_all(others, run, dot)

    return choose


def _range(names: Sequence[str], value: Expression, nodes: list[Node], others: list[Node]) -> Node:
    def repeat(run: _TemplateRun, dot: Any) -> None:
        result = value(run, dot)
        if isinstance(result, int) and not isinstance(result, bool):
            result = list(range(result))
        items = sorted(result.items()) if isinstance(result, Mapping) else list(enumerate(result or ()))
        for key, item in items:
            if names:
                run.variables |= zip(names, (key, item) if len(names) > 1 else (item,), strict=True)
            _run_all(nodes, run, item)
        if not items:
            _run_all(others, run, dot)

    return repeat
