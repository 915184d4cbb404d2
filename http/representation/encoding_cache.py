"""What entries were encoded to before, so that a list asked for again is put together and not encoded again.

An Entry never changes, so neither does what was made of it: it is kept by the entry's identity, and what replaces the
object is another entry. Nothing here has to be told of changes, and nothing can be stale.

Bounded in bytes, in two generations: what is used goes into the young one; when that holds half of the bytes, it is
the old one, and what was in the old one and has not been used since is gone. A hit is one look into a dict, which for
ten thousand objects is what counts.

    young {pods in protobuf: {entry: bytes, …}, …}    looked into first, added to
    old   {…}                                         looked into then; what is found moves to the young one

Lists and pages of lists are kept whole as well, one of each scope (lists.py): with their entries, by which they are
known. So these count, too: when all objects have been replaced, nobody else holds them any more.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Key
from kubechronicle.http.metrics import Reading

MOST_BYTES = 64 * 1024 * 1024
"""With the JSON of the entries, which lives on with them here when they have been replaced."""
AROUND = 200
"""Bytes around each thing kept: its place in the dict, the object's head, the entry."""
SAMPLE = 64
"""Entries of a list by which the bytes of all are estimated."""

T = TypeVar("T")


class Looks:
    """How often something was there, and how often not."""

    __slots__ = ("hits", "misses")

    def __init__(self) -> None:
        self.hits = self.misses = 0


class Encodings:
    """See the head of this file. One for all representations."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.half = most_bytes // 2
        self.erasures = 0  # what was begun before another must not be kept after it
        self.objects, self.lists = Looks(), Looks()
        self._young: dict[Hashable, dict[Hashable, Any]] = {}
        self._old: dict[Hashable, dict[Hashable, Any]] = {}
        self._young_bytes = 0
        self._young_items = (0, 0)  # of them, those that are no lists: how many, their bytes
        self._old_bytes = 0

    @property
    def bytes_held(self) -> int:
        return self._young_bytes + self._old_bytes

    def young(self, variant: Hashable) -> dict[Hashable, Any]:
        return self._young.get(variant) or {}

    def old(self, variant: Hashable) -> dict[Hashable, Any]:
        return self._old.get(variant) or {}

    def usual_size(self) -> int:
        """Bytes of one entry kept, on the average."""
        count, size = self._young_items
        return size // max(count, 1)

    def readings(self) -> Iterator[Reading]:
        """What it holds, and what it is good for."""
        looks = {"object": self.objects, "list": self.lists}
        yield Reading(
            "kubechronicle_encoding_cache_bytes",
            "Bytes held of encoded objects and lists, with the objects that lists are of.",
            False,
            "",
            {"": float(self.bytes_held)},
        )
        yield Reading(
            "kubechronicle_encoding_cache_hits",
            "Encoded objects and lists that were there when asked for.",
            True,
            "kind",
            {kind: float(of.hits) for kind, of in looks.items()},
        )
        yield Reading(
            "kubechronicle_encoding_cache_misses",
            "Encoded objects and lists that were made anew.",
            True,
            "kind",
            {kind: float(of.misses) for kind, of in looks.items()},
        )

    def forget(self) -> None:
        """History was erased, and what was encoded may be of it."""
        self.erasures += 1
        self._young, self._young_bytes, self._young_items = {}, 0, (0, 0)
        self._old, self._old_bytes = {}, 0

    def keep(self, variant: Hashable, key: Hashable, made: Any, size: int) -> None:
        self._add(variant, key, made, size)
        count, sizes = self._young_items
        self._young_items = (count + 1, sizes + size)

    def _add(self, variant: Hashable, key: Hashable, made: Any, size: int) -> None:
        if self._young_bytes + size > self.half:
            self._old, self._old_bytes = self._young, self._young_bytes
            self._young, self._young_bytes, self._young_items = {}, 0, (0, 0)
        self._young.setdefault(variant, {})[key] = made
        self._young_bytes += size

    def holds(self, size: int) -> bool:
        """Whether a whole list of so many bytes may be kept: a quarter of all is for one."""
        return size <= self.half // 2

    def of_list(self, variant: Hashable, entries: Sequence[Entry]) -> Any:
        """What was kept for the whole of a list; None if nothing was. A list is what its entries are: a view gives out
        the same tuple until something in it changes, and each page is a new one of the same entries, which are compared
        one by one, by identity: 5 ns each, and up to the first that differs."""
        if not isinstance(entries, tuple):
            return None
        scope = _scope(entries)
        found: _List | None = self.young(variant).get(scope)
        if found is None or not found.is_of(entries):
            found = self.old(variant).get(scope)
            if found is None or not found.is_of(entries):
                self.lists.misses += 1
                return None
            self._keep_list(variant, scope, found)
        if found.made:
            self.lists.hits += 1
        else:
            self.lists.misses += 1
        return found.made

    def keep_list(self, variant: Hashable, entries: Sequence[Entry], made: Any, size: int) -> None:
        """In the place of what was kept of its scope before. With the entries, unless nothing is ``made`` but a note
        that it was asked for: if that is of another list by now, it does no harm."""
        if isinstance(entries, tuple):
            self._keep_list(variant, _scope(entries), _List(hash(entries), entries if made else (), made, size, 0))

    def _keep_list(self, variant: Hashable, scope: Hashable, kept: _List) -> None:
        self._drop_lists(variant, scope, kept.mark)
        if not self.holds(kept.size):
            return
        held = kept.size + AROUND
        if kept.made and not any(found.made for found in self._lists(self._young, scope)):
            held += _bytes_of(kept.entries)
        if held <= self.half:
            self._add(variant, scope, kept._replace(held=held), held)

    @staticmethod
    def _lists(generation: dict[Hashable, dict[Hashable, Any]], scope: Hashable) -> list[_List]:
        """Those of a scope, in all forms."""
        return [forms[scope] for forms in generation.values() if scope in forms]

    def _drop_lists(self, variant: Hashable, scope: Hashable, but: int) -> None:
        """Of a scope, in this form, and in all forms but those of the list of a mark."""
        for generation in (self._young, self._old):
            for form, kept in generation.items():
                found: _List | None = kept.get(scope)
                if found is not None and (form == variant or found.mark != but):
                    del kept[scope]
                    if generation is self._young:
                        self._young_bytes -= found.held
                    else:
                        self._old_bytes -= found.held


class _List(NamedTuple):
    """``mark``: the hash of the entries, which is that of their identities. Bytes: ``size`` of what was made, ``held``
    of all of it; of the entries only with the first of the forms that hold them."""

    mark: int
    entries: tuple[Entry, ...]
    made: Any
    size: int
    held: int

    def is_of(self, entries: tuple[Entry, ...]) -> bool:
        if self.made:
            return self.entries is entries or self.entries == entries
        return self.mark == hash(entries)


def _scope(entries: Sequence[Entry]) -> tuple[Key, Key] | None:
    """From where to where a list is: that of a namespace, that of all and their pages are told apart, mostly; and what
    follows a list when one of its objects changes mostly has the same."""
    return (entries[0].key, entries[-1].key) if entries else None


def _bytes_of(entries: Sequence[Entry]) -> int:
    """About as many as there are."""
    step = -(-len(entries) // SAMPLE) or 1
    some = entries[::step]
    return len(entries) * (8 + sum(len(entry.json) for entry in some) // max(len(some), 1))


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
        self._erasures = encodings.erasures if encodings is not None else 0

    def one(self, entry: Entry) -> T:
        """As it was kept, or made anew and not kept: single objects are read as they change, lists of all."""
        if self._encodings is not None:
            for kept in (self._encodings.young(self._variant), self._encodings.old(self._variant)):
                found: T | None = kept.get(entry)
                if found is not None:
                    self._encodings.objects.hits += 1
                    return found
            self._encodings.objects.misses += 1
        return self._make(entry)

    def all(self, entries: Sequence[Entry]) -> list[T]:
        if self._encodings is None:
            return [self._make(entry) for entry in entries]
        young = self._encodings.young(self._variant)
        found: list[T | None] = [young.get(entry) for entry in entries] if young else [None] * len(entries)
        missing = found.count(None)
        self._encodings.objects.hits += len(found) - missing
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
            encodings.objects.misses += 1
            made = self._make(entry)
        else:
            encodings.objects.hits += 1
        size = self._size(made) + len(entry.json) + AROUND
        if size <= self._room and self._erasures == encodings.erasures:
            self._room -= size
            encodings.keep(self._variant, entry, made, size)
        return made
