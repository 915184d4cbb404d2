"""Table columns of Events. | Source: Kubernetes' ``pkg/printers/internalversion``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.printer import Column, Printer, field, name_of, wide_field
from kubechronicle.api.values.objects import ReadOnlyObject


def _event_object(involved: ReadOnlyObject) -> str:
    kind = (involved.get("kind") or "").lower()
    name = involved.get("name")
    return f"{kind}/{name}" if name else kind


def _event_source(obj: ReadOnlyObject) -> str:
    source = obj.get("source") or {}
    component = source.get("component") or obj.get("reportingComponent") or ""
    instance = source.get("host") or obj.get("reportingInstance") or ""
    return f"{component}, {instance}" if instance else component


def _event(obj: ReadOnlyObject, since: Since) -> list[Any]:
    involved = obj.get("involvedObject") or {}
    first = since(obj.get("firstTimestamp") or obj.get("eventTime"))
    last_seen = obj.get("lastTimestamp")
    last, count = since(last_seen) if last_seen else first, obj.get("count") or 1
    series = obj.get("series")
    if series is not None:
        last, count = since(series.get("lastObservedTime")), series.get("count") or 0
    return [
        last,
        obj.get("type") or "",
        obj.get("reason") or "",
        _event_object(involved),
        involved.get("fieldPath") or "",
        _event_source(obj),
        (obj.get("message") or "").strip(),
        first,
        count,
        name_of(obj),
    ]


PRINTERS: Final[Mapping[str, Printer]] = {
    "events": Printer(
        (
            field("Last Seen", "core.v1.Event.lastTimestamp"),
            field("Type", "core.v1.Event.type"),
            field("Reason", "core.v1.Event.reason"),
            field("Object", "core.v1.Event.involvedObject"),
            wide_field("Subobject", "core.v1.ObjectReference.fieldPath"),
            wide_field("Source", "core.v1.Event.source"),
            field("Message", "core.v1.Event.message"),
            wide_field("First Seen", "core.v1.Event.firstTimestamp"),
            wide_field("Count", "core.v1.Event.count"),
            Column("Name", field="ObjectMeta.name", priority=1, format="name"),
        ),
        _event,
    ),
}
