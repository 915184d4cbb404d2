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
            causes.append(duplicate(path, kind))
        seen.add(kind)
        causes += _condition(condition, path)
    return causes


def _condition(condition: Object, path: str) -> list[Cause]:
    kind, status = condition.get("type", ""), condition.get("status", "")
    causes = qualified_name(kind, f"{path}.type") if kind else [required(f"{path}.type", "is required")]
    generation = condition.get("observedGeneration", 0)
    if not status:
        causes.append(required(f"{path}.status"))
    elif status not in STATUSES:
        causes.append(not_supported(f"{path}.status", status, STATUSES))
    if generation < 0:
        causes.append(invalid_value(f"{path}.observedGeneration", generation, "must be greater than or equal to zero"))
    if not condition.get("lastTransitionTime"):
        causes.append(required(f"{path}.lastTransitionTime"))
    causes += condition_reason(condition.get("reason", ""), f"{path}.reason")
    if len(condition.get("message", "").encode()) > MAX_MESSAGE:
        causes.append(too_long(f"{path}.message", MAX_MESSAGE))
    return causes


def condition_reason(reason: str, path: str, most: int = MAX_REASON) -> list[Cause]:
    """Check the reason of a condition, of at most so many bytes."""
    if not reason:
        return [required(path)]
    causes: list[Cause] = []
    if not re.fullmatch(_REASON, reason):
        causes.append(invalid_value(path, reason, names.regex_message(_REASON_MESSAGE, _REASON, *_EXAMPLES)))
    if len(reason.encode()) > most:
        causes.append(too_long(path, most))
    return causes
