"""Tables for ``kubectl get``, and the metadata-only forms of objects.

Lives here: printers of kinds, rows, whole tables, PartialObjectMetadata. Not here: the kinds' columns
(builtin/'s files), and when a client wants a table (content negotiation).

A table is rows and column definitions. Each is available alone, so that a watch can send definitions once and a
server can cache rows. Cells with ages are valid only for their time.

Printers of built-in kinds take objects in their stored form. If the request has another version, ``served`` has the
same objects in that version.

    table_row(pods, pod, since=ages_at(now))
    -> {"cells": ["web-1", "1/1", "Running", "0", "5m", …], "object": {…metadata…}}

Cacheable rows: encoded JSON with gaps for ages, which are filled in for each answer.

A row depends only on the object, its printer and the time; and on the time only through the function ``since`` that the
printer calls. So rows are made with a ``since`` that marks the timestamp itself:

    [b'{"cells":["web-1","1/1","Running","3 (', b"2026-01-02T03:04:05Z", b' ago)","', b"2026-…", b'"],"object":…}']

JSON and timestamps alternate, from JSON to JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

from kubechronicle.api.builtin.common.cell_text import Since, ages_at
from kubechronicle.api.builtin.common.printer import CREATED_AT, NAME, Printer, name_of
from kubechronicle.api.builtin.kinds import PRINTERS
from kubechronicle.api.codecs import json, unstructured
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.tables.custom import custom_printer
from kubechronicle.api.values.objects import ReadOnlyObject

INCLUDE_NONE: Final = "None"
INCLUDE_METADATA: Final = "Metadata"
INCLUDE_OBJECT: Final = "Object"

META_V1: Final = "meta.k8s.io/v1"
META_V1BETA1: Final = "meta.k8s.io/v1beta1"

_INTERNAL_FIELDS: Final[Mapping[tuple[Any, Any], str]] = {
    ("apps/v1", "DaemonSet"): "deprecated.daemonset.template.generation",
    ("apps/v1", "Deployment"): "deprecated.deployment.rollback.to",
}
_METADATA: Final = (
    "name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp",
    "deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "ownerReferences", "finalizers",
    "managedFields",
)  # fmt: skip
_OWNER: Final = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
_MANAGER: Final = ("manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1", "subresource")
_ZERO_TIME: Final = "0001-01-01T00:00:00Z"


def include_object_policy(text: str) -> str:
    """Return the ``includeObject`` policy of rows from the query parameter. StatusError 400 for an unknown value."""
    if text in (INCLUDE_NONE, INCLUDE_METADATA, INCLUDE_OBJECT):
        return text
    if not text:
        return INCLUDE_METADATA
    raise status.bad_request(
        f"Unable to convert to Table as requested: includeObject: Invalid value: {go_quote(text)}: "
        "must be 'Metadata', 'Object', 'None', or empty"
    )


# -- printers ---------------------------------------------------------------------------------------------------------


def _default_cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), obj["metadata"].get("creationTimestamp") or _ZERO_TIME]


DEFAULT: Final = Printer((NAME, CREATED_AT), _default_cells, null_when_empty=True)
"""The printer of built-in kinds without one of their own."""


def printer_of(rt: ResourceType) -> Printer:
    """Return the printer of a kind. That of a custom one is compiled: whoever makes several tables keeps it."""
    if rt.custom is not None or rt.printer_columns:
        return custom_printer(rt.printer_columns)
    return PRINTERS.get(rt.resource, DEFAULT)


def column_definitions(rt: ResourceType, *, printer: Printer | None = None) -> list[dict[str, Any]]:
    """Return the columnDefinitions of a kind's tables."""
    return [column.definition() for column in (printer or printer_of(rt)).columns]


# -- rows and tables --------------------------------------------------------------------------------------------------


def partial_object_metadata(obj: ReadOnlyObject, version: str = META_V1) -> dict[str, Any]:
    """Return the PartialObjectMetadata of an object, which shares its metadata.

    kube-apiserver makes it, and rows, of its internal form, in which some annotations are fields.
    """
    metadata = obj["metadata"]
    field = _INTERNAL_FIELDS.get((obj.get("apiVersion"), obj.get("kind")))
    if field is not None and field in (metadata.get("annotations") or ()):
        kept = {name: value for name, value in metadata["annotations"].items() if name != field}
        metadata = {name: value for name, value in metadata.items() if name != "annotations"}
        metadata |= {"annotations": kept} if kept else {}
    return {"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": _in_order(metadata)}


def _in_order(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata in the order of Go's fields: custom objects are stored in another one."""
    shown = _fields(metadata, _METADATA)
    for name in ("labels", "annotations"):
        if name in shown:
            shown[name] = dict(sorted(shown[name].items()))
    for name, order in (("ownerReferences", _OWNER), ("managedFields", _MANAGER)):
        if name in shown:
            shown[name] = [_fields(each, order) for each in shown[name]]
    return shown


def _fields(value: Mapping[str, Any], order: Sequence[str]) -> dict[str, Any]:
    found = {name: value[name] for name in order if name in value}
    return found if len(found) == len(value) else {**found, **value}


def partial_object_metadata_list(
    objects: Iterable[ReadOnlyObject], *, list_metadata: Mapping[str, Any], version: str = META_V1
) -> dict[str, Any]:
    """Return the PartialObjectMetadataList of objects. As in Kubernetes, its items are null if there are none."""
    items = [partial_object_metadata(obj, version) for obj in objects]
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": version,
        "metadata": dict(list_metadata),
        "items": items or None,
    }


def table_row(
    rt: ResourceType,
    obj: ReadOnlyObject,
    *,
    since: Since,
    include_object: str = INCLUDE_METADATA,
    version: str = META_V1,
    served: ReadOnlyObject | None = None,
    printer: Printer | None = None,
) -> dict[str, Any]:
    """Return one row.

    ``include_object``: the part of the object beside the cells: INCLUDE_NONE, _METADATA or _OBJECT.
    ``served``: the object in the request's version, if that is another. Columns of custom resources are paths into it.
    """
    printer = printer or printer_of(rt)
    served = obj if served is None else served
    shown = obj if rt.custom is None else served
    made: dict[str, Any] = {"cells": printer.cells(shown, since)}
    conditions = printer.conditions(shown) if printer.conditions is not None else None
    if conditions:
        made["conditions"] = conditions
    if include_object == INCLUDE_METADATA:
        made["object"] = partial_object_metadata(obj, version)
    elif include_object == INCLUDE_OBJECT:
        made["object"] = served if rt.custom is None else unstructured.in_order(served)
    else:
        made["object"] = None
    return made


def table_rows(
    rt: ResourceType,
    objects: Iterable[ReadOnlyObject],
    *,
    now: datetime,
    include_object: str = INCLUDE_METADATA,
    version: str = META_V1,
    served: Iterable[ReadOnlyObject] | None = None,
    listed: bool = False,
    printer: Printer | None = None,
) -> list[dict[str, Any]]:
    """Return the rows of objects in the kind's list order. ``served`` has one for each of ``objects``."""
    printer = printer or printer_of(rt)
    since = ages_at(now)
    pairs = [(obj, None) for obj in objects] if served is None else list(zip(objects, served, strict=True))
    if listed:
        printer = printer.of_list([obj for obj, _ in pairs])
    if printer.order is not None:
        order = printer.order
        pairs.sort(key=lambda pair: order(pair[0]))
    return [
        table_row(rt, obj, since=since, include_object=include_object, version=version, served=form, printer=printer)
        for obj, form in pairs
    ]


def table_of_rows(
    rt: ResourceType,
    made: Sequence[Mapping[str, Any]],
    *,
    list_metadata: Mapping[str, Any],
    version: str = META_V1,
    no_headers: bool = False,
    printer: Printer | None = None,
) -> dict[str, Any]:
    """Return a Table of ready-made rows. ``no_headers``: the column definitions are null."""
    printer = printer or printer_of(rt)
    return {
        "kind": "Table",
        "apiVersion": version,
        "metadata": dict(list_metadata),
        "columnDefinitions": None if no_headers else column_definitions(rt, printer=printer),
        "rows": None if printer.null_when_empty and not made else made,
    }


def table(
    rt: ResourceType,
    objects: Iterable[ReadOnlyObject],
    *,
    now: datetime,
    list_metadata: Mapping[str, Any],
    include_object: str = INCLUDE_METADATA,
    version: str = META_V1,
    served: Iterable[ReadOnlyObject] | None = None,
    no_headers: bool = False,
    listed: bool = False,
    printer: Printer | None = None,
) -> dict[str, Any]:
    """Return the Table of objects.

    ``list_metadata``: the list's resourceVersion, continue and remainingItemCount; for one object its resourceVersion.
    ``listed``: the objects are a list, whose rows may depend on each other.
    ``printer``: for kinds that are no resources, such as Scale.
    """
    made = table_rows(
        rt,
        objects,
        now=now,
        include_object=include_object,
        version=version,
        served=served,
        listed=listed,
        printer=printer,
    )
    return table_of_rows(rt, made, list_metadata=list_metadata, version=version, no_headers=no_headers, printer=printer)


Row: TypeAlias = tuple[bytes, ...]

MARK: Final = "\ud800"
"""Mark on both sides of a timestamp in a cell. No object contains half of a surrogate pair: it has no UTF-8."""


def _marked(text: str | None) -> str:
    return f"{MARK}{text}{MARK}" if text else "<unknown>"


def encoded_row(
    rt: ResourceType,
    obj: ReadOnlyObject,
    *,
    include_object: str = INCLUDE_METADATA,
    version: str = META_V1,
    served: ReadOnlyObject | None = None,
    printer: Printer | None = None,
) -> Row:
    """Return the row of an object (see ``table_row``), with gaps for ages."""
    made = table_row(
        rt, obj, since=_marked, include_object=include_object, version=version, served=served, printer=printer
    )
    encode = json.encode if rt.custom is None else unstructured.encode_typed
    cells: list[Any] = made.pop("cells")
    row: list[bytes] = []
    text, begin = b'{"cells":[', 0
    for index, cell in enumerate(cells):
        if cell.__class__ is str and MARK in cell:
            if begin < index:
                text += encode(cells[begin:index])[1:-1] + b","
            text = _with_gaps(row, text + b'"', cell) + (b'",' if index + 1 < len(cells) else b'"')
            begin = index + 1
    if begin < len(cells):
        text += encode(cells[begin:])[1:-1]
    row.append(b"%b],%b" % (text, encode(made)[1:]))
    return tuple(row)


def _with_gaps(row: list[bytes], text: bytes, cell: str) -> bytes:
    """Append the parts of a cell to the row, behind ``text``. Return the JSON behind its last gap."""
    for index, part in enumerate(cell.split(MARK)):
        if index % 2:
            row += (text, part.encode())
            text = b""
        elif part:
            text += json.encode(part)[1:-1]
    return text


def row_size(row: Row) -> int:
    """Return the approximate size of a cached row in bytes."""
    return sum(map(len, row)) + 50 * len(row)


def filler(now: datetime) -> Callable[[Iterable[Row]], list[bytes]]:
    """Return a function that fills in the ages of rows for the time ``now``."""
    since = ages_at(now)
    known: dict[bytes, bytes] = {}

    def age(moment: bytes) -> bytes:
        found = known[moment] = since(moment.decode()).encode()
        return found

    def several(row: Row) -> bytes:
        parts = list(row)
        parts[1::2] = [known.get(moment) or age(moment) for moment in row[1::2]]
        return b"".join(parts)

    def filled(rows: Iterable[Row]) -> list[bytes]:
        return [
            # Nearly every kind has one age.
            b"%b%b%b" % (row[0], known.get(row[1]) or age(row[1]), row[2]) if len(row) == 3 else several(row)
            for row in rows
        ]

    return filled
