"""The registry of the caches that may hold texts of objects or of requests, of all parts of one process.

Each has an owner, a bound of its own, and ``forget``, which empties it. An erasure empties all of them by one call
(eventlog/views/views.py), whichever object was erased: a cache does not tell from where its texts are.

    api/: functions of texts         remembered(256)                        their results, for the process
    api/: values in both directions  CACHES.add("stored contents", …)       for the process
    other folders: parts of servers  self._verified = kept("tokens")        as long as the part lives

Not here: what is the same in every process, whatever it is asked (parsed data files, types of the built-in kinds).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, ParamSpec, Protocol, TypeVar
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
