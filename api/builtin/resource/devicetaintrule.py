"""DeviceTaintRule: a taint for all devices that its selector matches (KEP-5055).

Source: ``registry/resource/devicetaintrule`` and ``apis/resource/validation``.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import conditions, dns_label
from kubechronicle.api.builtin.common.kind import BuiltinKind, only_status
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, field_column, name_of
from kubechronicle.api.builtin.common.volume_sources import csi_driver_name
from kubechronicle.api.builtin.resource.devices import pool_name
from kubechronicle.api.builtin.resource.slice_validation import taint as valid_taint
from kubechronicle.api.errors.field_errors import Cause, too_many
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.objects import Object, ReadOnlyObject

GROUP: Final = "resource.k8s.io"
MAX_CONDITIONS: Final = 8
_TAINT: Final = "resource.v1.DeviceTaint"


def _rule(obj: Object) -> list[Cause]:
    spec = obj.get("spec") or {}
    selector, causes = spec.get("deviceSelector") or {}, list[Cause]()
    for name, check in (("driver", csi_driver_name), ("pool", pool_name), ("device", dns_label)):
        if selector.get(name) is not None:
            causes += check(selector[name], f"spec.deviceSelector.{name}")
    return causes + valid_taint(spec.get("taint") or {}, "spec.taint")


def _status(new: Object, _: Object) -> list[Cause]:
    given = (new.get("status") or {}).get("conditions") or []
    causes = conditions(given, "status.conditions")
    if len(given) > MAX_CONDITIONS:
        causes.append(too_many("status.conditions", len(given), MAX_CONDITIONS))
    return causes


def _default_time(new: Object, now: str) -> None:
    """Set the time of the taint. A client may set it, too."""
    taint = (new.get("spec") or {}).get("taint")
    if taint is not None and not taint.get("timeAdded"):
        taint["timeAdded"] = now


def _stamp(new: Object, old: Object, now: str) -> None:
    """Set the time of a taint with another effect, unless the update does."""
    taint, held = ((obj.get("spec") or {}).get("taint") or {} for obj in (new, old))
    if held.get("effect") != taint.get("effect") and taint.get("timeAdded") == held.get("timeAdded"):
        taint["timeAdded"] = now


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    taint = (obj.get("spec") or {}).get("taint") or {}
    shown = [taint.get(name, "") for name in ("key", "value", "effect")]
    return [name_of(obj), *shown, since(taint["timeAdded"]) if taint.get("timeAdded") else "", age_of(obj, since)]


KIND: Final = BuiltinKind(
    resource="devicetaintrules.resource.k8s.io",
    strategy=Strategy(
        unconditional_update=False,
        unconditional_in=(f"{GROUP}/v1alpha3", f"{GROUP}/v1beta2"),
        generation=True,
        returned_in=(f"{GROUP}/v1alpha3", f"{GROUP}/v1beta2"),
        update_checks=(Check.METADATA_CHANGE, Check.OBJECT),
        defaults=_default_time,
        stamp=_stamp,
        validate=_rule,
        subresources=only_status(_status),
    ),
    printer=Printer(
        (
            NAME,
            field_column("Key", f"{_TAINT}.key"),
            field_column("Value", f"{_TAINT}.value"),
            field_column("Effect", f"{_TAINT}.effect"),
            field_column("TimeAdded", f"{_TAINT}.timeAdded"),
            AGE,
        ),
        _cells,
    ),
)
