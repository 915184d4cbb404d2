"""Shard selectors: the part of a resource whose objects' hashes lie in some ranges (KEP-5866).

Several replicas of a client may list and watch a share each. The hash is FNV-1a with 64 bits of the uid or the
namespace; a range ends before its second bound. cel/shards.py parses the texts. Source: apimachinery ``pkg/sharding``.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

UID: Final = "object.metadata.uid"
NAMESPACE: Final = "object.metadata.namespace"
_OFFSET, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, 2**64 - 1


def fnv(text: str) -> int:
    """Return the 64-bit FNV-1a hash of a text. Each watcher of a share asks for that of each changed object."""
    hashed = _OFFSET
    for byte in text.encode():
        hashed = (hashed ^ byte) * _PRIME & _MASK
    return hashed


@dataclass(frozen=True, slots=True)
class ShardSelector:
    """``field``: UID or NAMESPACE. ``ranges``: (first hash, hash after the last one), in the order of the text."""

    field: str
    ranges: tuple[tuple[int, int], ...]
    _bounds: tuple[int, ...] = dataclasses.field(init=False, compare=False)  # of the union: first, end, first, end, …

    def __post_init__(self) -> None:
        bounds: list[int] = []
        for start, end in sorted(self.ranges):
            if bounds and start <= bounds[-1]:
                bounds[-1] = max(bounds[-1], end)
            else:
                bounds += (start, end)
        object.__setattr__(self, "_bounds", tuple(bounds))

    def matches(self, namespace: str, uid: str) -> bool:
        """A hash is in a range if an odd number of bounds is at or below it. A text may have 800 ranges."""
        hashed = fnv(uid if self.field == UID else namespace)
        return bisect_right(self._bounds, hashed) % 2 == 1

    def __str__(self) -> str:
        return " || ".join(f"shardRange({self.field}, '0x{start:016x}', '0x{end:016x}')" for start, end in self.ranges)
