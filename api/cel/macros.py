"""Macros: calls that the parser replaces by other expressions before anything is checked.

Source: cel-go ``parser/macro.go``, ``cel/library.go`` (optMap, optFlatMap), ``ext/comprehensions.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kubechronicle.api.cel.ast import Node


class MacroError(Exception):
    """A macro used wrongly: the place (offset in characters) and cel-go's words."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset
        self.message = message


Expansion = Callable[[int, Node | None, Sequence[Node]], Node | None]
"""(place of the call, target, arguments) -> what stands instead; None: it is a plain call. Raises MacroError."""


class Macro(NamedTuple):
    """A macro is found by name, number of arguments and whether it has a receiver (``x.all(…)``)."""

    name: str
    arguments: int
    receiver: bool
    expand: Expansion
