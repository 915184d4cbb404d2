"""The structural part of an OpenAPI schema: which fields exist, and which parts of an object a walk must visit.

After apiextensions-apiserver ``pkg/apiserver/schema`` (NewStructural). Lives here: the tree of nodes, and paths. Not
here: the walks (defaults.py, embedded.py, containers.py), and the keywords that check values (keywords.py).

Invariant: a tree never changes after it is built, so threads share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.custom.numbers import as_decoded

Schema = Mapping[str, Any]
Where = tuple[Any, str | int] | None
"""A path: the path of the parent, and the text to append, or the position in a list. None is the root."""

CONTAINERS: Final = frozenset((dict, list))
NO_FIELDS: Final[Mapping[str, Any]] = {}


class SchemaNode:
    """One level of a structural schema.

    ``additional``: the schema of other fields; ``open``: additionalProperties is given, maybe without a schema.
    ``fillers``, ``default_fields``: the fields with a default, and those that have one below them.
    ``deep_defaults``, ``deep_embedded``, ``deep_lists``: whether the level or one below it has a default, an embedded
    resource, or a list that is a set or map. Walks skip all other levels.
    """

    __slots__ = (
        "additional",
        "deep_defaults",
        "deep_embedded",
        "deep_lists",
        "default",
        "default_fields",
        "embedded",
        "fillers",
        "has_default",
        "items",
        "list_fields",
        "list_type",
        "map_keys",
        "null_falls",
        "nullable",
        "open",
        "preserve",
        "properties",
        "schema",
        "type",
    )

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.type: str = schema.get("type") or ""
        self.nullable = bool(schema.get("nullable"))
        self.preserve = schema.get("x-kubernetes-preserve-unknown-fields") is True
        self.embedded = schema.get("x-kubernetes-embedded-resource") is True
        self.list_type: str = schema.get("x-kubernetes-list-type") or ""
        self.map_keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        additional = schema.get("additionalProperties")
        self.open = additional is not None
        self.additional = SchemaNode(additional) if isinstance(additional, Mapping) else None
        items = schema.get("items")
        self.items = SchemaNode(items) if isinstance(items, Mapping) else None
        self.properties = {name: SchemaNode(below) for name, below in (schema.get("properties") or NO_FIELDS).items()}
        below = self.below()
        self.set_default(as_decoded(schema.get("default")))
        self.note_defaults()
        self.deep_embedded: bool = self.embedded or any(node.deep_embedded for node in below)
        self.list_fields = {name: node for name, node in self.properties.items() if node.deep_lists}
        self.deep_lists: bool = self.list_type in ("set", "map") or any(node.deep_lists for node in below)

    def below(self) -> list[SchemaNode]:
        """Return the levels directly below."""
        return [*self.properties.values(), *(node for node in (self.additional, self.items) if node is not None)]

    def set_default(self, default: Any) -> None:
        """Set the default of the level; None: it has none."""
        self.default = default
        self.has_default = default is not None
        self.null_falls = not self.nullable and not self.has_default

    def note_defaults(self) -> None:
        """Note which levels below have defaults, once these are set."""
        self.fillers: tuple[tuple[str, SchemaNode], ...] = tuple(
            (name, node) for name, node in self.properties.items() if node.has_default
        )
        self.deep_defaults: bool = any(node.has_default or node.deep_defaults for node in self.below())
        self.default_fields = tuple((name, node) for name, node in self.properties.items() if node.deep_defaults)

    def field(self, name: str) -> SchemaNode | None:
        """Return the schema of a field, None if it has none."""
        return self.properties.get(name, self.additional)


def path_text(where: Where) -> str:
    """Return a path as text, empty for the root."""
    parts = []
    while where is not None:
        where, part = where
        parts.append(part if part.__class__ is str else f"[{part}]")
    return "".join(reversed(parts))


def child(where: Where, name: str) -> Where:
    """Return the path of a field."""
    return (where, name) if where is None else (where, f".{name}")


def key(where: Where, name: str) -> Where:
    """Return the path of a map's entry."""
    return (where, f"[{name}]")


def index(where: Where, position: int) -> Where:
    """Return the path of a list's item."""
    return (where, position)
