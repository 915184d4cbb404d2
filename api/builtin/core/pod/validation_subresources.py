"""Validation of the subresources that change a pod's spec: ephemeralcontainers and resize."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubechronicle.api.builtin.common.checks import MIRROR
from kubechronicle.api.builtin.common.go_shapes import difference, record
from kubechronicle.api.builtin.core.pod.defaults import qos_class
from kubechronicle.api.builtin.core.pod.options import USUAL, PodOptions
from kubechronicle.api.builtin.core.pod.validation import metadata_and_spec
from kubechronicle.api.errors.field_errors import Cause, forbidden, go_quote, invalid_value
from kubechronicle.api.values import quantity
from kubechronicle.api.values.objects import Object

NO_FIELD: Final = "[]"
"""Field path that Kubernetes prints for a cause about the whole pod."""


def ephemeral_containers_update(new: Object, old: Object, options: PodOptions = USUAL) -> list[Cause]:
    """Check that ephemeral containers are only added, not changed or removed."""
    if MIRROR in (old["metadata"].get("annotations") or {}):
        return [forbidden(NO_FIELD, "static pods do not support ephemeral containers")]
    causes = metadata_and_spec(new, options)
    wanted = {each.get("name"): each for each in new["spec"].get("ephemeralContainers") or ()}
    field = "spec.ephemeralContainers"
    for each in old["spec"].get("ephemeralContainers") or ():
        name = each.get("name", "")
        if name not in wanted:
            causes.append(forbidden(field, f"existing ephemeral containers {go_quote(name)} may not be removed\n"))
        elif wanted[name] != each:
            shown = [record(one, "EphemeralContainer") for one in (each, wanted[name])]
            detail = f"existing ephemeral containers {go_quote(name)} may not be changed\n{difference(*shown)}"
            causes.append(forbidden(field, detail))
    return causes


# -- resize -----------------------------------------------------------------------------------------------------------

_RESIZABLE: Final = ("cpu", "memory")


def resize(new: Object, old: Object, options: PodOptions = USUAL) -> list[Cause]:
    """Check a resize: CPU and memory of the pod and its containers may change within the QoS class."""
    if MIRROR in (old["metadata"].get("annotations") or {}):
        return [forbidden(NO_FIELD, "static pods cannot be resized")]
    spec, held = new["spec"], old["spec"]
    if (held.get("os") or {}).get("name") == "windows":
        return [forbidden(NO_FIELD, "windows pods cannot be resized")]
    causes = metadata_and_spec(new, options)
    former, present = (qos_class(each, empty_decide=not options.amounts_decide) for each in (held, spec))
    if ((old.get("status") or {}).get("qosClass") or former) != present:
        detail = "Pod QOS Class may not change as a result of resizing"
        causes.append(invalid_value("spec", (new.get("status") or {}).get("qosClass", ""), detail))
    for each in (old.get("status") or {}).get("containerStatuses") or ():
        if (each.get("state") or {}).get("running") is not None:
            if each.get("resources") is None:
                causes.append(forbidden("spec", "Pod running on node without support for resize"))
            break
    if not options.resized_as_a_whole and (_has_amounts(spec.get("resources")) or _has_amounts(held.get("resources"))):
        return [*causes, forbidden(NO_FIELD, _NOT_AS_A_WHOLE)]
    causes += _pod_level_resize(spec.get("resources"), held.get("resources"))
    if (old.get("status") or {}).get("nodeAllocatableResourceClaimStatuses"):
        causes.append(forbidden("spec", "pods with node allocatable resource claims cannot be resized"))
    moved = _same_containers(spec, held)
    if moved:
        return causes + moved
    for group in ("initContainers", "containers"):
        for index, (wanted, present) in enumerate(zip(spec.get(group) or (), held.get(group) or (), strict=True)):
            path = f"spec.{group}[{index}].resources"
            if group == "initContainers" and not (options.resized_init_containers or _is_sidecar(present)):
                continue
            causes += _removed_amounts(wanted.get("resources"), present.get("resources"), path, "resource")
    for wanted, present in zip(spec.get("containers") or (), held.get("containers") or (), strict=True):
        if _resized(wanted, present) != _with_plain_amounts(present):
            causes.append(forbidden("spec", _ONLY_AMOUNTS))
    pairs = zip(spec.get("initContainers") or (), held.get("initContainers") or (), strict=True)
    for index, (wanted, present) in enumerate(pairs):
        if options.resized_init_containers or _is_sidecar(wanted):
            causes += _init_container_resize(wanted, present, f"spec.initContainers[{index}]")
        elif wanted != present:
            causes.append(forbidden("spec", "resources for non-sidecar init containers are immutable"))
    causes += _volume_resize(spec.get("volumes") or (), held.get("volumes") or ())
    if not causes and (spec.get("resources") is None) != (held.get("resources") is None):
        causes += [] if _has_amounts(spec.get("resources")) else [forbidden("spec", _ONLY_AMOUNTS)]
    return causes


_NOT_AS_A_WHOLE: Final = (
    "resize of pods with pod-level resources is forbidden when InPlacePodLevelResourcesVerticalScalingEnabled feature "
    "gate is disabled"
)
_ONLY_AMOUNTS: Final = "only cpu and memory resources are mutable"


def _has_amounts(resources: Object | None) -> bool:
    return bool(resources and (resources.get("requests") or resources.get("limits")))


def _pod_level_resize(wanted: Object | None, present: Object | None) -> list[Cause]:
    """Check a resize of the pod as a whole."""
    if not _has_amounts(wanted) and not _has_amounts(present):
        return []
    if wanted is None:
        return [forbidden("spec.resources", "pod-level resources cannot be removed")]
    causes = [] if present is None else _removed_amounts(wanted, present, "spec.resources", "pod-level resource")
    masked = _masked(wanted, present or {})
    if wanted.get("claims"):
        masked["claims"] = wanted["claims"]
    held = _plain_amounts(present or {})
    if (present or {}).get("claims"):
        held["claims"] = (present or {})["claims"]
    if masked != held:
        causes.append(forbidden("spec", f"{_ONLY_AMOUNTS} at pod-level"))
    return causes


def _is_sidecar(container: Object) -> bool:
    """Tell whether an init container runs beside the containers."""
    return bool(container.get("restartPolicy") == "Always")


def _init_container_resize(wanted: Object, present: Object, field: str) -> list[Cause]:
    causes: list[Cause] = []
    if _resized(wanted, present) != _with_plain_amounts(present):
        detail = "only cpu and memory resources for init or sidecar containers are mutable"
        causes.append(forbidden(field, detail))
    if not _is_sidecar(wanted) and _with_plain_amounts(wanted) != _with_plain_amounts(present):
        detail = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
        policies = wanted.get("resizePolicy") or ()
        causes += [forbidden(field, detail) for each in policies if each.get("restartPolicy") == "RestartContainer"]
    return causes


def _volume_resize(wanted: Sequence[Object], present: Sequence[Object]) -> list[Cause]:
    """Check that only the size limits of volumes in memory change. Without its gate, a resize changes no volume."""
    if len(wanted) != len(present):
        return [forbidden("spec.volumes", "volumes may not be added or removed on resize")]
    causes: list[Cause] = []
    for index, (new, old) in enumerate(zip(wanted, present, strict=True)):
        path = f"spec.volumes[{index}]"
        after, before = new.get("emptyDir"), old.get("emptyDir")
        if new.get("name") != old.get("name"):
            causes.append(forbidden(f"{path}.name", "volumes may not be renamed or reordered on resize"))
        elif after is None or before is None:
            causes += [] if new == old else [forbidden(path, _ONLY_LIMITS)]
        elif {**new, "emptyDir": {**after, "sizeLimit": None}} != {**old, "emptyDir": {**before, "sizeLimit": None}}:
            causes.append(forbidden(path, _ONLY_LIMITS))
        else:
            causes += _limit_change(after, before, f"{path}.emptyDir.sizeLimit")
    return causes


_ONLY_LIMITS: Final = "only sizeLimit of memory-backed emptyDir volumes is mutable on resize"


def _limit_change(after: Object, before: Object, path: str) -> list[Cause]:
    limit, former = (quantity.value_of(each.get("sizeLimit") or 0) for each in (after, before))
    if bool(limit) != bool(former):
        return [forbidden(path, "adding or removing sizeLimit on an existing volume is not allowed")]
    if limit != former and after.get("medium") != "Memory":
        return [forbidden(path, "sizeLimit is only mutable for memory-backed emptyDir volumes")]
    return []


def _same_containers(spec: Object, held: Object) -> list[Cause]:
    causes: list[Cause] = []
    for group in ("containers", "initContainers"):
        wanted, present = spec.get(group) or (), held.get(group) or ()
        if len(wanted) != len(present):
            causes.append(forbidden(f"spec.{group}", f"{group} may not be added or removed on resize"))
            continue
        causes += [
            forbidden(f"spec.{group}[{index}].name", f"{group} may not be renamed or reordered on resize")
            for index, (one, other) in enumerate(zip(wanted, present, strict=True))
            if one.get("name") != other.get("name")
        ]
    return causes


def _removed_amounts(wanted: Object | None, present: Object | None, field: str, what: str) -> list[Cause]:
    after, before = wanted or {}, present or {}
    return [
        forbidden(f"{field}.{part}", f"{what} {part} cannot be removed")
        for part in ("requests", "limits")
        if (before.get(part) or {}).keys() - (after.get(part) or {}).keys()
    ]


_PARTS: Final = ("requests", "limits")


def _plain_amounts(resources: Object) -> Object:
    """Return requests and limits as numbers, so that spellings and empty maps make no difference."""
    amounts = {part: resources[part] for part in _PARTS if resources.get(part)}
    return {part: {name: quantity.value_of(value) for name, value in held.items()} for part, held in amounts.items()}


def _masked(wanted: Object, present: Object) -> Object:
    """Return the wanted amounts, with those that a resize may change as they are at present."""
    after, before = _plain_amounts(wanted), _plain_amounts(present)
    masked: Object = {}
    for part in _PARTS:
        amounts = {name: value for name, value in after.get(part, {}).items() if name not in _RESIZABLE}
        amounts |= {name: value for name, value in before.get(part, {}).items() if name in _RESIZABLE}
        if amounts:
            masked[part] = amounts
    return masked


def _resized(wanted: Object, present: Object) -> Object:
    """Return the wanted container with masked amounts. It has no claims: Kubernetes loses them here."""
    return {**wanted, "resources": _masked(wanted.get("resources") or {}, present.get("resources") or {})}


def _with_plain_amounts(container: Object) -> Object:
    resources = container.get("resources") or {}
    plain = _plain_amounts(resources)
    if resources.get("claims"):
        plain["claims"] = resources["claims"]
    return {**container, "resources": plain}
