"""Conversion between the versions a resource has: a registry of pure functions.

Lives here: which conversions there are. Their rules stand in builtin/conversions.py, which lead from and to the
version objects are kept in; between two others the way leads over that one. An object whose version is the wanted one
is returned as it is; otherwise the converter's result shares nothing that matters with what it was given.

Invariant: converting there and back gives the same object, with what one version cannot say kept in annotations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from kubechronicle.api.values.objects import Object

Converter = Callable[[Object], Object]


@functools.cache
def _ways() -> Mapping[tuple[str, str, str], tuple[Converter, ...]]:
    """(kind, from, to) -> the converters to apply, one or two."""
    from kubechronicle.api.builtin.conversions import CONVERTERS

    found = {
        (kind, start, end): (first, second)
        for (kind, start, between), first in CONVERTERS.items()
        for (other, middle, end), second in CONVERTERS.items()
        if (kind, between) == (other, middle) and start != end
    }
    return found | {names: (converter,) for names, converter in CONVERTERS.items()}


def can_convert(kind: str, current: str, wanted: str) -> bool:
    """Return whether objects of a kind in one version can be had in another one."""
    return current == wanted or (kind, current, wanted) in _ways()


def convert(obj: Object, api_version: str) -> Object:
    """Return the object in another version of its kind. LookupError if there is no such conversion."""
    current = obj["apiVersion"]
    if current == api_version:
        return obj
    way = _ways().get((obj["kind"], current, api_version))
    if way is None:
        raise LookupError(f"{obj['kind']} cannot be converted from {current} to {api_version}")
    for converter in way:
        obj = converter(obj)
    return obj
