"""Validation of Leases."""

from __future__ import annotations

from kubechronicle.api.errors.field_errors import Cause, invalid_value
from kubechronicle.api.values.objects import Object


def lease(obj: Object) -> list[Cause]:
    """Check that the duration is positive and the number of transitions is not negative."""
    spec = obj.get("spec") or {}
    causes: list[Cause] = []
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        causes.append(invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    transitions = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        causes.append(invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return causes
