"""Pruning: unknown fields, and nulls where none may stand, are removed.

After apiextensions-apiserver ``pkg/apiserver/schema/pruning`` and ``defaulting/prunenulls.go``. A field is unknown if
its level has neither a property of its name nor additionalProperties. Levels with
x-kubernetes-preserve-unknown-fields keep unknown fields, and prune below the known ones. The type and metadata of the
root and of embedded resources stay: embedded.py checks them.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.custom.schema.structure import CONTAINERS, Node, Where, child, index, path_text

MAX_UNKNOWN: Final = 10_000
"""The most unknown fields whose paths are collected; answers show fewer."""

META_FIELDS: Final = frozenset(("apiVersion", "kind", "metadata"))


def prune(obj: dict[str, Any], root: Node) -> list[str]:
    """Remove unknown fields of an object, in place. Return their sorted paths."""
    found: list[str] = []
    _prune_object(obj, root, None, found, resource=True)
    found.sort()
    return found


def prune_value(value: Any, node: Node) -> None:
    """Remove unknown fields of a default, in place."""
    if value.__class__ in CONTAINERS:
        _prune(value, node, None, [])


def _prune(value: Any, node: Node | None, where: Where, found: list[str]) -> None:
    if value.__class__ is dict:
        if node is None:
            for name in value:
                _note(where, name, found)
            value.clear()
        else:
            _prune_object(value, node, where, found, resource=node.embedded)
        return
    if node is not None and node.preserve:
        _skip(value, node, where, found)
        return
    below = None if node is None else node.items
    for position, item in enumerate(value):
        if item.__class__ in CONTAINERS:
            _prune(item, below, index(where, position), found)


def _skip(value: Any, node: Node | None, where: Where, found: list[str]) -> None:
    """Prune below the known fields only."""
    if node is None:
        return
    if value.__class__ is dict:
        _prune_object(value, node, where, found, resource=node.embedded, preserve=True)
    else:
        for position, item in enumerate(value):
            if item.__class__ in CONTAINERS:
                _skip(item, node.items, index(where, position), found)


def _prune_object(
    value: dict[str, Any], node: Node, where: Where, found: list[str], *, resource: bool, preserve: bool = False
) -> None:
    known, additional, is_open = node.properties, node.additional, node.open
    preserve = preserve or node.preserve
    drop: list[str] = []
    for name, item in value.items():
        below = known.get(name)
        if resource and name in META_FIELDS:
            if item is None and below is not None and below.null_falls:
                drop.append(name)
            continue
        if below is None:
            if not is_open:
                if not preserve:
                    drop.append(name)
                    _note(where, name, found)
                continue
            below = additional
        if item.__class__ in CONTAINERS:
            _prune(item, below, child(where, name), found)
        elif item is None and below is not None and below.null_falls:
            drop.append(name)
    for name in drop:
        del value[name]


def _note(where: Where, name: str, found: list[str]) -> None:
    if len(found) < MAX_UNKNOWN:
        found.append(path_text(child(where, name)))
