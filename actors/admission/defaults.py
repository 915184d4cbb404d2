"""The default among classes that an annotation marks as such."""

from __future__ import annotations

from collections.abc import Sequence

from kubechronicle.eventlog.entries import Entry


def newest_default(entries: Sequence[Entry], annotations: Sequence[str]) -> str:
    """The name of the newest entry with one of the annotations "true", of equally new ones the first by name; "" if
    there is none. Creation times are RFC 3339 in UTC and compare as text."""
    found: list[tuple[str, str]] = []
    for entry in entries:
        meta = entry.object()["metadata"]
        given = meta.get("annotations") or {}
        if any(given.get(name) == "true" for name in annotations):
            found.append((meta.get("creationTimestamp", ""), meta["name"]))
    if not found:
        return ""
    newest = max(created for created, _ in found)
    return min(name for created, name in found if created == newest)
