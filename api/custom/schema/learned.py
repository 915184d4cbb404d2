"""The proof of whole objects that gets quicker with use: a walk at first, then a form of the fields in use.

    object 1, 2, …    proved by the walk (conforming.py), which teaches the form (forms.py) their fields
    further ones      proved by the form
    a new field       proved by the walk; after some of these objects, the form is made anew

A form of all fields would take long to make: schemas have thousands of fields, of which objects use few.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

import msgspec

from kubechronicle.api.custom.schema.conforming import proof_of
from kubechronicle.api.custom.schema.failures import Failures
from kubechronicle.api.custom.schema.forms import Form, Level, form_of
from kubechronicle.api.custom.schema.structure import CONTAINERS, Node
from kubechronicle.api.custom.schema.tables import Table

MAX_OBJECTS: Final = 64
"""The most levels of objects in a form. Each takes 0.1 ms and 3 KB; a schema with more in use is walked along."""

MAX_FIELDS: Final = 1000
"""The most fields of a form."""

MAX_FUTILE: Final = 32
"""Objects in a row that the walk proves and the form refuses for their values, after which the form is given up."""


class LearnedProof:
    """A proof of whole objects, which is a walk at first. Several threads may use it at once."""

    __slots__ = ("_form", "_futile", "_learns", "_misses", "_node", "_table", "_used", "_walk")

    def __init__(self, root: Node, table: Table) -> None:
        self._node, self._table = root, table
        self._walk = proof_of(root, table)
        self._form: Form | None = None
        self._used = _Used()
        self._learns = True
        self._misses = self._futile = 0

    def __call__(self, obj: dict[str, Any], failures: Failures) -> bool:
        """Tell whether an object needs no repair. RecursionError if it is too deep.

        Other problems are noted as failures, or make the answer False.
        """
        form = self._form
        if form is not None:
            kind, rest = form
            try:
                msgspec.convert(obj, kind)
            except msgspec.ValidationError:
                pass
            else:
                self._futile = 0
                return rest is None or rest(obj, failures)
        proved = self._walk(obj, failures) and not failures
        if proved and self._learns:
            self._learn(obj)
        return proved

    def _learn(self, obj: dict[str, Any]) -> None:
        """Add the fields of a proved object. Make the form anew when the walks so far have cost as much as that."""
        used = self._used
        known = used.fields
        used.add(obj, self._node)
        if used.is_full:
            self._learns, self._used = False, _Used()
            return
        if used.fields == known and self._form is not None and not self._misses:
            self._futile += 1
            if self._futile >= MAX_FUTILE:
                self._learns, self._form = False, None
            return
        self._misses += 1
        if self._misses * 2 >= used.objects:
            self._misses = 0
            self._form = self._made()
            self._learns = self._form is not None

    def _made(self) -> Form | None:
        """Return the form of the used fields, None if there is none."""
        try:
            form = form_of(self._node, self._table, self._used.root)
            if form is not None:
                with contextlib.suppress(msgspec.ValidationError):
                    msgspec.convert({}, form[0])  # msgspec looks at the bounds now
            return form
        except (TypeError, ValueError, OverflowError):  # msgspec cannot express a bound
            return None


class _Used:
    """All used fields, as far as the bounds allow. ``is_full``: there were more."""

    __slots__ = ("fields", "objects", "root")

    def __init__(self) -> None:
        self.root = Level()
        self.objects = self.fields = 0

    @property
    def is_full(self) -> bool:
        return self.objects > MAX_OBJECTS or self.fields > MAX_FIELDS

    def add(self, value: Any, node: Node) -> None:
        """Add the fields of an object that has been proved."""
        stack = [(value, node, self.root)]
        while stack and not self.is_full:
            value, node, level = stack.pop()
            below = node.items if value.__class__ is list else node.additional
            if below is not None:
                level.below = level.below or Level()
                items = value if value.__class__ is list else value.values()
                stack += [(item, below, level.below) for item in items if item.__class__ in CONTAINERS]
            elif value.__class__ is dict:
                self._add_fields(value, node, level, stack)

    def _add_fields(
        self, value: dict[str, Any], node: Node, level: Level, stack: list[tuple[Any, Node, Level]]
    ) -> None:
        for name, item in value.items():
            below = node.properties.get(name)
            if below is None:
                continue
            known = level.fields.get(name)
            if known is None:
                self.objects += not level.fields
                self.fields += 1
                known = level.fields[name] = Level()
            if item.__class__ in CONTAINERS:
                stack.append((item, below, known))
