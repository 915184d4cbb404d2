"""A cache of results by text.

The text may come from a client. Results of long texts are not cached, so that many different texts cannot fill the
memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from kubechronicle.api.values.caches import remembered


class Sized(Protocol):
    """A text, or bytes."""

    def __len__(self) -> int: ...

    def __hash__(self) -> int: ...


K = TypeVar("K", bound=Sized)
P = ParamSpec("P")
R = TypeVar("R")

LONGEST = 512


def cached(
    size: int, longest: int = LONGEST
) -> Callable[[Callable[Concatenate[K, P], R]], Callable[Concatenate[K, P], R]]:
    """Cache ``size`` results of a function by its arguments, if the first is no longer than ``longest``.

    Exceptions are not cached.
    """

    def decorate(function: Callable[Concatenate[K, P], R]) -> Callable[Concatenate[K, P], R]:
        cached = remembered(size)(function)

        @wraps(function)
        def looked_up(text: K, *others: P.args, **named: P.kwargs) -> R:
            if len(text) > longest:
                return function(text, *others, **named)
            return cached(text, *others, **named)

        return looked_up  # type: ignore[return-value]

    return decorate
