"""Texts of table cells: ages, selectors, shortened lists. It knows no kinds.

Source: apimachinery ``util/duration`` and the helpers of Kubernetes' printers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from kubechronicle.api.selectors.label_selectors import selector_from_spec

Since = Callable[[str | None], str]
"""Function from a timestamp (RFC 3339 or None) to its age as text; behind AROUND, to "5m ago" or "in 5m"."""
AROUND: Final = "~"
"""The beginning of a timestamp that may be still to come."""

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_YEAR_HOURS: Final = 24 * 365

_KEPT_AGES: Final = 4096
"""Limit of cached ages per table; objects are often created in the same second."""


def human_duration(seconds: float) -> str:
    """Return a duration as ``duration.HumanDuration`` does: "5s", "3m20s", "2h5m", "3d4h", "2y30d"."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    minutes = whole // _MINUTE
    if minutes < 10:
        return _two(minutes, "m", whole % _MINUTE, "s")
    if minutes < 180:
        return f"{minutes}m"
    hours = whole // _HOUR
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 24 * 8:
        return _two(hours // 24, "d", hours % 24, "h")
    if hours < 2 * _YEAR_HOURS:
        return f"{hours // 24}d"
    if hours < 8 * _YEAR_HOURS:
        return _two(hours // _YEAR_HOURS, "y", hours // 24 % 365, "d")
    return f"{hours // _YEAR_HOURS}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def timestamp(text: str) -> datetime | None:
    """Return the time of an RFC 3339 text, or None if it is invalid."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def ages_at(now: datetime) -> Since:
    """Return a function that formats the age of a timestamp at ``now``: "<unknown>" for an absent one."""
    known: dict[str, str] = {}

    def since(text: str | None) -> str:
        if not text:
            return "<unknown>"
        age = known.get(text)
        if age is None:
            moment = timestamp(text.removeprefix(AROUND))
            if moment is None:
                age = "<invalid>"
            elif text[0] != AROUND:
                age = human_duration((now - moment).total_seconds())
            else:
                span = human_duration(abs(now - moment).total_seconds())
                age = f"in {span}" if moment > now else f"{span} ago"
            if len(known) < _KEPT_AGES:
                known[text] = age
        return age

    return since


def duration_between(start: str, end: str) -> str:
    """Return the time between two timestamps as text."""
    first, last = timestamp(start), timestamp(end)
    return "" if first is None or last is None else human_duration((last - first).total_seconds())


def labels_text(labels: Mapping[str, str] | None) -> str:
    """Return labels as ``a=b,c=d`` sorted by key, or ``<none>``."""
    if not labels:
        return "<none>"
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))


def selector_text(selector: Mapping[str, Any] | None, empty: str = "<none>") -> str:
    """Return a LabelSelector object as text, or ``empty`` if it has no requirements."""
    if not selector:
        return empty
    if not selector.get("matchExpressions"):
        labels = selector.get("matchLabels")
        return labels_text(labels) if labels else empty
    return str(selector_from_spec(selector))


def joined(items: Sequence[str], limit: int, *, total: int | None = None, empty: str = "") -> str:
    """Return up to ``limit`` items and the number of those left out: ``a,b,c + 2 more...``."""
    count = len(items) if total is None else total
    if count > limit:
        return f"{','.join(items[:limit])} + {count - limit} more..."
    return ",".join(items) or empty


def containers_text(containers: Iterable[Mapping[str, Any]] | None) -> tuple[str, str]:
    """Return (names, images) of containers, each joined by commas."""
    listed = list(containers or ())
    return (
        ",".join(container.get("name", "") for container in listed),
        ",".join(container.get("image", "") for container in listed),
    )


def condition(conditions: Iterable[Mapping[str, Any]] | None, kind: str) -> Mapping[str, Any] | None:
    """Return the condition of a type, or None."""
    return next((found for found in conditions or () if found.get("type") == kind), None)


def is_true(conditions: Iterable[Mapping[str, Any]] | None, kind: str) -> bool:
    """Return whether the condition of a type has status True."""
    found = condition(conditions, kind)
    return found is not None and found.get("status") == "True"


def yes_no(value: bool | None) -> str:
    """Return an optional flag as "True", "False" or "<unset>"."""
    if value is None:
        return "<unset>"
    return "True" if value else "False"
