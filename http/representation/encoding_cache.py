"""The cache of encoded entries and lists.

The key is the identity of an entry. An Entry never changes, and a new version of an object is another entry, so nothing
here can be stale or needs invalidation. Only an erasure of history empties the cache.

The cache is bounded in bytes and has two generations. An item that is used goes into the young one. When the young one
holds half of the bytes, it becomes the old one, and the former old one is dropped. So a hit is one look-up in a dict,
which decides the time of a list of ten thousand objects.

    young {pods in protobuf: {entry: bytes, …}, …}    looked up first, added to
    old   {…}                                         looked up second; a hit moves to the young one

Whole lists and pages are cached, too (list_body.py), one for each scope, with their entries as key. The bytes of these
entries count: nothing else may refer to them when all objects have been replaced.

The bound follows the objects in memory, so that the largest list fits in, in two forms: a list that does not fit is
encoded anew for every request. Another bound, a share of the memory, is never passed. Branches share the cache.

Equal lists at the same time are encoded once: the first request is the leader of a Flight, and the others wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import trio

from kubechronicle.actors.fair_share import FairThreads
from kubechronicle.actors.large_work import LARGE_BYTES
from kubechronicle.actors.pauses import Pauses
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Key
from kubechronicle.http.metrics import Reading

MOST_BYTES = 64 * 1024 * 1024
"""Bound of the cache over a small store, including the JSON of its entries, which it may be the last to refer to."""
A_FORM = 6
"""Bytes that count for each byte of an object in one form: its JSON, encoding and overhead, alone and in a list."""
OVERHEAD = 200
"""Bytes of memory for each cached item besides its content: dict slot, object header, entry."""
SAMPLE = 64
"""Entries of a list from which the bytes of all are estimated."""

LARGE_ENTRIES: Final = FairThreads(1)
"""The thread that encodes large entries, and lists that are encoded as a whole."""

T = TypeVar("T")


class HitCount:
    """Numbers of hits and misses."""

    __slots__ = ("hits", "misses")

    def __init__(self) -> None:
        self.hits = self.misses = 0


class EncodingCache:
    """One for all representations; described at the head of this file.

    ``most_bytes``: the bound whatever the store's size is. ``store_bytes``: returns the bytes of all objects.
    ``variant``: a representation and all other rules of an encoding.
    ``flights``: the lists that are being encoded, by variant and scope.
    ``erasures``: number of erasures; an encoding begun before one must not be cached after it.
    """

    def __init__(self, most_bytes: int = MOST_BYTES, store_bytes: Callable[[], int] = int) -> None:
        self.half = min(most_bytes, MOST_BYTES) // 2
        self.flights: dict[Hashable, Flight] = {}
        self._most_bytes = most_bytes
        self._store_bytes = store_bytes
        self.erasures = 0
        self.objects, self.lists = HitCount(), HitCount()
        self._young: dict[Hashable, dict[Hashable, Any]] = {}
        self._old: dict[Hashable, dict[Hashable, Any]] = {}
        self._young_bytes = 0
        self._young_objects = (0, 0)  # number and bytes of the items that are no lists
        self._old_bytes = 0

    def fit(self) -> None:
        """Set the bound by the present size of the store."""
        self.half = min(self._most_bytes // 2, max(MOST_BYTES // 2, self._store_bytes() * A_FORM))

    @property
    def bytes_held(self) -> int:
        return self._young_bytes + self._old_bytes

    def young(self, variant: Hashable) -> dict[Hashable, Any]:
        return self._young.get(variant) or {}

    def old(self, variant: Hashable) -> dict[Hashable, Any]:
        return self._old.get(variant) or {}

    def average_size(self) -> int:
        """Return the average bytes of a cached object."""
        count, size = self._young_objects
        return size // max(count, 1)

    def readings(self) -> Iterator[Reading]:
        """Yield the size, the hits and the misses for /metrics."""
        counts = {"object": self.objects, "list": self.lists}
        yield Reading(
            "kubechronicle_encoding_cache_bytes",
            "Bytes of cached encoded objects and lists, with the entries of the lists.",
            False,
            "",
            {"": float(self.bytes_held)},
        )
        yield Reading(
            "kubechronicle_encoding_cache_limit_bytes",
            "Bound of kubechronicle_encoding_cache_bytes. It follows the size of the store and the memory limit.",
            False,
            "",
            {"": float(2 * self.half)},
        )
        yield Reading(
            "kubechronicle_encoding_cache_hits",
            "Encoded objects and lists that were found in the cache.",
            True,
            "kind",
            {kind: float(count.hits) for kind, count in counts.items()},
        )
        yield Reading(
            "kubechronicle_encoding_cache_misses",
            "Objects and lists that were not in the cache and had to be encoded.",
            True,
            "kind",
            {kind: float(count.misses) for kind, count in counts.items()},
        )

    def clear(self) -> None:
        """Drop everything after an erasure of history: cached items may contain erased data."""
        self.erasures += 1
        self.flights = {}
        self._young, self._young_bytes, self._young_objects = {}, 0, (0, 0)
        self._old, self._old_bytes = {}, 0

    def put(self, variant: Hashable, key: Hashable, encoded: Any, size: int) -> None:
        self._add(variant, key, encoded, size)
        count, total = self._young_objects
        self._young_objects = (count + 1, total + size)

    def _add(self, variant: Hashable, key: Hashable, encoded: Any, size: int) -> None:
        if self._young_bytes + size > self.half:
            self._old, self._old_bytes = self._young, self._young_bytes
            self._young, self._young_bytes, self._young_objects = {}, 0, (0, 0)
        self._young.setdefault(variant, {})[key] = encoded
        self._young_bytes += size

    def admits(self, size: int) -> bool:
        """Tell whether a list of ``size`` bytes may be cached: one list may take a quarter of the cache."""
        return size <= self.half // 2

    def get_list(self, variant: Hashable, entries: Sequence[Entry]) -> Any:
        """Return the cached encoding of a whole list; None on a miss.

        A list is identified by its entries. A view returns the same tuple until one of its objects changes. A page is
        a new tuple of the same entries; these are compared by identity, which takes 5 ns each.
        """
        if not isinstance(entries, tuple):
            return None
        scope = scope_of(entries)
        cached: _CachedList | None = self.young(variant).get(scope)
        if cached is None or not cached.is_of(entries):
            cached = self.old(variant).get(scope)
            if cached is None or not cached.is_of(entries):
                self.lists.misses += 1
                return None
            self._put_list(variant, scope, cached)
        if cached.encoded:
            self.lists.hits += 1
        else:
            self.lists.misses += 1
        return cached.encoded

    def put_list(self, variant: Hashable, entries: Sequence[Entry], encoded: Any, size: int) -> None:
        """Cache the encoding of a list in place of any other of its scope. An empty ``encoded`` only notes that the
        list was requested; the note is kept without the entries and may match another list, which does no harm."""
        if isinstance(entries, tuple):
            cached = _CachedList(hash(entries), entries if encoded else (), encoded, size, 0)
            self._put_list(variant, scope_of(entries), cached)

    def _put_list(self, variant: Hashable, scope: Hashable, cached: _CachedList) -> None:
        self._drop_lists(variant, scope, cached.entries_hash)
        if not self.admits(cached.size):
            return
        held = cached.size + OVERHEAD
        if cached.encoded and not any(other.encoded for other in self._lists(self._young, scope)):
            held += _estimated_bytes(cached.entries)
        if held <= self.half:
            self._add(variant, scope, cached._replace(held=held), held)

    @staticmethod
    def _lists(generation: dict[Hashable, dict[Hashable, Any]], scope: Hashable) -> list[_CachedList]:
        """Return the lists of a scope in all variants."""
        return [items[scope] for items in generation.values() if scope in items]

    def _drop_lists(self, variant: Hashable, scope: Hashable, entries_hash: int) -> None:
        """Drop the lists of a scope: in this variant all, in other variants those of other entries."""
        for generation in (self._young, self._old):
            for other, items in generation.items():
                cached: _CachedList | None = items.get(scope)
                if cached is not None and (other == variant or cached.entries_hash != entries_hash):
                    del items[scope]
                    if generation is self._young:
                        self._young_bytes -= cached.held
                    else:
                        self._old_bytes -= cached.held


class Flight:
    """A list that one request encodes, and others wait for. ``items``: the result; None if the request failed."""

    __slots__ = ("ended", "entries", "followers", "items")

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self.ended = trio.Event()
        self.followers = 0
        self.items: Any = None


class _CachedList(NamedTuple):
    """One list in one variant.

    ``entries_hash``: the hash of the entries' identities.
    ``entries``: the entries; () if nothing is encoded.
    ``encoded``: the encoding; () if the list was only requested once.
    ``size``: bytes of the encoding.
    ``held``: bytes that count: with those of the entries in the first variant that refers to them.
    """

    entries_hash: int
    entries: tuple[Entry, ...]
    encoded: Any
    size: int
    held: int

    def is_of(self, entries: tuple[Entry, ...]) -> bool:
        if self.encoded:
            return self.entries is entries or self.entries == entries
        return self.entries_hash == hash(entries)


def scope_of(entries: Sequence[Entry]) -> tuple[Key, Key] | None:
    """Return the cache key of a list: its first and last object key. A list has mostly the same scope after one of its
    objects has changed, and so replaces its predecessor. Collisions are detected (``_CachedList.is_of``)."""
    return (entries[0].key, entries[-1].key) if entries else None


def _estimated_bytes(entries: Sequence[Entry]) -> int:
    step = -(-len(entries) // SAMPLE) or 1
    some = entries[::step]
    return len(entries) * (8 + sum(len(entry.json) for entry in some) // max(len(some), 1))


def size_of(entry: Entry) -> int:
    """Return the bytes of an entry's object."""
    return len(entry.json)


class CachedEncoder(Generic[T]):
    """Encodes the entries of one answer through the cache.

    ``cache``: None to encode every entry.
    ``encode``: encodes one entry.
    ``size``: returns the bytes of an encoding.
    ``work``: returns the bytes that the encoding of an entry is worth.

    An answer adds at most half of the cache's bytes: of a longer list the beginning, because each part would displace
    the part before.
    """

    def __init__(
        self,
        cache: EncodingCache | None,
        variant: Hashable,
        encode: Callable[[Entry], T],
        size: Callable[[T], int],
        work: Callable[[Entry], int] = size_of,
    ) -> None:
        self._cache = cache
        self._variant = variant
        self._encode = encode
        self._size = size
        self._work = work
        self._room = cache.half if cache is not None else 0
        self._erasures = cache.erasures if cache is not None else 0

    def one(self, entry: Entry) -> T:
        """Return the encoding of an entry. A new one is not cached: single objects are mostly read after a change."""
        if self._cache is not None:
            for generation in (self._cache.young(self._variant), self._cache.old(self._variant)):
                cached: T | None = generation.get(entry)
                if cached is not None:
                    self._cache.objects.hits += 1
                    return cached
            self._cache.objects.misses += 1
        return self._encode(entry)

    def all(self, entries: Sequence[Entry]) -> list[T]:
        known, missing = self._known(entries)
        return self._completed(entries, known) if missing else known  # type: ignore[return-value]

    async def all_large(self, entries: Sequence[Entry]) -> list[T]:
        """As ``all``, but with pauses, and large entries are encoded in a thread."""
        known, missing = self._known(entries)
        if not missing:
            return known  # type: ignore[return-value]
        pauses = Pauses()
        for index, entry in enumerate(entries):
            if known[index] is None:
                if self._work(entry) > LARGE_BYTES:
                    known[index] = await LARGE_ENTRIES.run(self.one, entry)
                else:
                    known[index] = self._encode(entry) if self._cache is None else self._missing(entry)
                await pauses.pause()
        return known  # type: ignore[return-value]

    def _known(self, entries: Sequence[Entry]) -> tuple[list[T | None], int]:
        """Return the encodings in the young generation, with None for the others, and the number of these."""
        if self._cache is None:
            return [None] * len(entries), len(entries)
        young = self._cache.young(self._variant)
        known: list[T | None] = [young.get(entry) for entry in entries] if young else [None] * len(entries)
        missing = known.count(None)
        self._cache.objects.hits += len(known) - missing
        self._room -= (len(known) - missing) * self._cache.average_size()
        return known, missing

    def _completed(self, entries: Sequence[Entry], known: list[T | None]) -> list[T]:
        if self._cache is None:
            return [self._encode(entry) if each is None else each for each, entry in zip(known, entries, strict=True)]
        return [self._missing(entry) if each is None else each for each, entry in zip(known, entries, strict=True)]

    def _missing(self, entry: Entry) -> T:
        """Return the encoding of an entry that is not in the young generation, and add it there."""
        cache = self._cache
        if cache is None:
            raise AssertionError("there is no cache in which an entry could be missing")
        encoded: T | None = cache.old(self._variant).get(entry)
        if encoded is None:
            cache.objects.misses += 1
            encoded = self._encode(entry)
        else:
            cache.objects.hits += 1
        size = self._size(encoded) + len(entry.json) + OVERHEAD
        if size <= self._room and self._erasures == cache.erasures:
            self._room -= size
            cache.put(self._variant, entry, encoded, size)
        return encoded
