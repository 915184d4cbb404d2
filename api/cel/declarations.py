"""Libraries: sets of functions, macros, constants and types that an environment may offer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kubechronicle.api.cel.syntax.macros import Macro
from kubechronicle.api.cel.types import CelType, Function


class Library(NamedTuple):
    """A named set of declarations.

    ``constants``: identifiers of the whole environment: name -> (type, value).
    ``types``: object types that expressions may name, or construct with ``Name{field: value}``.
    """

    name: str
    version: int
    functions: tuple[Function, ...]
    macros: tuple[Macro, ...] = ()
    constants: Mapping[str, tuple[CelType, Any]] = {}
    types: tuple[CelType, ...] = ()

    def weighing(self, weight: int) -> Library:
        """Return the library with functions of this weight (types.py)."""
        functions = tuple(
            each._replace(overloads=tuple(overload._replace(weight=weight) for overload in each.overloads))
            for each in self.functions
        )
        return self._replace(functions=functions)
