"""What entries were encoded to before, so that a list asked for again is put together and not encoded again.

An Entry never changes, so neither does what was made of it: it is kept by the entry's identity, and what replaces the
object is another entry. Nothing here has to be told of changes, and nothing can be stale.

Bounded in bytes, in two generations: what is used goes into the young one; when that holds half of the bytes, it is
the old one, and what was in the old one and has not been used since is gone. A hit is one look into a dict, which for
ten thousand objects is what counts.

    young {pods in protobuf: {entry: bytes, …}, …}    looked into first, added to
    old   {…}                                         looked into then; what is found moves to the young one
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

from kubechronicle.eventlog.entries import Entry

MOST_BYTES = 64 * 1024 * 1024
"""With the JSON of the entries, which lives on with them here when they have been replaced."""
AROUND = 200
"""Bytes around each thing kept: its place in the dict, the object's head, the entry."""

T = TypeVar("T")


class Encodings:
    """See the head of this file. One for all representations."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.half = most_bytes // 2
        self._young: dict[Hashable, dict[Hashable, Any]] = {}
        self._old: dict[Hashable, dict[Hashable, Any]] = {}
        self._young_bytes = 0
        self._young_count = 0
        self._old_bytes = 0

    @property
    def bytes_held(self) -> int:
        return self._young_bytes + self._old_bytes

    def young(self, variant: Hashable) -> dict[Hashable, Any]:
        return self._young.get(variant) or {}

    def old(self, variant: Hashable) -> dict[Hashable, Any]:
        return self._old.get(variant) or {}

    def usual_size(self) -> int:
        """Bytes of one thing kept, on the average."""
        return self._young_bytes // max(self._young_count, 1)

    def keep(self, variant: Hashable, key: Hashable, made: Any, size: int) -> None:
        if self._young_bytes + size > self.half:
            self._old, self._old_bytes = self._young, self._young_bytes
            self._young, self._young_bytes, self._young_count = {}, 0, 0
        self._young.setdefault(variant, {})[key] = made
        self._young_bytes += size
        self._young_count += 1

    def holds(self, size: int) -> bool:
        """Whether a whole list of so many bytes may be kept: a quarter of all is for one."""
        return size <= self.half // 2

    def of_list(self, variant: Hashable, entries: Sequence[Entry]) -> Any:
        """What was kept for the whole of a list; None if nothing was. Lists are known by their identity as well: a view
        gives out the same tuple until something in it changes."""
        key = id(entries)
        found = self.young(variant).get(key)
        if found is None:
            found = self.old(variant).get(key)
            if found is not None:
                self.keep(variant, key, found, found[2])
        return found[1] if found is not None and found[0] is entries else None

    def keep_list(self, variant: Hashable, entries: Sequence[Entry], made: Any, size: int) -> None:
        """With the entries: as long as they are kept, nothing else has their id."""
        size += 8 * len(entries) + AROUND
        if isinstance(entries, tuple) and self.holds(size):
            self.keep(variant, id(entries), (entries, made, size), size)


class Encoded(Generic[T]):
    """The entries of one answer in one representation, ``variant``: what all that is made by the same rules shares.

    ``make`` encodes an entry, ``size`` tells the bytes of what it made. An answer keeps at most half of what may be
    kept: of a longer list, its beginning, rather than each of its parts in the place of the one before. Without
    ``encodings`` nothing is kept.
    """

    def __init__(
        self, encodings: Encodings | None, variant: Hashable, make: Callable[[Entry], T], size: Callable[[T], int]
    ) -> None:
        self._encodings = encodings
        self._variant = variant
        self._make = make
        self._size = size
        self._room = encodings.half if encodings is not None else 0

    def one(self, entry: Entry) -> T:
        """As it was kept, or made anew and not kept: single objects are read as they change, lists of all."""
        if self._encodings is not None:
            for kept in (self._encodings.young(self._variant), self._encodings.old(self._variant)):
                found: T | None = kept.get(entry)
                if found is not None:
                    return found
        return self._make(entry)

    def all(self, entries: Sequence[Entry]) -> list[T]:
        if self._encodings is None:
            return [self._make(entry) for entry in entries]
        young = self._encodings.young(self._variant)
        found: list[T | None] = [young.get(entry) for entry in entries] if young else [None] * len(entries)
        missing = found.count(None)
        self._room -= (len(found) - missing) * self._encodings.usual_size()
        if not missing:
            return found  # type: ignore[return-value]
        return [self._missing(entry) if each is None else each for each, entry in zip(found, entries, strict=True)]

    def _missing(self, entry: Entry) -> T:
        encodings = self._encodings
        if encodings is None:
            raise AssertionError("only what is kept can be missing")
        made: T | None = encodings.old(self._variant).get(entry)
        if made is None:
            made = self._make(entry)
        size = self._size(made) + len(entry.json) + AROUND
        if size <= self._room:
            self._room -= size
            encodings.keep(self._variant, entry, made, size)
        return made
