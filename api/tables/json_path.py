"""Simple JSON paths, as additional printer columns of custom resources use them.

Supported: ``.name``, ``.a\\.b``, ``['name']``, ``[0]``, ``[-1]``, ``[1:3]``, ``[*]``, ``.*``, ``..name``, unions
such as ``['a','b']``, and filters such as ``[?(@.type=="Ready")]``. A path may be in braces. Missing data is no error:
the path finds nothing.
Source: client-go ``util/jsonpath``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from kubechronicle.api.values.caches import remembered

Finder = Callable[[Any], Iterator[Any]]

PATHS_KEPT: Final = 1024
"""The most cached paths: far more than the columns of all custom resources of a large cluster."""


class JsonPathError(ValueError):
    """An unsupported path."""


_STEP: Final = re.compile(
    r"""\.\.(?P<deep>(?:[^.\[\\\s]|\\.)+)
    |\.(?P<every>\*)
    |\.(?P<name>(?:[^.\[\]\\\s]|\\.)+)
    |\[\s*'(?P<quoted>(?:[^'\\]|\\.)*)'\s*\]
    |\[\s*"(?P<double>(?:[^"\\]|\\.)*)"\s*\]
    |\[\s*(?P<all>\*)\s*\]
    |\[\s*\?\((?P<filter>.*?)\)\s*\]
    |\[\s*(?P<slice>-?\d*:-?\d*(?::-?\d*)?)\s*\]
    |\[\s*(?P<index>-?\d+)\s*\]
    |\[(?P<union>(?:'[^']*'|"[^"]*"|[^'",\]])*+(?:,(?:'[^']*'|"[^"]*"|[^'",\]])*+)++)\]""",
    re.VERBOSE,
)
_MEMBER: Final = re.compile(r"""(?:'[^']*'|"[^"]*"|[^'",])+""")
_FILTER: Final = re.compile(r"\s*@(?P<left>.*?)\s*(?:(?P<operator>==|!=|<=|>=|<|>)\s*(?P<right>.+?)\s*)?\Z", re.DOTALL)
_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ESCAPE: Final = re.compile(r"\\(.)")


@remembered(PATHS_KEPT)
def compile_path(text: str) -> Finder:
    """Return a function that yields the values at the path in a document. JsonPathError for an unsupported path."""
    path = text.strip()
    if path.startswith("{") and path.endswith("}"):
        path = path[1:-1].strip()
    path = path.removeprefix("$")
    if path and path[0] not in ".[":
        path = f".{path}"
    return _chain(list(_steps(path)))


def _steps(path: str) -> Iterator[Finder]:
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            if path[position:] == ".":
                return
            raise JsonPathError(f"cannot understand {path[position:]!r}")
        position = match.end()
        yield _step(match)


def _step(match: re.Match[str]) -> Finder:
    kind, text = match.lastgroup or "", match.group(match.lastgroup or 0)
    if kind in ("name", "quoted", "double"):
        return _named(_ESCAPE.sub(r"\1", text))
    if kind == "deep":
        return _deep(_ESCAPE.sub(r"\1", text))
    if kind in ("every", "all"):
        return _children
    if kind == "filter":
        return _filtered(text)
    if kind == "union":
        members = [list(_steps(f"[{member.strip()}]")) for member in _MEMBER.findall(text)]
        return _union([_chain(member) for member in members])
    if kind == "slice":
        parts = [int(part) if part else None for part in text.split(":")]
        return _sliced(slice(*parts))
    return _indexed(int(text))


def _chain(steps: Iterable[Finder]) -> Finder:
    todo = tuple(steps)

    def find(document: Any) -> Iterator[Any]:
        found: Iterable[Any] = (document,)
        for step in todo:
            found = [result for value in found for result in step(value)]
        return iter(found)

    return find


def _named(name: str) -> Finder:
    def find(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return find


def _deep(name: str) -> Finder:
    def find(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]
        for child in _children(value):
            yield from find(child)

    return find


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from (value[key] for key in sorted(value))
    elif isinstance(value, list):
        yield from value


def _union(members: Sequence[Finder]) -> Finder:
    return lambda value: (found for member in members for found in member(value))


def _sliced(part: slice) -> Finder:
    return lambda value: iter(value[part] if isinstance(value, list) else ())


def _indexed(index: int) -> Finder:
    def find(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]

    return find


def _filtered(condition: str) -> Finder:
    match = _FILTER.match(condition)
    if match is None:
        raise JsonPathError(f"cannot understand the filter {condition!r}")
    left = _chain(list(_steps(match.group("left"))))
    if match.group("operator") is None:
        return lambda value: (item for item in _children(value) if next(left(item), None) is not None)
    compare, right = _OPERATORS[match.group("operator")], _operand(match.group("right"))

    def find(value: Any) -> Iterator[Any]:
        for item in _children(value):
            found = next(left(item), None)
            wanted = next(right(item), None)
            if found is not None and _comparable(found, wanted) and compare(found, wanted):
                yield item

    return find


def _comparable(left: Any, right: Any) -> bool:
    return _sort(left) == _sort(right) != ""


def _sort(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else ""


def _operand(text: str) -> Finder:
    if text.startswith("@"):
        return _chain(list(_steps(text[1:])))
    literal: Any
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        literal = _ESCAPE.sub(r"\1", text[1:-1])
    elif text in ("true", "false"):
        literal = text == "true"
    else:
        try:
            literal = float(text) if "." in text or "e" in text.lower() else int(text)
        except ValueError:
            raise JsonPathError(f"cannot understand the operand {text!r}") from None
    return lambda _: iter((literal,))
