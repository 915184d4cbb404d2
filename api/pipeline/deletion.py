"""What a deletion does to an object: gone at once, or marked and waited for.

Pure: the stored object, the options, the kind's rules and the time go in; a decision comes out. After apiserver's
``rest.BeforeDelete`` and the registry store's handling of finalizers.

An object is marked (deletionTimestamp, deletionGracePeriodSeconds) while finalizers remain or, for Pods on a node,
while the grace period runs. A grace period may only be shortened. When the last finalizer goes and no grace period is
left, the update that removed it ends the object (``ends_with_update``).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kubechronicle.api.errors import status
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.strategy.strategy import ORPHAN, UNSUPPORTED, Strategy
from kubechronicle.api.values.objects import Object

ORPHAN_FINALIZER: Final = "orphan"
JOBS: Final = "jobs.batch"
_JOBS_LEAVE_PODS: Final = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or "
    "set propagationPolicy=Orphan to suppress this warning"
)
FOREGROUND_FINALIZER: Final = "foregroundDeletion"


class Fate(enum.Enum):
    """What becomes of the object. MARKED_GONE: the mark is a change of its own, and then the object goes."""

    GONE = "gone"
    MARKED = "marked"
    MARKED_GONE = "marked-gone"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Decision:
    """``object`` is the state to store (MARKED, MARKED_GONE), or the present one (GONE, UNCHANGED)."""

    fate: Fate
    object: Object


def check_preconditions(obj: Mapping[str, Any], options: DeleteOptions) -> None:
    """Raise 409 if the object is not the one, or not in the state, the client speaks of."""
    metadata = obj["metadata"]
    kind = status_kind(obj)
    uid, revision = options.precondition_uid, options.precondition_resource_version
    if uid is not None and uid != metadata.get("uid"):
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record ({metadata.get('uid')}). "
            "The object might have been deleted and then recreated"
        )
        raise status.conflict(kind, metadata.get("name", ""), why)
    if revision is not None and revision != metadata.get("resourceVersion"):
        why = (
            f"the ResourceVersion in the precondition ({revision}) does not match the ResourceVersion in record "
            f"({metadata.get('resourceVersion')}). The object might have been modified"
        )
        raise status.conflict(kind, metadata.get("name", ""), why)


def status_kind(obj: Mapping[str, Any]) -> str:
    """Return "Kind" or "Kind.group": Kubernetes names the kind where a failed precondition wants a resource."""
    group, slash, _ = obj["apiVersion"].partition("/")
    return f"{obj['kind']}.{group}" if slash else str(obj["kind"])


def decide(old: Mapping[str, Any], options: DeleteOptions, strategy: Strategy, *, now: str) -> Decision:
    """Return what a deletion does. ``old`` is not changed. Raises 409 for failed preconditions."""
    check_preconditions(old, options)
    obj: Object = copy_object(old)
    metadata = obj["metadata"]
    period = options.grace_period_seconds
    if period is not None and period < 0:
        period = 1
    graceful = False
    if strategy.graceful:
        if "deletionTimestamp" in metadata:
            running = max(metadata.get("deletionGracePeriodSeconds") or 0, 0)
            if running:
                if period is None or period >= running:
                    return Decision(Fate.UNCHANGED, copy_object(old))
                period = _shorten(metadata, running, period, now)
                graceful = True
        else:
            period = _pod_grace_period(obj, period)
            _mark(metadata, period, now, later=period)
            graceful = True
    _set_dependents_finalizers(metadata, options, strategy)
    if not metadata.get("finalizers"):
        metadata.pop("finalizers", None)
        if not graceful:
            return Decision(Fate.GONE, copy_object(old))
        return Decision(Fate.MARKED if period else Fate.MARKED_GONE, obj)
    if not graceful:
        _mark(metadata, 0, now)
    fate = Fate.UNCHANGED if obj == old else Fate.MARKED
    return Decision(fate, obj)


def _pod_grace_period(pod: Object, period: int | None) -> int:
    """Return the seconds a Pod has: none unless it is on a node and not finished."""
    spec = pod.get("spec") or {}
    if period is None:
        period = spec.get("terminationGracePeriodSeconds") or 0  # always there: it is defaulted
    finished = (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")
    if not spec.get("nodeName") or finished:
        return 0
    return 1 if period < 0 else period


def _mark(metadata: Object, period: int, now: str, *, later: int = 0) -> None:
    """Set the marks of a deletion that begins now; one that began before only loses what is left of its time."""
    begun = "deletionTimestamp" in metadata
    if not begun and metadata.get("generation", 0) > 0:
        metadata["generation"] += 1
    if not begun or metadata["deletionTimestamp"] > now:
        metadata["deletionTimestamp"] = seconds_after(now, later)
    metadata["deletionGracePeriodSeconds"] = period


def _shorten(metadata: Object, running: int, period: int, now: str) -> int:
    moved = seconds_after(metadata["deletionTimestamp"], period - running)
    if moved < now:
        # The time is over already. Whoever asked for a graceful end still gets one: the node has the last word.
        moved = now
        period = 1 if period else 0
    metadata["deletionTimestamp"] = moved
    metadata["deletionGracePeriodSeconds"] = period
    return period


def seconds_after(moment: str, seconds: int) -> str:
    """Return a time of whole seconds, moved. Example: ("2026-01-01T00:00:00Z", 30) -> "2026-01-01T00:00:30Z"."""
    if not seconds:
        return moment
    moved = datetime.fromisoformat(moment).astimezone(UTC) + timedelta(seconds=seconds)
    return moved.strftime("%Y-%m-%dT%H:%M:%SZ")


def _set_dependents_finalizers(metadata: Object, options: DeleteOptions, strategy: Strategy) -> None:
    """Put down, as finalizers for the garbage collector, what is to become of the dependents.

    The options decide, then a finalizer that is there already, then the kind.
    """
    if strategy.dependents == UNSUPPORTED:
        return
    present = metadata.get("finalizers") or []
    orphan = foreground = False
    if options.orphan_dependents is not None:
        orphan = options.orphan_dependents
    elif options.propagation_policy is not None:
        orphan = options.propagation_policy == "Orphan"
        foreground = options.propagation_policy == "Foreground"
    elif ORPHAN_FINALIZER in present or FOREGROUND_FINALIZER in present:
        orphan = next(name for name in present if name in (ORPHAN_FINALIZER, FOREGROUND_FINALIZER)) == ORPHAN_FINALIZER
        foreground = not orphan
    else:
        orphan = strategy.dependents == ORPHAN
    wanted = [name for name in present if name not in (ORPHAN_FINALIZER, FOREGROUND_FINALIZER)]
    wanted += [ORPHAN_FINALIZER] * orphan + [FOREGROUND_FINALIZER] * foreground
    if set(wanted) != set(present):
        metadata["finalizers"] = wanted


def warnings(resource: str, options: DeleteOptions) -> list[str]:
    """Return what to tell of a deletion that says nothing about dependents where Kubernetes would rather be told."""
    decided = options.propagation_policy is not None or options.orphan_dependents is not None
    return [_JOBS_LEAVE_PODS] if resource == JOBS and not decided else []


def ends_with_update(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Tell whether this update removes the last thing a deletion waited for."""
    before = old["metadata"]
    return (
        "deletionTimestamp" in before
        and not new["metadata"].get("finalizers")
        and not before.get("deletionGracePeriodSeconds")
    )


# -- namespaces -------------------------------------------------------------------------------------------------------


def decide_namespace(old: Mapping[str, Any], options: DeleteOptions, *, now: str) -> Decision:
    """A namespace is marked and becomes Terminating; it goes when neither spec nor metadata hold finalizers.

    A first deletion only marks, even when nothing is left to wait for; a second one then ends it.
    """
    check_preconditions(old, options)
    obj: Object = copy_object(old)
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata:
        metadata["deletionTimestamp"] = now
        obj.setdefault("status", {})["phase"] = "Terminating"
        if metadata.get("generation", 0) > 0:
            metadata["generation"] += 1
        return Decision(Fate.MARKED, obj)
    if namespace_is_done(obj):
        return Decision(Fate.GONE, obj)
    return Decision(Fate.UNCHANGED, obj)


def namespace_is_done(obj: Mapping[str, Any]) -> bool:
    """Tell whether a namespace that is being deleted has nothing left to wait for."""
    waits = (obj.get("spec") or {}).get("finalizers") or obj["metadata"].get("finalizers")
    return not waits and "deletionTimestamp" in obj["metadata"]
