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

Compiler = Callable[["Table", type], "Check | int"]

_BASES: Final = (type(None), bool, int, float, str, list, dict)


class Table(dict[type, Check | int]):
    """The checks of one schema. A number stands for a check that never fails. ``root``: paths begin here."""

    __slots__ = ("compiler", "root", "schema")

    def __init__(self, schema: Schema, compiler: Compiler, *, root: bool = False) -> None:
        super().__init__()
        self.schema = schema
        self.compiler = compiler
        self.root = root

    def __missing__(self, cls: type) -> Check | int:
        """Compile the check of a class at its first value. Subclasses count as the JSON class."""
        base = next(base for base in _BASES if issubclass(cls, base))
        check = self.compiler(self, base)
        self[cls] = check
        return check

    def below(self, schema: Schema, *, root: bool = False) -> Table:
        """Return the table of a schema within this one."""
        return Table(schema, self.compiler, root=root)


def apply(table: Table, value: Any, where: Where, failures: Failures, old: Correlated | None = None) -> int:
    """Check a value."""
    check = table[value.__class__]
    if check.__class__ is int:
        return check
    return check(value, where, failures, old)  # type: ignore[operator]


def apply_ratcheted(table: Table, where: Where, failures: Failures, old: Correlated) -> int:
    """Check a correlated value, and forget its failures if it is unchanged."""
    found = Failures(failures.base)
    count = apply(table, old.value, where, found, old)
    if found and not old.equal():
        failures.merge(found)
    return count
