"""Conditions in the status of an object, set by control loops (API conventions, "Typical status properties")."""

from __future__ import annotations

from datetime import UTC, datetime

from kubechronicle.api.values.objects import Object


def with_condition(obj: Object, kind: str, state: str, *, reason: str = "", message: str = "") -> Object:
    """Return the object with its condition ``kind`` in this state. The condition's time is the last change of state."""
    status = obj.get("status") or {}
    conditions = [dict(one) for one in status.get("conditions") or ()]
    held = next((one for one in conditions if one.get("type") == kind), None)
    if held is None:
        held = {"type": kind}
        conditions.append(held)
    if held.get("status") != state:
        held["lastTransitionTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    held.update({"status": state, "reason": reason, "message": message})
    return {**obj, "status": {**status, "conditions": conditions}}
