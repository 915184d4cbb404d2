"""Objects that a plan of restore_plan.py leaves as they are, with the reason, and fields that stay.

left_alone      a controller makes the object, again and again.
made_once       its maker makes it when it starts, and not again.
lost            it cannot come back as it was.
finished        it has done its work.
told            fields that no request can set; a plan tells their former values.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.history.restore_rules import (
    LEFT_KINDS,
    LEFT_MARKS,
    LEFT_NAMES,
    MADE_ONCE,
    NODE,
    TOLD_FIELDS,
)
from kubechronicle.api.values.objects import Object

IN_DELETION: Final = "it was being deleted"


def told(live: Object, was: Object) -> str:
    """Return the fields of a present object that differ and stay as they are; "" if there are none."""
    group, kind = str(was.get("apiVersion", "")).rpartition("/")[0], was.get("kind", "")
    found = []
    for path in TOLD_FIELDS.get((group, kind), ()):
        before, present = _at(was, path), _at(live, path)
        if before and before != present:
            found.append(f"{'.'.join(path)} was {before}, and is {present or 'not set'}")
    return "; ".join(found)


def _at(found: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def left_alone(found: Object, *, controlled: bool = False) -> str:
    """Return the reason not to restore an object: its controller makes it. "" if there is none.

    ``controlled``: that an owner controls it is none.
    """
    metadata = found["metadata"]
    group = str(found.get("apiVersion", "")).rpartition("/")[0]
    kind, name = found.get("kind", ""), metadata["name"]
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller") and not controlled:
            return f"{owner.get('kind')}/{owner.get('name')} makes it"
    if (group, kind) in LEFT_KINDS:
        return LEFT_KINDS[group, kind]
    for where, mark, value, why in LEFT_MARKS:
        if (metadata.get(where) or {}).get(mark) is not None and value in ("", metadata[where][mark]):
            return why
    if (kind, metadata.get("namespace", ""), name) in LEFT_NAMES or (kind, "*", name) in LEFT_NAMES:
        return "the server makes it"
    return ""


def made_once(found: Object) -> str:
    """Return the reason to keep an object as it is, and not to make a node: its maker makes it, but only at its start.

    The default roles of another version differ. "": there is none. A person's own changes of it may be undone.
    """
    metadata = found["metadata"]
    if (str(found.get("apiVersion", "")).rpartition("/")[0], found.get("kind", "")) == NODE:
        return "its kubelet makes it"
    label, value = MADE_ONCE
    return "the server makes it" if (metadata.get("labels") or {}).get(label) == value else ""


def lost(was: Object, *, controlled: bool = False) -> str:
    """Return the reason not to restore a past object, "" if there is none. ``controlled``: as in ``left_alone``."""
    return left_alone(was, controlled=controlled) or (IN_DELETION if was["metadata"].get("deletionTimestamp") else "")


def finished(was: Object) -> str:
    """Return the reason not to recreate a finished object, "" if there is none."""
    status = was.get("status") or {}
    if was.get("kind") == "Job" and any(
        each.get("type") in ("Complete", "Failed") and each.get("status") == "True"
        for each in status.get("conditions") or ()
    ):
        return "it had finished; made again, it would run again"
    if was.get("kind") == "Pod" and status.get("phase") in ("Succeeded", "Failed"):
        return "it had finished; made again, it would run again"
    return ""
