"""Bounded memories, and the registry of those that may hold texts of objects or of requests, of all parts of a process.

Each has an owner, a bound of its own, and ``forget``, which empties it. An erasure empties all of them by one call
(eventlog/views/views.py), whichever object was erased: a cache does not tell from where its texts are.

    api/: functions of texts         remembered(256)                        their results, for the process
    api/: values in both directions  CACHES.add("stored contents", …)       for the process
    other folders: parts of servers  self._verified = kept("tokens")        as long as the part lives

Not here: what is the same in every process, whatever it is asked (parsed data files, types of the built-in kinds).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache, wraps
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar
from weakref import WeakKeyDictionary

P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K")
V = TypeVar("V")


class Cache(Protocol):
    """A cache that may hold texts of objects. ``len``: its entries; 0 may stand for a number that is not counted."""

    def __len__(self) -> int: ...

    def forget(self) -> None:
        """Drop all entries. None that is added later may come from before."""


C = TypeVar("C", bound=Cache)


class Caches:
    """All caches of a process. It does not keep them alive."""

    def __init__(self) -> None:
        self._names: WeakKeyDictionary[Cache, str] = WeakKeyDictionary()

    def add(self, name: str, cache: C) -> C:
        """Add a cache, which must be hashable by identity, and return it. Several may share a name."""
        self._names[cache] = name
        return cache

    def __contains__(self, part: object) -> bool:
        return any(cache is part for cache in list(self._names))

    def forget_all(self) -> None:
        """Empty every cache."""
        for cache in list(self._names):
            cache.forget()

    def entries(self) -> Mapping[str, int]:
        """Return the number of entries by the names of caches."""
        found: Counter[str] = Counter()
        for cache, name in list(self._names.items()):
            found[name] += len(cache)
        return found


CACHES: Final = Caches()
"""Those of this process: the caches of api/ are functions of texts alone, which all servers in it share."""


class KeptDict(dict[K, V]):
    """A dict that is a cache. It is emptied by its owner when it is full, and by ``forget_all``."""

    __slots__ = ("__weakref__",)
    __hash__ = object.__hash__  # type: ignore[assignment]  # by identity, for the registry
    forget = dict.clear


class KeptInOrder(OrderedDict[K, V]):
    """An OrderedDict that is a cache, as KeptDict is one."""

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore[assignment]
    forget = OrderedDict.clear


def kept(name: str) -> KeptDict[Any, Any]:
    """Return an empty dict for a cache of this name."""
    return CACHES.add(name, KeptDict())


def kept_in_order(name: str) -> KeptInOrder[Any, Any]:
    """Return an empty OrderedDict for a cache of this name."""
    return CACHES.add(name, KeptInOrder())


class Results:
    """The remembered results of one function."""

    __slots__ = ("__weakref__", "_function")

    def __init__(self, function: Any) -> None:
        self._function = function

    def __len__(self) -> int:
        return int(self._function.cache_info().currsize)

    def forget(self) -> None:
        """Forget all results."""
        self._function.cache_clear()


def remembered(size: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Remember the last ``size`` results of a function whose arguments may be texts of objects, as lru_cache does."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        kept = lru_cache(maxsize=size)(function)
        name = f"{function.__module__.removeprefix('kubechronicle.')}.{function.__qualname__}"
        kept.registered = CACHES.add(name, Results(kept))  # type: ignore[attr-defined]  # lives as long as the function
        return kept  # type: ignore[return-value]  # hashable arguments, as lru_cache's always are

    return decorate


# -- text cache --------------------------------------------------------------------------------------------------------
#
# A cache of results by text.
#
# The text may come from a client. Results of long texts are not cached, so that many different texts cannot fill the
# memory.


class Sized(Protocol):
    """A text, or bytes."""

    def __len__(self) -> int: ...

    def __hash__(self) -> int: ...


S = TypeVar("S", bound=Sized)

LONGEST = 512


def cached(
    size: int, longest: int = LONGEST
) -> Callable[[Callable[Concatenate[S, P], R]], Callable[Concatenate[S, P], R]]:
    """Cache ``size`` results of a function by its arguments, if the first is no longer than ``longest``.

    Exceptions are not cached.
    """

    def decorate(function: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
        cached = remembered(size)(function)

        @wraps(function)
        def looked_up(text: S, *others: P.args, **named: P.kwargs) -> R:
            if len(text) > longest:
                return function(text, *others, **named)
            return cached(text, *others, **named)

        return looked_up  # type: ignore[return-value]

    return decorate


# -- recent ------------------------------------------------------------------------------------------------------------
#
# A bounded memory of what was computed last, by its input.
#
# Two generations: when the younger one is full, it becomes the older one, and that is forgotten. An entry that is used
# moves to the younger one. Several threads may use it at once: none of its steps leaves it inconsistent, and an entry
# that is lost is computed again.


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """``weight``: the most of one generation. The weights of entries are the caller's, such as bytes."""

    __slots__ = ("__weakref__", "_former", "_most", "_now", "_weight")

    def __init__(self, weight: int) -> None:
        self._most: Final = weight
        self.forget()

    def forget(self) -> None:
        """Forget everything."""
        self._weight = 0
        self._now: dict[Key, tuple[Value, int]] = {}
        self._former: dict[Key, tuple[Value, int]] = {}

    def __len__(self) -> int:
        return len(self._now) + len(self._former)

    def get(self, key: Key) -> Value | None:
        """Return the value of a key, None if it was never added or is forgotten."""
        found = self._now.get(key)
        if found is None:
            found = self._former.get(key)
            if found is None:
                return None
            self.add(key, *found)
        return found[0]

    def add(self, key: Key, value: Value, weight: int = 1) -> None:
        """Remember a value, unless it alone weighs more than a generation may."""
        if weight > self._most:
            return
        if self._weight + weight > self._most:
            self._former, self._now, self._weight = self._now, {}, 0
        self._now[key] = (value, weight)
        self._weight += weight


# -- known texts -------------------------------------------------------------------------------------------------------
#
# A bounded memory of texts and the values that they were decoded to, in both directions.
#
# Two generations: when the younger one is full, it becomes the older one, and that is forgotten. A text that is looked
# up moves to the younger one. Several threads may use it at once.
#
# Invariant: the values never change, so their readers share them.


class _TextGeneration(Generic[Value]):
    """Values by their text, and texts by the identity of their value, which lives as long as the generation."""

    __slots__ = ("by_identity", "by_text", "weight")

    def __init__(self) -> None:
        self.by_text: dict[bytes, Value] = {}
        self.by_identity: dict[int, tuple[Value, bytes]] = {}
        self.weight = 0


class KnownTexts(Generic[Value]):
    """``weight``: the most bytes of the texts of one generation."""

    __slots__ = ("__weakref__", "_former", "_most", "_now")

    def __init__(self, weight: int) -> None:
        self._most: Final = weight
        self.forget()

    def forget(self) -> None:
        """Forget everything."""
        self._now: _TextGeneration[Value] = _TextGeneration()
        self._former: _TextGeneration[Value] = _TextGeneration()

    def __len__(self) -> int:
        return len(self._now.by_text) + len(self._former.by_text)

    def get(self, text: bytes) -> Value | None:
        """Return the value of a text; None if it was never added or is forgotten."""
        value = self._now.by_text.get(text)
        if value is None:
            value = self._former.by_text.get(text)
            if value is not None:
                self.add(text, value)
        return value

    def add(self, text: bytes, value: Value) -> None:
        """Remember a text and its value."""
        if self._now.weight > self._most:
            self._former, self._now = self._now, _TextGeneration()
        self._now.by_text[text] = value
        self._now.by_identity[id(value)] = value, text
        self._now.weight += len(text)

    def text_of(self, value: Any) -> bytes | None:
        """Return the text of this very value; None if it is not known."""
        key = id(value)
        found = self._now.by_identity.get(key) or self._former.by_identity.get(key)
        return found[1] if found is not None and found[0] is value else None
