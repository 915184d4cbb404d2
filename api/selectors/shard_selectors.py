"""Shard selectors: the part of a resource whose objects' hashes lie in some ranges (KEP-5866).

Several replicas of a client may list and watch a share each. The hash is FNV-1a with 64 bits of the uid or the
namespace; a range ends before its second bound. cel/shards.py parses the texts. Source: apimachinery ``pkg/sharding``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

UID: Final = "object.metadata.uid"
NAMESPACE: Final = "object.metadata.namespace"
_OFFSET, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, 2**64 - 1


def fnv(text: str) -> int:
    """Return the 64-bit FNV-1a hash of a text."""
    hashed = _OFFSET
    for byte in text.encode():
        hashed = (hashed ^ byte) * _PRIME & _MASK
    return hashed


@dataclass(frozen=True, slots=True)
class ShardSelector:
    """``field``: UID or NAMESPACE. ``ranges``: (first hash, hash after the last one), in the order of the text."""

    field: str
    ranges: tuple[tuple[int, int], ...]

    def matches(self, namespace: str, uid: str) -> bool:
        hashed = fnv(uid if self.field == UID else namespace)
        return any(start <= hashed < end for start, end in self.ranges)

    def __str__(self) -> str:
        return " || ".join(f"shardRange({self.field}, '0x{start:016x}', '0x{end:016x}')" for start, end in self.ranges)
