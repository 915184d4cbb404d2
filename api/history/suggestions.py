"""Suggestions for mistyped fields and names: the nearest of those that exist.

nearest_field("spec.replica", {"spec", "spec.replicas"})                    "spec.replicas"
nearest_field("containers[0].image", {"spec.containers[name=web].image"})   "spec.containers[name=web].image"
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any, Final

from kubechronicle.api.history.differences import BOOKKEEPING, field_below, item_label, key_fields_of

CANDIDATES: Final = 50
_KEYS: Final = re.compile(r"\[[^\]]*\]")


def fields_of(obj: Any, field: str = "", path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the paths of all fields of an object, as differences.py writes them, without the server's bookkeeping."""
    if isinstance(obj, dict):
        for name, value in obj.items():
            here = (*path, name)
            if here not in BOOKKEEPING:
                below = field_below(field, name)
                yield below
                yield from fields_of(value, below, here)
    elif isinstance(obj, list):
        keys = key_fields_of(obj, [])
        for place, item in enumerate(obj):
            below = f"{field}{item_label(item, keys) if keys is not None else f'[{place}]'}"
            yield below
            yield from fields_of(item, below, path)


def nearest_field(field: str, known: Iterable[str]) -> str:
    """Return the known field that a path most likely means; "": none is near.

    A field with the same end is nearer than one with a similar spelling.
    """
    fields = sorted(set(known), key=lambda each: (len(each), each))
    bare = _KEYS.sub("", field)
    for each in fields:
        if _KEYS.sub("", each).endswith(f".{bare}"):
            return each
    if similar := _nearest(field, fields):
        return similar
    count = bare.count(".") + 1
    ends: dict[str, str] = {}
    for each in fields:
        ends.setdefault(".".join(_KEYS.sub("", each).split(".")[-count:]), each)
    return ends.get(_nearest(bare, list(ends)), "")


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most like a mistyped one; "": none is near."""
    names = {each.lower(): each for each in sorted(set(known), reverse=True)}
    return names.get(_nearest(name.lower(), list(names)), "")


def _nearest(text: str, known: list[str]) -> str:
    """Return the most similar text; of equally similar ones, that with the longest beginning in common."""
    similar = difflib.get_close_matches(text, known, n=CANDIDATES)

    def nearness(each: str) -> tuple[float, int]:
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(each, text, strict=False)))
        return difflib.SequenceMatcher(None, each, text).ratio(), common

    return max(sorted(similar), key=nearness, default="")
