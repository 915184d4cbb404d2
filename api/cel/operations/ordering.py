"""Order of CEL's values: numbers by value across their types, texts and bytes by their bytes, false before true."""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.cel.values import Duration, Timestamp

_ORDERED: Final = (str, bytes, Timestamp, Duration)
COMPARABLE_TYPES: Final = (str, bytes, bool, int, float, Timestamp, Duration)


def compare(left: Any, right: Any) -> int | None:
    """Return -1, 0 or 1; None if the two have no order (other types, or NaN)."""
    kind = type(left)
    if (kind is bool) is not (type(right) is bool):
        return None
    if isinstance(left, (int, float)):
        if not isinstance(right, (int, float)) or left != left or right != right:
            return None
    elif not isinstance(left, _ORDERED) or not isinstance(right, kind):
        return None
    if left == right:
        return 0
    return -1 if left < right else 1
