"""Validation of Tags."""

from __future__ import annotations

from kubechronicle.api.builtin.common.checks import immutable
from kubechronicle.api.errors.field_errors import Cause, invalid_value
from kubechronicle.api.history.reasons import parse_reason
from kubechronicle.api.values.objects import Object


def tag(obj: Object) -> list[Cause]:
    """Check the reason. The server itself has set the rest (actors/history/tags.py)."""
    reason = obj["spec"].get("reason", "")
    try:
        parse_reason(reason)
    except ValueError as error:
        return [invalid_value("spec.reason", reason, error)]
    return []


def tag_update(new: Object, old: Object) -> list[Cause]:
    """Reject another moment: a name that meant one state of the cluster must not come to mean another one."""
    return immutable("spec", new["spec"], old["spec"])
