"""Tables: how ``kubectl get`` is shown objects, and the metadata-only forms of objects.

Lives here: which printer a kind has, rows, whole tables, PartialObjectMetadata. Not here: the kinds' columns
(builtin/columns*.py), and when a client wants a table (content negotiation).

A table is rows plus column definitions; both can be had singly, so that a watch may send definitions once and a server
may keep rows. Cells with ages are true only at the moment they were made for.

Objects are given in the version of the request; printers know the version a kind is stored in, so that rows of the
other versions are made of a converted copy.

    table_row(pods, pod, since=ages_at(now))
    -> {"cells": ["web-1", "1/1", "Running", "0", "5m", …], "object": {…metadata…}}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from kubechronicle.api import status
from kubechronicle.api.builtin.cell_text import Since, ages_at, human_duration
from kubechronicle.api.builtin.columns import PRINTERS
from kubechronicle.api.builtin.columns_workloads import SCALE
from kubechronicle.api.builtin.printer import CREATED_AT, NAME, Object, Printer, name_of
from kubechronicle.api.conversion import convert
from kubechronicle.api.field_errors import go_quote
from kubechronicle.api.registry import ResourceType
from kubechronicle.api.tables.custom import custom_printer

__all__ = [
    "INCLUDE_METADATA",
    "INCLUDE_NONE",
    "INCLUDE_OBJECT",
    "SCALE",
    "Printer",
    "ages_at",
    "column_definitions",
    "human_duration",
    "include_object_policy",
    "partial_object_metadata",
    "partial_object_metadata_list",
    "printer_of",
    "table",
    "table_of_rows",
    "table_row",
    "table_rows",
]

INCLUDE_NONE: Final = "None"
INCLUDE_METADATA: Final = "Metadata"
INCLUDE_OBJECT: Final = "Object"

META_GROUP: Final = "meta.k8s.io"
VERSIONS: Final = ("v1", "v1beta1")
"""Versions of meta.k8s.io in which tables and metadata can be asked for."""

_ZERO_TIME: Final = "0001-01-01T00:00:00Z"
CUSTOM_PRINTERS_KEPT: Final = 1024
"""Printers of custom resource versions kept; one that was pushed out is only made again."""


def include_object_policy(text: str) -> str:
    """Return what rows shall carry, from the ``includeObject`` parameter. StatusError 400 for anything unknown."""
    if text in (INCLUDE_NONE, INCLUDE_METADATA, INCLUDE_OBJECT):
        return text
    if not text:
        return INCLUDE_METADATA
    raise status.bad_request(
        f"Unable to convert to Table as requested: includeObject: Invalid value: {go_quote(text)}: "
        "must be 'Metadata', 'Object', 'None', or empty"
    )


# -- printers ---------------------------------------------------------------------------------------------------------


def _default_cells(obj: Object, since: Since) -> list[Any]:
    return [name_of(obj), obj["metadata"].get("creationTimestamp") or _ZERO_TIME]


DEFAULT: Final = Printer((NAME, CREATED_AT), _default_cells, null_when_empty=True)
"""The printer of built-in kinds without one of their own."""


@lru_cache(maxsize=CUSTOM_PRINTERS_KEPT)
def _custom(rt: ResourceType) -> Printer:
    return custom_printer(rt.printer_columns)


def printer_of(rt: ResourceType) -> Printer:
    """Return how a kind is shown."""
    if rt.custom is not None or rt.printer_columns:
        return _custom(rt)
    return PRINTERS.get(rt.resource, DEFAULT)


@lru_cache(maxsize=CUSTOM_PRINTERS_KEPT)
def _definitions(printer: Printer) -> tuple[Mapping[str, Any], ...]:
    return tuple(column.definition() for column in printer.columns)


def column_definitions(rt: ResourceType, *, printer: Printer | None = None) -> list[dict[str, Any]]:
    """Return the columnDefinitions of a kind's tables."""
    return [dict(definition) for definition in _definitions(printer or printer_of(rt))]


def _in_stored_version(rt: ResourceType, obj: Object) -> Object:
    if rt.is_storage_version or not rt.stored or obj.get("apiVersion") != rt.api_version or rt.custom is not None:
        return obj
    return convert(dict(obj), rt.storage_api_version)


# -- rows and tables --------------------------------------------------------------------------------------------------


def partial_object_metadata(obj: Object, version: str = "v1") -> dict[str, Any]:
    """Return the PartialObjectMetadata of an object; its metadata is shared, not copied."""
    return {"kind": "PartialObjectMetadata", "apiVersion": f"{META_GROUP}/{version}", "metadata": obj["metadata"]}


def partial_object_metadata_list(
    objects: Iterable[Object], *, list_metadata: Mapping[str, Any], version: str = "v1"
) -> dict[str, Any]:
    """Return the PartialObjectMetadataList of objects; its items are null where there are none, as in Kubernetes."""
    items = [partial_object_metadata(obj, version) for obj in objects]
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": f"{META_GROUP}/{version}",
        "metadata": dict(list_metadata),
        "items": items or None,
    }


def table_row(
    rt: ResourceType,
    obj: Object,
    *,
    since: Since,
    include_object: str = INCLUDE_METADATA,
    version: str = "v1",
    printer: Printer | None = None,
) -> dict[str, Any]:
    """Return one row. ``include_object`` is what it carries beside the cells: INCLUDE_NONE, _METADATA or _OBJECT."""
    printer = printer or printer_of(rt)
    stored = _in_stored_version(rt, obj)
    made: dict[str, Any] = {"cells": printer.cells(stored, since)}
    conditions = printer.conditions(stored) if printer.conditions is not None else None
    if conditions:
        made["conditions"] = conditions
    if include_object == INCLUDE_METADATA:
        made["object"] = partial_object_metadata(obj, version)
    else:
        made["object"] = obj if include_object == INCLUDE_OBJECT else None
    return made


def table_rows(
    rt: ResourceType,
    objects: Iterable[Object],
    *,
    now: datetime,
    include_object: str = INCLUDE_METADATA,
    version: str = "v1",
    printer: Printer | None = None,
) -> list[dict[str, Any]]:
    """Return the rows of objects, in the order the kind is listed in."""
    printer = printer or printer_of(rt)
    since = ages_at(now)
    listed = objects if printer.order is None else sorted(objects, key=printer.order)
    return [
        table_row(rt, obj, since=since, include_object=include_object, version=version, printer=printer)
        for obj in listed
    ]


def table_of_rows(
    rt: ResourceType,
    made: Sequence[Mapping[str, Any]],
    *,
    list_metadata: Mapping[str, Any],
    version: str = "v1",
    no_headers: bool = False,
    printer: Printer | None = None,
) -> dict[str, Any]:
    """Return a Table of rows that are made already. Without headers the column definitions are null."""
    printer = printer or printer_of(rt)
    return {
        "kind": "Table",
        "apiVersion": f"{META_GROUP}/{version}",
        "metadata": dict(list_metadata),
        "columnDefinitions": None if no_headers else column_definitions(rt, printer=printer),
        "rows": None if printer.null_when_empty and not made else made,
    }


def table(
    rt: ResourceType,
    objects: Iterable[Object],
    *,
    now: datetime,
    list_metadata: Mapping[str, Any],
    include_object: str = INCLUDE_METADATA,
    version: str = "v1",
    no_headers: bool = False,
    printer: Printer | None = None,
) -> dict[str, Any]:
    """Return the Table of objects.

    ``list_metadata`` is the list's (resourceVersion, continue, remainingItemCount), for one object
    ``{"resourceVersion": …}``. ``printer`` is given for what is no resource of its own, such as SCALE.
    """
    made = table_rows(rt, objects, now=now, include_object=include_object, version=version, printer=printer)
    return table_of_rows(rt, made, list_metadata=list_metadata, version=version, no_headers=no_headers, printer=printer)
