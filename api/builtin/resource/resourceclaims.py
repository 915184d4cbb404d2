"""ResourceClaim: a demand for devices. Its validation stands in the files beside this one.

Source: Kubernetes' ``registry/resource/resourceclaim``, ``apis/resource`` and ``pkg/printers/internalversion``.

ResourceClaimTemplate: the form of claims that are made for pods.

Source: Kubernetes' ``registry/resource/resourceclaimtemplate``, ``apis/resource`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.kind import BuiltinKind, only_status
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, aged, at, name_of
from kubechronicle.api.builtin.resource import claim_status_validation, claim_validation, v1beta1
from kubechronicle.api.strategy.gated_fields import GatedField, below
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.objects import Object, ReadOnlyObject


def default_exact_device_request(obj: Object) -> None:
    """Default to a count of exactly one device."""
    if not obj.get("allocationMode"):
        obj["allocationMode"] = "ExactCount"
    if obj["allocationMode"] == "ExactCount" and not obj.get("count"):
        obj["count"] = 1


def default_device_request(obj: Object) -> None:
    """Default a request of v1beta1 for one class to a count of exactly one device."""
    if obj.get("deviceClassName"):
        default_exact_device_request(obj)


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


CLAIM_FIELDS: Final = (
    GatedField(gate="DRAPrioritizedList", fields=("devices.requests[].firstAvailable",)),
    GatedField(
        gate="DRADeviceTaints",
        fields=("devices.requests[].exactly.tolerations", "devices.requests[].firstAvailable[].tolerations"),
    ),
    GatedField(gate="DRAAdminAccess", fields=("devices.requests[].exactly.adminAccess",)),
    GatedField(
        gate="DRAConsumableCapacity",
        fields=(
            "devices.constraints[].distinctAttribute",
            "devices.requests[].exactly.capacity",
            "devices.requests[].firstAvailable[].capacity",
        ),
    ),
    GatedField(
        gate="DRADerivedAttributes",
        fields=(
            "devices.requests[].exactly.derivedAttributes",
            "devices.requests[].firstAvailable[].derivedAttributes",
        ),
    ),
)
"""Of a ResourceClaim's spec, also in templates."""

_RESULTS: Final = "status.allocation.devices.results[]"
_STATUS: Final = (
    GatedField(gate="DRAResourceClaimDeviceStatus", fields=("status.devices",)),
    GatedField(
        gate="DRAAdminAccess",
        fields=(f"{_RESULTS}.adminAccess",),
        used_by=("spec.devices.requests[].exactly.adminAccess", f"{_RESULTS}.adminAccess"),
    ),
    GatedField(
        gate="DRAConsumableCapacity",
        fields=(f"{_RESULTS}.(shareID|consumedCapacity)", "status.devices[].shareID"),
        used_by=(
            "spec.devices.constraints[].distinctAttribute",
            "spec.devices.requests[].exactly.capacity",
            "spec.devices.requests[].firstAvailable[].capacity",
            f"{_RESULTS}.(shareID|consumedCapacity)",
            "status.devices[].shareID",
        ),
    ),
    GatedField(gate="DRADeviceBindingConditions", fields=(f"{_RESULTS}.(bindingConditions|bindingFailureConditions)",)),
    GatedField(gate="DRAOptionalNodeOperations", fields=(f"{_RESULTS}.skipNodeOperations",)),
)

RESOURCECLAIM: Final = BuiltinKind(
    resource="resourceclaims.resource.k8s.io",
    strategy=Strategy(
        update_checks=(Check.METADATA, Check.METADATA_CHANGE, Check.CHANGE),
        checks_immutable=False,
        returns_deleted=True,
        validate=claim_validation.claim,
        with_gates={"DRAListTypeAttributes": {"validate": partial(claim_validation.claim, lists=True)}},
        subresources=only_status(claim_status_validation.claim_status, claim_status_validation.forget_deallocated),
    ),
    gated_fields={
        "": below("spec", CLAIM_FIELDS),
        "status": _STATUS,
    },
    default_functions={
        "resource.v1.ExactDeviceRequest": default_exact_device_request,
        "resource.v1.DeviceSubRequest": default_exact_device_request,
        "resource.v1beta1.DeviceRequest": default_device_request,
    },
    printer=Printer(
        (
            NAME,
            Column("State", text="A summary of the current state (allocated, pending, reserved, etc.)."),
            AGE,
        ),
        _cells,
    ),
    converters=v1beta1.pair("ResourceClaim", v1beta1.claim_to_v1beta1, v1beta1.claim_to_v1),
)


RESOURCECLAIMTEMPLATE: Final = BuiltinKind(
    resource="resourceclaimtemplates.resource.k8s.io",
    strategy=Strategy(
        empties=("spec.metadata.finalizers", "spec.metadata.managedFields", "spec.metadata.ownerReferences"),
        update_checks=(Check.METADATA, Check.OBJECT, Check.METADATA_CHANGE, Check.CHANGE),
        returns_deleted=True,
        status=False,
        validate=claim_validation.claim_template,
        with_gates={"DRAListTypeAttributes": {"validate": partial(claim_validation.claim_template, lists=True)}},
        validate_update=claim_validation.claim_template_update,
    ),
    gated_fields={
        "": below("spec.spec", CLAIM_FIELDS),
    },
    printer=Printer((NAME, AGE), aged),
    converters=v1beta1.pair(
        "ResourceClaimTemplate",
        lambda spec: v1beta1.claim_to_v1beta1(spec["spec"]),
        lambda spec: v1beta1.claim_to_v1(spec["spec"]),
    ),
)

KINDS: Final = (
    RESOURCECLAIM,
    RESOURCECLAIMTEMPLATE,
)
