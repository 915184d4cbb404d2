"""Results remembered by a text, which may come from a client: long texts are worked on anew each time, because whoever
sends many different ones must not fill the memory with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar


class Sized(Protocol):
    """A text, or bytes."""

    def __len__(self) -> int: ...

    def __hash__(self) -> int: ...


K = TypeVar("K", bound=Sized)
P = ParamSpec("P")
R = TypeVar("R")

LONGEST = 512


def remembered(
    size: int, longest: int = LONGEST
) -> Callable[[Callable[Concatenate[K, P], R]], Callable[Concatenate[K, P], R]]:
    """Remember ``size`` results of a function by its arguments, the first of them no longer than ``longest``. What it
    raises is not remembered."""

    def decorate(function: Callable[Concatenate[K, P], R]) -> Callable[Concatenate[K, P], R]:
        cached = lru_cache(maxsize=size)(function)

        @wraps(function)
        def looked_up(text: K, *others: P.args, **named: P.kwargs) -> R:
            if len(text) > longest:
                return function(text, *others, **named)
            return cached(text, *others, **named)  # type: ignore[arg-type]  # hashable, as lru_cache's always are

        return looked_up  # type: ignore[return-value]

    return decorate
