"""The effect of a deletion: the object is removed at once, or marked for deletion.

Pure: from the stored object, the options, the kind's rules and the time to a decision. After apiserver's
``rest.BeforeDelete`` and the registry store's handling of finalizers.

An object is marked (deletionTimestamp, deletionGracePeriodSeconds) while finalizers remain or, for Pods on a node,
while the grace period runs. A grace period may only be shortened. The update that removes the last finalizer also
removes the object, if no grace period is left (``ends_with_update``).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kubechronicle.api.builtin.apiextensions import conditions
from kubechronicle.api.errors import status
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.strategy.strategy import ORPHAN, UNSUPPORTED, Strategy
from kubechronicle.api.values.objects import Object

ORPHAN_FINALIZER: Final = "orphan"
JOBS: Final = "jobs.batch"
DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"
_JOBS_LEAVE_PODS: Final = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or "
    "set propagationPolicy=Orphan to suppress this warning"
)
FOREGROUND_FINALIZER: Final = "foregroundDeletion"


class Fate(enum.Enum):
    """The fate of the object. MARKED_GONE: the mark is a change of its own, followed by the removal."""

    GONE = "gone"
    MARKED = "marked"
    MARKED_GONE = "marked-gone"
    UNCHANGED = "unchanged"


def is_over(obj: Object) -> bool:
    """Tell whether the removal of a marked object follows at once: nothing remains to wait for."""
    metadata = obj["metadata"]
    return metadata.get("deletionGracePeriodSeconds") == 0 and not metadata.get("finalizers")


@dataclass(frozen=True, slots=True)
class DeletionDecision:
    """``object`` is the state to store (MARKED, MARKED_GONE), or the present one (GONE, UNCHANGED)."""

    fate: Fate
    object: Object


def check_preconditions(obj: Mapping[str, Any], options: DeleteOptions) -> None:
    """Raise 409 if the object does not have the client's uid or resourceVersion."""
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
    """Return "Kind" or "Kind.group": Kubernetes names the kind, not the resource, in a failed precondition."""
    group, slash, _ = obj["apiVersion"].partition("/")
    return f"{obj['kind']}.{group}" if slash else str(obj["kind"])


def decide(old: Mapping[str, Any], options: DeleteOptions, strategy: Strategy, *, now: str) -> DeletionDecision:
    """Return the decision of a deletion. ``old`` is not changed. Raises 409 for failed preconditions."""
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
                    return DeletionDecision(Fate.UNCHANGED, copy_object(old))
                period = _shorten(metadata, running, period, now)
                graceful = True
        else:
            period = _pod_grace_period(obj, period)
            _mark(metadata, period, now, later=period)
            graceful = True
    _set_dependents_finalizers(metadata, options, strategy.dependents)
    if not metadata.get("finalizers"):
        metadata.pop("finalizers", None)
        if not graceful:
            return DeletionDecision(Fate.GONE, copy_object(old))
        return DeletionDecision(Fate.MARKED if period else Fate.MARKED_GONE, obj)
    if not graceful:
        _mark(metadata, 0, now)
    fate = Fate.UNCHANGED if obj == old else Fate.MARKED
    return DeletionDecision(fate, obj)


def _pod_grace_period(pod: Object, period: int | None) -> int:
    """Return the grace period of a Pod in seconds: 0 unless it is on a node and not finished."""
    spec = pod.get("spec") or {}
    if period is None:
        period = spec.get("terminationGracePeriodSeconds") or 0  # present: it has a default
    finished = (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")
    if not spec.get("nodeName") or finished:
        return 0
    return 1 if period < 0 else period


def _mark(metadata: Object, period: int, now: str, *, later: int = 0) -> None:
    """Mark the object for deletion; shorten the remaining time of an earlier mark."""
    begun = "deletionTimestamp" in metadata
    if not begun and metadata.get("generation", 0) > 0:
        metadata["generation"] += 1
    if not begun or metadata["deletionTimestamp"] > now:
        metadata["deletionTimestamp"] = seconds_after(now, later)
    metadata["deletionGracePeriodSeconds"] = period


def _shorten(metadata: Object, running: int, period: int, now: str) -> int:
    moved = seconds_after(metadata["deletionTimestamp"], period - running)
    if moved < now:
        # The time is over, but a graceful deletion stays graceful: the node removes the pod.
        moved = now
        period = 1 if period else 0
    metadata["deletionTimestamp"] = moved
    metadata["deletionGracePeriodSeconds"] = period
    return period


def seconds_after(moment: str, seconds: int) -> str:
    """Add seconds to a time. Example: ("2026-01-01T00:00:00Z", 30) -> "2026-01-01T00:00:30Z"."""
    if not seconds:
        return moment
    moved = datetime.fromisoformat(moment).astimezone(UTC) + timedelta(seconds=seconds)
    return moved.strftime("%Y-%m-%dT%H:%M:%SZ")


def _set_dependents_finalizers(metadata: Object, options: DeleteOptions, default: str) -> None:
    """Record the fate of the dependents as finalizers for the garbage collector.

    The options decide, then an existing finalizer, then the kind.
    """
    if default == UNSUPPORTED:
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
        orphan = default == ORPHAN
    wanted = [name for name in present if name not in (ORPHAN_FINALIZER, FOREGROUND_FINALIZER)]
    wanted += [ORPHAN_FINALIZER] * orphan + [FOREGROUND_FINALIZER] * foreground
    if set(wanted) != set(present):
        metadata["finalizers"] = wanted


def warnings(resource: str, options: DeleteOptions) -> list[str]:
    """Return Kubernetes' warning about a deletion that should name its propagation policy."""
    decided = options.propagation_policy is not None or options.orphan_dependents is not None
    return [_JOBS_LEAVE_PODS] if resource == JOBS and not decided else []


def ends_with_update(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Return True if this update removes the last obstacle of a deletion."""
    before = old["metadata"]
    return (
        "deletionTimestamp" in before
        and not new["metadata"].get("finalizers")
        and not before.get("deletionGracePeriodSeconds")
    )


# -- namespaces -------------------------------------------------------------------------------------------------------


def decide_namespace(old: Mapping[str, Any], options: DeleteOptions, *, now: str) -> DeletionDecision:
    """Mark a namespace, which becomes Terminating. It is removed when neither spec nor metadata have finalizers.

    The first deletion only marks, even without finalizers; the second one then removes it.
    """
    _check_own_preconditions(old, options, "namespaces")
    obj: Object = copy_object(old)
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata:
        _set_finalizers_of_namespace(metadata, options)
        if not metadata.get("finalizers"):
            metadata.pop("finalizers", None)
        metadata["deletionTimestamp"] = now
        obj.setdefault("status", {})["phase"] = "Terminating"
        if metadata.get("generation", 0) > 0:
            metadata["generation"] += 1
        return DeletionDecision(Fate.MARKED, obj)
    if namespace_is_done(obj):
        return DeletionDecision(Fate.GONE, obj)
    return DeletionDecision(Fate.UNCHANGED, obj)


def _set_finalizers_of_namespace(metadata: Object, options: DeleteOptions) -> None:
    """Record the fate of the dependents as for other kinds, but ``orphanDependents: false`` is Foreground.

    Without options, the finalizers stay.
    """
    if options.orphan_dependents is not None:
        policy = "Orphan" if options.orphan_dependents else "Foreground"
    elif options.propagation_policy is not None:
        policy = options.propagation_policy
    else:
        return
    wanted = {ORPHAN_FINALIZER: policy == "Orphan", FOREGROUND_FINALIZER: policy == "Foreground"}
    present = metadata.get("finalizers") or []
    kept = [name for name in present if wanted.get(name, True)]
    metadata["finalizers"] = kept + [name for name, needed in wanted.items() if needed and name not in kept]


def _check_own_preconditions(old: Mapping[str, Any], options: DeleteOptions, resource: str) -> None:
    """Raise 409 in the words of a resource's own store, which names the resource instead of the kind."""
    metadata = old["metadata"]
    for word, wanted, name in (
        ("UID", options.precondition_uid, "uid"),
        ("ResourceVersion", options.precondition_resource_version, "resourceVersion"),
    ):
        if wanted is not None and wanted != metadata.get(name):
            held = f"{word} in precondition: {wanted}, {word} in object meta: {metadata.get(name)}"
            raise status.conflict(resource, metadata.get("name", ""), f"Precondition failed: {held}")


def namespace_is_done(obj: Mapping[str, Any]) -> bool:
    """Return True if a terminating namespace has no finalizers left."""
    waits = (obj.get("spec") or {}).get("finalizers") or obj["metadata"].get("finalizers")
    return not waits and "deletionTimestamp" in obj["metadata"]


# -- definitions of custom resources ----------------------------------------------------------------------------------


def decide_definition(
    old: Mapping[str, Any], options: DeleteOptions, strategy: Strategy, *, now: str
) -> DeletionDecision:
    """Mark a CustomResourceDefinition, which keeps a finalizer until its objects are deleted (actors/definitions/).

    The first deletion only marks, whatever the options; a later one is that of any object.
    """
    if "deletionTimestamp" in old["metadata"]:
        return decide(old, options, strategy, now=now)
    _check_own_preconditions(old, options, DEFINITIONS)
    obj: Object = copy_object(old)
    metadata = obj["metadata"]
    metadata["deletionTimestamp"] = now
    finalizers = metadata.get("finalizers") or []
    if conditions.CLEANUP_FINALIZER not in finalizers:
        metadata["finalizers"] = [*finalizers, conditions.CLEANUP_FINALIZER]
    obj["status"] = conditions.with_condition(obj.get("status") or {}, "Terminating", conditions.PENDING, now=now)
    return DeletionDecision(Fate.MARKED, obj)
