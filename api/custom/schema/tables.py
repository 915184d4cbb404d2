"""Tables of checks by the class of the value, and their application.

Not here: the rules of the keywords (keywords.py), which a table gets as its compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kubechronicle.api.custom.schema.failures import Failures
from kubechronicle.api.custom.schema.ratcheting import Correlated
from kubechronicle.api.custom.schema.structure import Schema, Where

Check = Callable[[Any, Where, Failures, Correlated | None], int]
"""Notes the failures of a value at a path, and returns the number of its positive checks. The last argument is the old
value beside it, if its errors are tolerated when it is unchanged."""

Entry = tuple[int, Check | None]
"""The constant part of the number of positive checks, and the check if a value may fail."""

Compiler = Callable[["Table", type], Entry]

_BASES: Final = (type(None), bool, int, float, str, list, dict)


class Table(dict[type, Entry]):
    """The checks of one schema. ``root``: paths begin here."""

    __slots__ = ("compiler", "root", "schema")

    def __init__(self, schema: Schema, compiler: Compiler, *, root: bool = False) -> None:
        super().__init__()
        self.schema = schema
        self.compiler = compiler
        self.root = root

    def __missing__(self, cls: type) -> Entry:
        """Compile the check of a class at its first value. Subclasses count as the JSON class."""
        entry = self.compiler(self, next(base for base in _BASES if issubclass(cls, base)))
        self[cls] = entry
        return entry

    def below(self, schema: Schema, *, root: bool = False) -> Table:
        """Return the table of a schema within this one."""
        return Table(schema, self.compiler, root=root)


def apply(table: Table, value: Any, where: Where, failures: Failures, old: Correlated | None = None) -> int:
    """Check a value."""
    count, check = table[value.__class__]
    return count if check is None else count + check(value, where, failures, old)


def apply_ratcheted(table: Table, where: Where, failures: Failures, old: Correlated) -> int:
    """Check a correlated value, and forget its failures if it is unchanged."""
    count, check = table[old.value.__class__]
    if check is not None:
        found = Failures()
        count += check(old.value, where, found, old)
        if found and not old.equal():
            failures.merge(found)
    return count
