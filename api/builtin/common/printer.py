"""The records table definitions are made of: Column and Printer.

A Printer says which columns a kind has and how an object becomes their cells. Descriptions of columns that show a field
are those of the field in the published OpenAPI schema, looked up when a table is first asked for, not written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.schema.types import definitions

Object = Mapping[str, Any]
Cells = Callable[[Object, Since], list[Any]]

_API: Final = "io.k8s.api."
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


@dataclass(frozen=True, slots=True)
class Column:
    """One column. ``field`` names the field that describes it ("core.v1.PodStatus.podIP"), otherwise ``text`` does."""

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
    """How a kind is shown. ``conditions`` gives a row's conditions, ``order`` how a list is sorted where not by name,
    ``null_when_empty`` whether an empty list has null rows rather than none."""

    columns: tuple[Column, ...]
    cells: Cells
    conditions: Callable[[Object], list[dict[str, Any]] | None] | None = None
    order: Callable[[Object], Any] | None = None
    null_when_empty: bool = False


def field_description(field: str) -> str:
    """Return the published description of a field such as ``core.v1.PodStatus.podIP``, "" where there is none."""
    kind, _, name = field.rpartition(".")
    if kind == "ObjectMeta":
        kind = _META
    elif not kind.startswith("io.k8s."):
        kind = _API + kind
    properties = definitions().get(kind, {}).get("properties", {})
    description: str = properties.get(name, {}).get("description", "")
    return description


def field(name: str, described_by: str, type: str = "string") -> Column:
    """Return a column that shows a field."""
    return Column(name, type, field=described_by)


def wide_field(name: str, described_by: str, type: str = "string") -> Column:
    """Return such a column that is shown only where there is room (``-o wide``)."""
    return Column(name, type, field=described_by, priority=1)


def wide(name: str, text: str) -> Column:
    """Return a column shown only where there is room."""
    return Column(name, text=text, priority=1)


def counted(name: str, text: str) -> Column:
    """Return a column that shows how many there are of something."""
    return Column(name, "integer", text=text)


NAME: Final = Column("Name", field="ObjectMeta.name", format="name")
AGE: Final = Column("Age", field="ObjectMeta.creationTimestamp")
CREATED_AT: Final = Column("Created At", "date", field="ObjectMeta.creationTimestamp")
CONTAINERS: Final = wide("Containers", "Names of each container in the template.")
IMAGES: Final = wide("Images", "Images referenced by each container in the template.")


def name_of(obj: Object) -> str:
    """Return an object's name."""
    name: str = obj["metadata"].get("name", "")
    return name


def age_of(obj: Object, since: Since) -> str:
    """Return how long an object exists."""
    return since(obj["metadata"].get("creationTimestamp"))


def at(obj: Any, *names: str, default: Any = None) -> Any:
    """Return a nested field, ``default`` where any part of the way is absent."""
    for name in names:
        obj = obj.get(name) if isinstance(obj, dict) else None
        if obj is None:
            return default
    return obj


def aged(obj: Object, since: Since) -> list[Any]:
    """Return the cells of a kind that has nothing to show but name and age."""
    return [name_of(obj), age_of(obj, since)]
