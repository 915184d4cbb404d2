"""Conversion between the versions of a resource: a registry of pure functions.

The kinds' files (builtin/kinds.py) have the rules, from and to the stored version; other conversions go through that
version. Versions of a kind without rules have the same fields, and differ by name. An object already in the wanted
version is returned as it is; otherwise the result shares no mutable parts with it.

Invariant: a round trip returns the same object; annotations keep the fields that a version lacks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping

from kubechronicle.api.registry.registry import known_registry
from kubechronicle.api.values.objects import Object

Converter = Callable[[Object], Object]


@functools.cache
def _ways() -> Mapping[tuple[str, str, str], tuple[Converter, ...]]:
    """Return (kind, from, to) -> the converters to apply, one or two."""
    from kubechronicle.api.builtin.kinds import CONVERTERS

    single = {**dict(_renamings()), **CONVERTERS}
    found = {
        (kind, start, end): (first, second)
        for (kind, start, between), first in single.items()
        for (other, middle, end), second in single.items()
        if (kind, between) == (other, middle) and start != end
    }
    return found | {names: (converter,) for names, converter in single.items()}


def _renamings() -> Iterator[tuple[tuple[str, str, str], Converter]]:
    """Yield the ways between each version and the stored one, as if they had the same fields."""
    from kubechronicle.api.builtin.common.version_conversion import renaming

    registry = known_registry()
    for rt in registry:
        stored = registry.storage(rt.resource)
        if stored is not None and rt is not stored and rt.definition:
            for start, end in ((rt, stored), (stored, rt)):
                yield (rt.kind, start.api_version, end.api_version), renaming(end.api_version, end.definition)


def can_convert(kind: str, current: str, wanted: str) -> bool:
    """Return True if objects of a kind can be converted between two versions."""
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
