"""Event: a report about an object, in core/v1 and events.k8s.io/v1. It is stored in the form of core/v1.

Source: Kubernetes' ``registry/core/event``, ``apis/core/validation/events.go`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import dns_subdomain, wrong
from kubechronicle.api.builtin.common.go_shapes import record
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import Column, Printer, field_column, name_of, wide_field
from kubechronicle.api.errors.field_errors import Cause, invalid_value, required
from kubechronicle.api.meta import metadata
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.meta.metadata import IMMUTABLE
from kubechronicle.api.schema import check, types
from kubechronicle.api.strategy.strategy import UNSUPPORTED, Check, Strategy
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- validation -------------------------------------------------------------------------------------------------------

MAX_TEXT: Final = 128
MAX_MESSAGE: Final = 1024
NEW_EVENTS: Final = "events.k8s.io/v1"
_KEPT: Final = (
    ("involvedObject", "ObjectReference"),
    ("reason", ""),
    ("message", ""),
    ("source", "EventSource"),
    ("firstTimestamp", None),
    ("lastTimestamp", None),
    ("count", 0),
    ("reason", ""),
    ("type", ""),
    ("eventTime", None),
    ("action", ""),
    ("related", "*ObjectReference"),
    ("reportingComponent", ""),
    ("reportingInstance", ""),
)
"""Fields that are immutable in events.k8s.io/v1, in the order of the checks, with the value that a message shows if
absent."""


def _event(obj: Object, api_version: str) -> list[Cause]:
    """Check that an event is in the namespace of its object, and the full form if eventTime is set."""
    namespace = obj["metadata"].get("namespace", "")
    involved = (obj.get("involvedObject") or {}).get("namespace", "")
    field, mismatch = "involvedObject.namespace", "does not match event.namespace"
    causes: list[Cause] = []
    if not obj.get("eventTime"):
        if (involved and involved != namespace) or (not involved and namespace not in ("", "default")):
            causes.append(invalid_value(field, involved, mismatch))
    else:
        if not involved and namespace not in ("default", "kube-system"):
            causes.append(invalid_value(field, involved, mismatch))
        causes += _full_event(obj, "reportingController" if api_version == NEW_EVENTS else "reportingComponent")
    return causes + dns_subdomain(namespace, "namespace")


def _full_event(obj: Object, field: str) -> list[Cause]:
    """Check the full form of an event. ``field``: the name of its reporting controller in the request's version."""
    controller = obj.get("reportingComponent", "")
    causes = [] if controller else [required(field)]
    causes += wrong(field, controller, names.qualified_name(controller))
    for member in ("reportingInstance", "action", "reason"):
        value = obj.get(member, "")
        if not value:
            causes.append(required(member))
        if len(value.encode()) > MAX_TEXT:
            causes.append(invalid_value(member, "", f"can have at most {MAX_TEXT} characters"))
    if len(obj.get("message", "").encode()) > MAX_MESSAGE:
        causes.append(invalid_value("message", "", f"can have at most {MAX_MESSAGE} characters"))
    return causes


def validate_event_as(api_version: str, new: Object, old: Object | None) -> list[Cause]:
    """Check an event, in events.k8s.io/v1 with additional rules."""
    causes = _event(new, api_version)
    if api_version != NEW_EVENTS:
        return causes
    return causes + (_new_event(new) if old is None else _changed_event(new, old))


def _series(obj: Object) -> list[Cause]:
    series = obj.get("series")
    if series is None:
        return []
    causes = []
    if series.get("count", 0) < 2:
        causes.append(invalid_value("series.count", "", "should be at least 2"))
    if not series.get("lastObservedTime"):
        causes.append(required("series.lastObservedTime"))
    return causes


def _new_event(obj: Object) -> list[Cause]:
    causes = metadata.validate(obj["metadata"], namespaced=True, name_check=names.subdomain_name) + _series(obj)
    if not obj.get("eventTime"):
        causes.append(required("eventTime"))
    kind = obj.get("type", "")
    if kind not in ("Normal", "Warning"):
        causes.append(invalid_value("type", "", f"has invalid value: {kind}"))
    for member in ("firstTimestamp", "lastTimestamp", "count", "source"):
        if obj.get(member):
            causes.append(invalid_value(member, "", "needs to be unset"))
    return causes


def _changed_event(new: Object, old: Object) -> list[Cause]:
    causes = metadata.validate_update(new["metadata"], old["metadata"])
    causes += _series(new) if new.get("series") != old.get("series") else []
    for member, absent in _KEPT:
        after, before = new.get(member), old.get(member)
        optional = isinstance(absent, str) and absent.startswith("*")
        if after == before if optional else (after or None) == (before or None):
            continue
        shown: Any
        if isinstance(absent, str) and absent:
            shown = record(after, absent[1:]) if optional else record(after or {}, absent)
        else:
            shown = absent if after is None else after
        field = "reportingController" if member == "reportingComponent" else member
        causes.append(invalid_value(field, shown, IMMUTABLE))
    return causes


# -- table columns ----------------------------------------------------------------------------------------------------


def _event_object(involved: ReadOnlyObject) -> str:
    kind = (involved.get("kind") or "").lower()
    name = involved.get("name")
    return f"{kind}/{name}" if name else kind


def _event_source(obj: ReadOnlyObject) -> str:
    source = obj.get("source") or {}
    component = source.get("component") or obj.get("reportingComponent") or ""
    instance = source.get("host") or obj.get("reportingInstance") or ""
    return f"{component}, {instance}" if instance else component


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
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


# -- conversions ------------------------------------------------------------------------------------------------------

_EVENT_NAMES: Final = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
)
"""Fields that differ only in name: (name in v1, name in events.k8s.io/v1)."""


def _renamed(obj: Object, names: Mapping[str, str], api_version: str, definition: str) -> Object:
    result = {names.get(name, name): value for name, value in copy_object(obj).items()}
    result["apiVersion"] = api_version
    check.check(result, types.object_type(definition))
    return result


def _event_to_new(obj: Object) -> Object:
    return _renamed(obj, dict(_EVENT_NAMES), "events.k8s.io/v1", "io.k8s.api.events.v1.Event")


def _event_to_core(obj: Object) -> Object:
    names = {new: old for old, new in _EVENT_NAMES}
    return _renamed(obj, names, "v1", "io.k8s.api.core.v1.Event")


# -- the kind ---------------------------------------------------------------------------------------------------------

KIND: Final = BuiltinKind(
    resource="events",
    strategy=Strategy(
        update_checks=(Check.OBJECT, Check.CHANGE),
        checks_metadata=False,
        kube_finalizers=False,
        status=False,
        create_on_update=True,
        dependents=UNSUPPORTED,
        validate_as=validate_event_as,
    ),
    printer=Printer(
        (
            field_column("Last Seen", "core.v1.Event.lastTimestamp"),
            field_column("Type", "core.v1.Event.type"),
            field_column("Reason", "core.v1.Event.reason"),
            field_column("Object", "core.v1.Event.involvedObject"),
            wide_field("Subobject", "core.v1.ObjectReference.fieldPath"),
            wide_field("Source", "core.v1.Event.source"),
            field_column("Message", "core.v1.Event.message"),
            wide_field("First Seen", "core.v1.Event.firstTimestamp"),
            wide_field("Count", "core.v1.Event.count"),
            Column("Name", field="ObjectMeta.name", priority=1, format="name"),
        ),
        _cells,
    ),
    converters={
        ("Event", "v1", "events.k8s.io/v1"): _event_to_new,
        ("Event", "events.k8s.io/v1", "v1"): _event_to_core,
    },
)
