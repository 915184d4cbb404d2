"""Conversion between the versions a resource has: a registry of pure functions.

Lives here: which conversions there are. Their rules stand in builtin/conversions*.py, which lead from and to the version
objects are kept in; between two others the way leads over that one. An object whose version is the wanted one is
returned as it is; otherwise the converter's result shares nothing that matters with what it was given.

Invariant: converting there and back gives the same object, with what one version cannot say kept in annotations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

Object = dict[str, Any]
Converter = Callable[[Object], Object]


@functools.cache
def _converters() -> Mapping[tuple[str, str, str], Converter]:
    from kubechronicle.api.builtin import conversions, conversions_legacy

    return {**conversions.CONVERTERS, **conversions_legacy.CONVERTERS}


@functools.cache
def _way(kind: str, current: str, wanted: str) -> tuple[Converter, ...]:
    """The converters to apply, one or two; none if there is no way."""
    known = _converters()
    if (kind, current, wanted) in known:
        return (known[kind, current, wanted],)
    for of, start, between in known:
        if (of, start) == (kind, current) and (kind, between, wanted) in known:
            return (known[kind, current, between], known[kind, between, wanted])
    return ()


def can_convert(kind: str, current: str, wanted: str) -> bool:
    """Return whether objects of a kind in one version can be had in another one."""
    return current == wanted or bool(_way_of(kind, current, wanted))


def convert(obj: Object, api_version: str) -> Object:
    """Return the object in another version of its kind. LookupError if there is no such conversion."""
    current = obj["apiVersion"]
    if current == api_version:
        return obj
    way = _way_of(obj["kind"], current, api_version)
    if not way:
        raise LookupError(f"{obj['kind']} cannot be converted from {current} to {api_version}")
    for converter in way:
        obj = converter(obj)
    return obj


def _way_of(kind: str, current: str, wanted: str) -> tuple[Converter, ...]:
    """As ``_way``, which remembers only what can be found: the names may come from clients."""
    known = _kinds()
    return _way(kind, current, wanted) if {(kind, current), (kind, wanted)} <= known else ()


@functools.cache
def _kinds() -> frozenset[tuple[str, str]]:
    return frozenset((kind, version) for kind, *both in _converters() for version in both)
