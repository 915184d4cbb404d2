"""Validation of Events, in both versions.

events.k8s.io/v1 requires more fields, and allows only the series to change.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.checks import dns_subdomain, wrong
from kubechronicle.api.builtin.common.go_shapes import shape
from kubechronicle.api.errors.field_errors import Cause, invalid_value, required
from kubechronicle.api.meta import metadata
from kubechronicle.api.meta.metadata import IMMUTABLE
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object

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


def event_as(api_version: str, new: Object, old: Object | None) -> list[Cause]:
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
            shown = shape(after, absent[1:]) if optional else shape(after or {}, absent)
        else:
            shown = absent if after is None else after
        field = "reportingController" if member == "reportingComponent" else member
        causes.append(invalid_value(field, shown, IMMUTABLE))
    return causes
