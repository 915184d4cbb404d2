"""Queries of jq, as far as Stages of kwok use them.

    .metadata.deletionTimestamp
    .status.conditions.[] | select( .type == "Ready" ) | .status
    .metadata.annotations["example.com/delay"]

A query has fields, ``[]``, ``select`` with == or !=, and pipes. It yields the values that are there: a missing field
and null yield nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

Query = Callable[[Any], list[Any]]
"""Returns the values that are there."""
_Step = Callable[[Iterable[Any]], Iterator[Any]]

_PART: Final = re.compile(
    r"""\s*(?:\.?\[\s*(?P<all>)\]|\.?\[\s*(?P<key>"(?:[^"\\]|\\.)*"|\d+)\s*\]|\.(?P<quoted>"(?:[^"\\]|\\.)*")"""
    r"""|\.(?P<name>[A-Za-z_]\w*))""",
    re.X,
)
_SELECT: Final = re.compile(r"\s*select\s*\(\s*(.*?)\s*(==|!=)\s*(\"(?:[^\"\\]|\\.)*\"|-?\d+|true|false|null)\s*\)\s*$")
_PIPE: Final = re.compile(r"""\|(?=(?:[^"]*"[^"]*")*[^"]*$)""")


def query(text: str) -> Query:
    """Return the function of a query. ValueError."""
    steps = [step for stage in _PIPE.split(text) for step in _steps(stage)]

    def run(value: Any) -> list[Any]:
        values: Iterable[Any] = (value,)
        for step in steps:
            values = step(values)
        return [each for each in values if each is not None]

    return run


def _steps(text: str) -> list[_Step]:
    if text.strip() == ".":
        return []
    selected = _SELECT.match(text)
    if selected is not None:
        return [_select(query(selected[1]), json.loads(selected[3]), equal=selected[2] == "==")]
    steps, place, text = [], 0, text.rstrip()
    while place < len(text):
        found = _PART.match(text, place)
        if found is None:
            raise ValueError(f"the query {text.strip()!r} is not understood at {text[place:].strip()!r}")
        named = found["key"] or found["quoted"]
        steps.append(_items if found["all"] is not None else _field(json.loads(named) if named else found["name"]))
        place = found.end()
    if not steps:
        raise ValueError("a query is empty")
    return steps


def _field(key: str | int) -> _Step:
    def walk(values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            if isinstance(value, Mapping):
                yield value.get(str(key))
            elif isinstance(value, list) and isinstance(key, int) and key < len(value):
                yield value[key]

    return walk


def _items(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from value
        elif isinstance(value, Mapping):
            yield from value.values()


def _select(condition: Query, wanted: Any, *, equal: bool) -> _Step:
    def keep(values: Iterable[Any]) -> Iterator[Any]:
        return (value for value in values if ((condition(value) or [None])[0] == wanted) == equal)

    return keep
