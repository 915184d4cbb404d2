"""ResourceClaim: a demand for devices. Its validation stands in the files beside this one.

Source: Kubernetes' ``registry/resource/resourceclaim``, ``apis/resource`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.kind import BuiltinKind, only_status
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, at, name_of
from kubechronicle.api.builtin.common.version_conversion import same_fields
from kubechronicle.api.builtin.resource.resourceclaim import validation, validation_status
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.objects import Object, ReadOnlyObject


def default_exact_device_request(obj: Object) -> None:
    """Default to a count of exactly one device."""
    if not obj.get("allocationMode"):
        obj["allocationMode"] = "ExactCount"
    if obj["allocationMode"] == "ExactCount" and not obj.get("count"):
        obj["count"] = 1


def _claim_state(obj: ReadOnlyObject) -> str:
    deleted = bool(obj["metadata"].get("deletionTimestamp"))
    states = ["deleted"] if deleted else []
    if at(obj, "status", "allocation") is None:
        states += [] if deleted else ["pending"]
    else:
        states += ["allocated", *(["reserved"] if at(obj, "status", "reservedFor") else [])]
    return ",".join(states)


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), _claim_state(obj), age_of(obj, since)]


KIND: Final = BuiltinKind(
    resource="resourceclaims.resource.k8s.io",
    strategy=Strategy(
        update_checks=(Check.METADATA, Check.METADATA_CHANGE, Check.CHANGE),
        returns_deleted=True,
        validate=validation.claim,
        subresources=only_status(validation_status.claim_status, validation_status.forget_deallocated),
    ),
    default_functions={
        f"resource.{version}.{name}": default_exact_device_request
        for version in ("v1", "v1beta2")
        for name in ("ExactDeviceRequest", "DeviceSubRequest")
    },
    printer=Printer(
        (
            NAME,
            Column("State", text="A summary of the current state (allocated, pending, reserved, etc.)."),
            AGE,
        ),
        _cells,
    ),
    converters=same_fields("ResourceClaim", "resource.k8s.io", "v1", "v1beta2"),
)
