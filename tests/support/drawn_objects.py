"""Random objects of every built-in kind, drawn from the schema: well typed, but without meaning.

They resemble objects that clients send: quantities and times in any spelling, nulls, empty lists, zero values, and text
that YAML could misread. Each key occurs once in a keyed list. `objects(kind)` draws one object. A budget bounds its
size. Only a few fields are drawn per level, so that deep fields are reached as well as shallow ones.
"""

from __future__ import annotations

import base64
import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from kubechronicle.api.schema import types
from kubechronicle.api.schema.types import AnyType, ListType, MapType, ObjectType, Scalar, Type

Object = dict[str, Any]

BUDGET = 40  # approximate number of values in one object
DEPTH = 14  # the deepest fields (a CronJob's containers' probes) are 12 levels below the object

AWKWARD = (
    *("", "a", "B_c", "-1", "None", "RollingUpdate", "ClientIP", "1Gi", "@daily", "* * * * 9", "Always", "TCP"),
    *("true", "yes", "null", "~", "0x10", "1e3", "012", "2026-01-01", "2026-01-01T00:00:00Z", ".inf", "="),
    *(
        "- a",
        "a: b",
        "# c",
        " lead",
        "trail ",
        "two\nlines\n",
        "tab\there",
        "'",
        '"',
        "\\",
        "{}",
        "[a]",
        "<<",
        "!t",
        "%",
    ),
    *("<&>", "ü", "日本", "\U0001f600", "\u2028", "\x7f", "\u0085", "\ufeff", "\r\n", "x" * 130),
)
QUANTITIES: tuple[str | int | float, ...] = (
    *("0", "1", "-1", "100m", "0.1", "1.5Gi", "1500Mi", "1e3", "1E3", "12e6", "5k", "0.5", ".5", "+2", "1024Ki", "1n"),
    *("3u", "9223372036854775807", "10E", "-0.001", "00012", "1.000", 3, 0, -7, 2.5),
)
TIMES = (
    *("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z", "2026-01-01T01:30:00+02:00", "1969-12-31T23:59:59-11:00"),
    *("0001-01-02T00:00:00Z", "9998-12-31T23:59:59Z", None),
)
MICROTIMES = ("2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:00.123456-01:00", "1969-12-31T23:59:59.999999Z", None)
ANYTHING: tuple[Any, ...] = ({}, {"x": 1}, {"a": {"b": [1, None, {"c": 1.5}]}}, {"s": "", "z": 0, "f": False})
WORDS = ("a", "b", "cpu", "x.y/z", "Ü", "1")

_TEXT = st.sampled_from(AWKWARD) | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "string": _TEXT,
    "boolean": st.booleans(),
    "int32": st.sampled_from([0, 1, -1, 80, 2**31 - 1, -(2**31)]),
    "int64": st.sampled_from([0, 1, -1, 2**40, 2**63 - 1, -(2**63)]),
    "number": st.sampled_from([0, 1, 1.5, -0.25, 1e21, 100.0]),
    "bytes": st.binary(max_size=7).map(lambda data: base64.b64encode(data).decode()),
    "time": st.sampled_from(TIMES),
    "microtime": st.sampled_from(MICROTIMES),
    "quantity": st.sampled_from(QUANTITIES),
    "intorstring": st.sampled_from([0, -1, 8080, 2**31 - 1, "", "http", "25%", "0", "8080"]),
}
_KEYS: dict[str, st.SearchStrategy[Any]] = {
    "string": st.sampled_from(WORDS),
    "int32": st.sampled_from([1, 80, 443]),
    "boolean": st.just(True),
}
"""Values that identify an item of a keyed list: never empty, because empty values are left out."""


def example_settings(examples: int) -> settings:
    """Return settings that draw the same examples in every run.

    KUBECHRONICLE_TEST_EXAMPLES multiplies their number; with more than 1, each run draws new ones.
    """
    times = int(os.environ.get("KUBECHRONICLE_TEST_EXAMPLES", "1"))
    return settings(
        max_examples=examples * times,
        derandomize=times == 1,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),  # without Phase.explain, which traces every line for minutes
    )


class _Budget:
    def __init__(self, left: int) -> None:
        self.left = left


@st.composite
def objects(draw: st.DrawFn, kind: ObjectType, *, budget: int = BUDGET) -> Object:
    """Draw an object of a kind without apiVersion and kind; its metadata is present, but may be empty."""
    found: Object = _object(draw, kind, _Budget(budget), 0, without=("apiVersion", "kind", "metadata"))
    metadata = kind.fields["metadata"].type
    assert isinstance(metadata, ObjectType)
    found["metadata"] = _object(draw, metadata, _Budget(8), 0, without=("managedFields",))
    return found


@st.composite
def with_field(draw: st.DrawFn, kind: ObjectType, name: str) -> Object:
    """Draw a struct in which only this field is set."""
    return {name: _not_null(draw, kind.fields[name].type, _Budget(12), 0)}


def _object(draw: st.DrawFn, kind: ObjectType, budget: _Budget, depth: int, without: tuple[str, ...] = ()) -> Object:
    names = [name for name in kind.fields if name not in without]
    if not names or budget.left <= 0 or depth >= DEPTH:
        return {}
    most = min(len(names), 5 if depth < 2 else 3)
    chosen = draw(st.lists(st.sampled_from(names), unique=True, max_size=most, min_size=1 if depth < 2 else 0))
    return {name: _value(draw, kind.fields[name].type, budget, depth + 1) for name in chosen}


def _value(draw: st.DrawFn, kind: Type, budget: _Budget, depth: int) -> Any:
    budget.left -= 1
    if isinstance(kind, Scalar):
        return draw(_SCALARS[kind.kind])
    if draw(st.integers(0, 15)) == 15:
        return None
    if isinstance(kind, ObjectType):
        return _object(draw, kind, budget, depth)
    if isinstance(kind, ListType):
        return _list(draw, kind, budget, depth)
    if isinstance(kind, MapType):
        keys = draw(st.lists(st.sampled_from(WORDS), unique=True, max_size=2))
        return {key: _not_null(draw, kind.value, budget, depth + 1) for key in keys}
    assert isinstance(kind, AnyType)
    return draw(st.sampled_from(ANYTHING))


def _not_null(draw: st.DrawFn, kind: Type, budget: _Budget, depth: int) -> Any:
    """Draw a value for a list or map, but not null: Go converts null there in a way that few clients intend."""
    found = _value(draw, kind, budget, depth)
    if found is not None:
        return found
    if isinstance(kind, Scalar):
        return {"time": TIMES[0], "microtime": MICROTIMES[0]}[kind.kind]
    return [] if isinstance(kind, ListType) else {}


def _list(draw: st.DrawFn, kind: ListType, budget: _Budget, depth: int) -> list[Any]:
    size = draw(st.integers(0, 3 if budget.left > 10 else 1))
    items = [_not_null(draw, kind.item, budget, depth + 1) for _ in range(size)]
    if not isinstance(kind.item, ObjectType):
        return list(dict.fromkeys(items)) if kind.list_type == types.SET or kind.strategies else items
    names = dict.fromkeys((*kind.keys, *filter(None, [kind.merge_key])))
    for name in names:
        field = kind.item.fields[name].type
        assert isinstance(field, Scalar)
        for item in items:
            if item.get(name) in (None, "", 0, False) or field.kind in _KEYS:
                item[name] = draw(_KEYS[field.kind])
    for keys in filter(None, (kind.keys, (kind.merge_key,) if kind.merge_key else ())):
        unique: dict[Any, Any] = {}
        for item in items:
            unique.setdefault(tuple(item[name] for name in keys), item)
        items = list(unique.values())
    return items
