"""Default classes: those with an annotation that marks them."""

from __future__ import annotations

from collections.abc import Sequence

from kubechronicle.eventlog.entries import Entry


def newest_default(entries: Sequence[Entry], annotations: Sequence[str]) -> str:
    """Return the name of the newest entry with one of the annotations "true", or "". Ties are broken by name.

    Creation times are RFC 3339 in UTC and compare as text.
    """
    marked: list[tuple[str, str]] = []
    texts = [name.encode() for name in annotations]
    for entry in entries:
        if not any(text in entry.json for text in texts):
            continue  # saves parsing the object
        meta = entry.object()["metadata"]
        present = meta.get("annotations") or {}
        if any(present.get(name) == "true" for name in annotations):
            marked.append((meta.get("creationTimestamp", ""), meta["name"]))
    if not marked:
        return ""
    newest = max(created for created, _ in marked)
    return min(name for created, name in marked if created == newest)
