"""Converters between Event v1 and events.k8s.io/v1, which name the fields differently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.common.version_conversion import Converter
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.schema import check, types
from kubechronicle.api.values.objects import Object

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


CONVERTERS: Final[Mapping[tuple[str, str, str], Converter]] = {
    ("Event", "v1", "events.k8s.io/v1"): _event_to_new,
    ("Event", "events.k8s.io/v1", "v1"): _event_to_core,
}
