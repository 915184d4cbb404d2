"""Column and Printer, the records of table definitions.

A Printer holds a kind's columns and the function from an object to its cells. The description of a column that shows a
field is that field's description in the published OpenAPI schema. It is looked up when a table is first requested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.kinds import reading
from kubechronicle.api.values.objects import ReadOnlyObject

Cells = Callable[[ReadOnlyObject, Since], list[Any]]

_META: Final = "meta.v1.ObjectMeta"


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a table, described by the published description of ``field`` ("core.v1.PodStatus.podIP") or by
    ``text``."""

    name: str
    type: str = "string"
    text: str = ""
    field: str = ""
    priority: int = 0
    format: str = ""

    def definition(self) -> dict[str, Any]:
        """Return the TableColumnDefinition object."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": field_description(self.field) if self.field else self.text,
            "priority": self.priority,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Printer:
    """Table of a kind.

    ``columns``: the column definitions.
    ``cells``: returns the cells of an object.
    ``cells_of_list``: returns that function for the objects of a list, if the cells of one depend on the others.
    ``conditions``: returns the conditions of an object's row.
    ``order``: sort key of a list that is not sorted by name.
    ``null_when_empty``: an empty list has null rows instead of an empty list of rows.
    ``row_bytes``, ``times``: a row takes as long as the encoding of so many bytes, and of its object so many times.
    """

    columns: tuple[Column, ...]
    cells: Cells
    conditions: Callable[[ReadOnlyObject], list[dict[str, Any]] | None] | None = None
    cells_of_list: Callable[[Sequence[ReadOnlyObject]], Cells] | None = None
    order: Callable[[ReadOnlyObject], Any] | None = None
    null_when_empty: bool = False
    row_bytes: int = 0
    times: int = 1

    @property
    def needs_list(self) -> bool:
        """True if the rows of a list depend on all its objects."""
        return self.order is not None or self.cells_of_list is not None

    def of_list(self, objects: Sequence[ReadOnlyObject]) -> Printer:
        """Return the printer for the objects of a list."""
        return self if self.cells_of_list is None else replace(self, cells=self.cells_of_list(objects))


def field_description(field: str) -> str:
    """Return the published description of a field such as ``core.v1.PodStatus.podIP``."""
    kind, _, name = field.rpartition(".")
    return reading.release().declared(_META if kind == "ObjectMeta" else kind).description(name)


def field_column(name: str, described_by: str, type: str = "string") -> Column:
    """Return a column for a field."""
    return Column(name, type, field=described_by)


def wide_field(name: str, described_by: str, type: str = "string") -> Column:
    """Return a column for a field that is shown only with ``-o wide``."""
    return Column(name, type, field=described_by, priority=1)


def wide(name: str, text: str) -> Column:
    """Return a column with a description of its own that is shown only with ``-o wide``."""
    return Column(name, text=text, priority=1)


def counted(name: str, text: str) -> Column:
    """Return a column for a number of items."""
    return Column(name, "integer", text=text)


NAME: Final = Column("Name", field="ObjectMeta.name", format="name")
AGE: Final = Column("Age", field="ObjectMeta.creationTimestamp")
CREATED_AT: Final = Column("Created At", "date", field="ObjectMeta.creationTimestamp")
CONTAINERS: Final = wide("Containers", "Names of each container in the template.")
IMAGES: Final = wide("Images", "Images referenced by each container in the template.")


def name_of(obj: ReadOnlyObject) -> str:
    """Return an object's name."""
    name: str = obj["metadata"].get("name", "")
    return name


def age_of(obj: ReadOnlyObject, since: Since) -> str:
    """Return an object's age as text."""
    return since(obj["metadata"].get("creationTimestamp"))


def at(obj: Any, *names: str, default: Any = None) -> Any:
    """Return a nested field, or ``default`` if any part of the path is absent."""
    for name in names:
        obj = obj.get(name) if isinstance(obj, dict) else None
        if obj is None:
            return default
    return obj


def aged(obj: ReadOnlyObject, since: Since) -> list[Any]:
    """Return the cells of a kind that shows only name and age."""
    return [name_of(obj), age_of(obj, since)]
