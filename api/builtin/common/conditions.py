"""Validation of ``metav1.Condition``, the form of conditions in newer kinds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from kubechronicle.api.builtin.common.checks import qualified_name
from kubechronicle.api.errors.field_errors import Cause, duplicate, invalid_value, not_supported, required, too_long
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object

STATUSES: Final = ("False", "True", "Unknown")
MAX_REASON: Final = 1024
MAX_MESSAGE: Final = 32 * 1024
_REASON: Final = r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_REASON_MESSAGE: Final = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_'"
)
_EXAMPLES: Final = ("my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB")


def conditions(given: Sequence[Object], field: str) -> list[Cause]:
    """Check each condition, and that their types differ."""
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, condition in enumerate(given):
        path, kind = f"{field}[{index}]", condition.get("type", "")
        if kind in seen:
            causes.append(duplicate(f"{path}.type", kind))
        seen.add(kind)
        causes += _condition(condition, path)
    return causes


def _condition(condition: Object, path: str) -> list[Cause]:
    causes = qualified_name(condition.get("type", ""), f"{path}.type")
    status, generation = condition.get("status", ""), condition.get("observedGeneration", 0)
    if status not in STATUSES:
        causes.append(not_supported(f"{path}.status", status, STATUSES))
    if generation < 0:
        causes.append(invalid_value(f"{path}.observedGeneration", generation, "must be greater than or equal to zero"))
    if not condition.get("lastTransitionTime"):
        causes.append(required(f"{path}.lastTransitionTime"))
    reason = condition.get("reason", "")
    if not reason:
        causes.append(required(f"{path}.reason"))
    else:
        if not re.fullmatch(_REASON, reason):
            detail = names.regex_message(_REASON_MESSAGE, _REASON, *_EXAMPLES)
            causes.append(invalid_value(f"{path}.reason", reason, detail))
        if len(reason.encode()) > MAX_REASON:
            causes.append(too_long(f"{path}.reason", MAX_REASON))
    if len(condition.get("message", "").encode()) > MAX_MESSAGE:
        causes.append(too_long(f"{path}.message", MAX_MESSAGE))
    return causes
