"""Validation of pods as a life: their creation, what an update may change, and what their subresources may."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubechronicle.api import quantity
from kubechronicle.api.builtin.checks import (
    MAX_INT32,
    MIRROR,
    dns_subdomain,
    dual_stack,
    immutable,
    in_range,
    ip,
    parse_ip,
)
from kubechronicle.api.builtin.hooks import qos_class
from kubechronicle.api.builtin.validation_containers import image_is_trimmed
from kubechronicle.api.builtin.validation_pod_spec import pod_spec
from kubechronicle.api.builtin.validation_scheduling import REQUIRED
from kubechronicle.api.builtin.validation_security import containers_of
from kubechronicle.api.encoding import copy_object
from kubechronicle.api.field_errors import Cause, duplicate, forbidden, go_quote, invalid_value, required
from kubechronicle.api.metadata import validate_annotations, validate_labels

Object = dict[str, Any]

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_COST: Final = re.compile(r"(0|-?[1-9][0-9]*)\Z")


def pod(obj: Object) -> list[Cause]:
    """The rules of a pod that is created."""
    spec = obj["spec"]
    causes = _metadata_and_spec(obj)
    if spec.get("ephemeralContainers"):
        causes.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        causes.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return causes


def _metadata_and_spec(obj: Object) -> list[Cause]:
    spec, metadata = obj["spec"], obj["metadata"]
    causes: list[Cause] = []
    if metadata.get("annotations"):
        causes += _annotations(metadata["annotations"], spec, "metadata.annotations")
    causes += pod_spec(spec, "spec", metadata)
    if not spec.get("serviceAccountName"):
        for index, volume in enumerate(spec.get("volumes") or ()):
            for position, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
                if source.get("serviceAccountToken") is not None:
                    path = f"spec.volumes[{index}].projected.sources[{position}].serviceAccountToken"
                    causes.append(forbidden(path, "must not be specified when serviceAccountName is not set"))
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            causes += image_is_trimmed(container, f"spec.{group}[{index}]")
    return causes


def _annotations(annotations: Mapping[str, str], spec: Object, field: str) -> list[Cause]:
    """The annotations that mean something to the server."""
    causes: list[Cause] = []
    if MIRROR in annotations and not spec.get("nodeName"):
        detail = "must set spec.nodeName if mirror pod annotation is set"
        causes.append(invalid_value(f"{field}[{MIRROR}]", annotations[MIRROR], detail))
    cost = annotations.get(DELETION_COST)
    if cost is not None and not (_COST.match(cost) and -MAX_INT32 - 1 <= int(cost) <= MAX_INT32):
        causes.append(invalid_value(f"{field}[{DELETION_COST}]", cost, "must be a 32bit integer"))
    for key, profile in annotations.items():
        if not key.startswith(APP_ARMOR):
            continue
        name = key.removeprefix(APP_ARMOR)
        if all(container.get("name") != name for container, _ in containers_of(spec, "")):
            causes.append(invalid_value(f"{field}[{key}]", name, "container not found"))
        if profile not in ("", "runtime/default", "unconfined") and not profile.startswith("localhost/"):
            detail = f"invalid AppArmor profile name: {go_quote(profile)}"
            causes.append(invalid_value(f"{field}[{key}]", profile, detail))
    return causes


def pod_template(template: Object, field: str) -> list[Cause]:
    """The rules of a pod template's labels, annotations and spec."""
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    causes = validate_labels(metadata.get("labels") or {}, f"{field}.labels")
    if metadata.get("annotations"):
        causes += validate_annotations(metadata["annotations"], f"{field}.annotations")
        causes += _annotations(metadata["annotations"], spec, f"{field}.annotations")
    causes += pod_spec(spec, f"{field}.spec")
    if spec.get("ephemeralContainers"):
        detail = "ephemeral containers not allowed in pod template"
        causes.append(forbidden(f"{field}.spec.ephemeralContainers", detail))
    return causes


# -- updates ----------------------------------------------------------------------------------------------------------

POD_UPDATE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_CHANGEABLE: Final = ("activeDeadlineSeconds", "tolerations", "schedulingGates")


def pod_update(new: Object, old: Object) -> list[Cause]:
    """Of a pod's spec only images, the deadline, more tolerations and fewer gates may change."""
    causes = _metadata_and_spec(new) + _annotations_stay(new, old)
    spec, held = new["spec"], old["spec"]
    for group in ("containers", "initContainers"):
        wanted, present = spec.get(group) or (), held.get(group) or ()
        if len(wanted) != len(present):
            return [*causes, forbidden(f"spec.{group}", "pod updates may not add or remove containers")]
        for index, container in enumerate(wanted):
            if not container.get("image"):
                causes.append(required(f"spec.{group}[{index}].image"))
            causes += image_is_trimmed(container, f"spec.{group}[{index}]")
    deadline, before = spec.get("activeDeadlineSeconds"), held.get("activeDeadlineSeconds")
    path = "spec.activeDeadlineSeconds"
    if deadline is not None:
        found = in_range(deadline, 0, MAX_INT32, path)
        if not found and before is not None and before < deadline:
            found = [invalid_value(path, deadline, "must be less than or equal to previous value")]
        if found:
            return causes + found
    elif before is not None:
        causes.append(invalid_value(path, None, "must not update from a positive integer to nil value"))
    causes += _more_tolerations(spec.get("tolerations") or (), held.get("tolerations") or ())
    causes += _fewer_gates(spec.get("schedulingGates") or (), held.get("schedulingGates") or ())
    return causes if spec == held else causes + _frozen(spec, held)


def _frozen(spec: Object, held: Object) -> list[Cause]:
    causes: list[Cause] = []
    wanted = {name: value for name, value in spec.items() if name not in _CHANGEABLE}
    present = {name: value for name, value in held.items() if name not in _CHANGEABLE}
    for group in ("containers", "initContainers"):
        for part in (wanted, present):
            if group in part:
                part[group] = [{**container, "image": ""} for container in part[group]]
    if present.get("terminationGracePeriodSeconds", 0) < 0 and wanted.get("terminationGracePeriodSeconds") == 1:
        wanted["terminationGracePeriodSeconds"] = present["terminationGracePeriodSeconds"]
    if held.get("schedulingGates"):
        causes += _gated(wanted, present)
    if wanted != present:
        causes.append(forbidden("spec", POD_UPDATE))
    return causes


def _gated(wanted: Object, present: Object) -> list[Cause]:
    """While gates hold it, a pod's choice of nodes may be narrowed. What may change is taken out of both."""
    causes: list[Cause] = []
    selector, before = wanted.pop("nodeSelector", None) or {}, present.pop("nodeSelector", None) or {}
    if any(selector.get(key) != value for key, value in before.items()):
        detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        causes.append(invalid_value("spec.nodeSelector", selector, detail))
    affinity = [dict(part.pop("affinity", None) or {}) for part in (wanted, present)]
    nodes = [part.pop("nodeAffinity", None) or {} for part in affinity]
    if affinity[0] != affinity[1]:
        wanted["affinity"], present["affinity"] = affinity
    terms = [(part.get(REQUIRED) or {}).get("nodeSelectorTerms") or [] for part in nodes]
    path = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
    if not terms[1]:
        return causes
    if len(terms[0]) != len(terms[1]):
        detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        return [*causes, invalid_value(path, terms[0], detail)]
    for index, (term, held) in enumerate(zip(*terms, strict=True)):
        if not _only_adds(term, held):
            detail = "only additions are allowed (no mutations or deletions)"
            causes.append(invalid_value(f"{path}[{index}]", term, detail))
    return causes


def _only_adds(term: Object, held: Object) -> bool:
    parts = [(term.get(name) or [], held.get(name) or []) for name in ("matchExpressions", "matchFields")]
    if not any(before for _, before in parts):
        return not any(after for after, _ in parts)
    return all(after[: len(before)] == before for after, before in parts)


def _annotations_stay(new: Object, old: Object) -> list[Cause]:
    after, before = new["metadata"].get("annotations") or {}, old["metadata"].get("annotations") or {}
    if after == before:
        return []
    causes: list[Cause] = []
    for key in (*before, *(key for key in after if key not in before)):
        if after.get(key) == before.get(key):
            continue
        verb = "remove or update" if key in before else "add"
        if key.startswith(APP_ARMOR):
            causes.append(forbidden(f"metadata.annotations[{key}]", f"may not {verb} AppArmor annotations"))
        elif key == MIRROR:
            causes.append(forbidden(f"metadata.annotations[{key}]", f"may not {verb} mirror pod annotation"))
    return causes


def _more_tolerations(wanted: Sequence[Object], present: Sequence[Object]) -> list[Cause]:
    def without_seconds(toleration: Object) -> Object:
        return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}

    known = [without_seconds(each) for each in wanted]
    if all(without_seconds(each) in known for each in present):
        return []
    return [forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")]


def _fewer_gates(wanted: Sequence[Object], present: Sequence[Object]) -> list[Cause]:
    known = {gate.get("name") for gate in present}
    return [
        forbidden(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'",
        )
        for index, gate in enumerate(wanted)
        if gate.get("name") not in known
    ]


# -- subresources -----------------------------------------------------------------------------------------------------


def pod_status(new: Object, old: Object) -> list[Cause]:
    """A finished container stays finished; addresses are addresses, one of each family."""
    status, held, spec = new.get("status") or {}, old.get("status") or {}, old["spec"]
    causes = _annotations_stay(new, old)
    nominated = status.get("nominatedNodeName")
    if nominated and nominated != held.get("nominatedNodeName"):
        causes += dns_subdomain(nominated, "status.nominatedNodeName")
    causes += immutable("status.qosClass", status.get("qosClass"), held.get("qosClass"))
    sidecars = {each.get("name") for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"}
    policy = spec.get("restartPolicy", "Always")
    for member, kept, never in (
        ("containerStatuses", set(), policy),
        ("initContainerStatuses", sidecars, policy),
        ("ephemeralContainerStatuses", set(), "Never"),
    ):
        causes += _stay_finished(status.get(member) or (), held.get(member) or (), f"status.{member}", never, kept)
    causes += _addresses([each.get("ip", "") for each in status.get("podIPs") or ()], "status.podIPs")
    host_ips = [each.get("ip", "") for each in status.get("hostIPs") or ()]
    if host_ips and host_ips[0] != status.get("hostIP"):
        causes.append(invalid_value("status.hostIPs[0].ip", host_ips[0], "must be equal to `hostIP`"))
    return causes + _addresses(host_ips, "status.hostIPs")


def _stay_finished(
    new: Sequence[Object], old: Sequence[Object], field: str, policy: str, kept: set[Any]
) -> list[Cause]:
    if policy == "Always":
        return []
    causes: list[Cause] = []
    for index, before in enumerate(old):
        ended = (before.get("state") or {}).get("terminated")
        if ended is None or before.get("name") in kept or (ended.get("exitCode", 0) and policy == "OnFailure"):
            continue
        for after in new:
            if after.get("name") == before.get("name") and (after.get("state") or {}).get("terminated") is None:
                detail = "may not be transitioned to non-terminated state"
                causes.append(forbidden(f"{field}[{index}].state", detail))
    return causes


def _addresses(values: list[str], field: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, value in enumerate(values):
        causes += ip(value, f"{field}[{index}]")
    if len(values) < 2 or causes:
        return causes
    parsed = [address for address in map(parse_ip, values) if address is not None]
    if not dual_stack(parsed) or len(values) > 2:
        shown = [{"IP": value} for value in values]
        causes.append(invalid_value(field, shown, "may specify no more than one IP for each IP family"))
    for index, value in enumerate(values):
        if value in values[:index]:
            causes.append(duplicate(f"{field}[{index}]", {"IP": value}))
    return causes


def ephemeral_containers_update(new: Object, old: Object) -> list[Cause]:
    """Containers to look into a running pod may be added, not changed."""
    if MIRROR in (old["metadata"].get("annotations") or {}):
        return [forbidden("", "static pods do not support ephemeral containers")]
    causes = _metadata_and_spec(new)
    wanted = {each.get("name"): each for each in new["spec"].get("ephemeralContainers") or ()}
    for each in old["spec"].get("ephemeralContainers") or ():
        name = each.get("name", "")
        field = "spec.ephemeralContainers"
        if name not in wanted:
            causes.append(forbidden(field, f"existing ephemeral containers {go_quote(name)} may not be removed\n"))
        elif wanted[name] != each:
            causes.append(forbidden(field, f"existing ephemeral containers {go_quote(name)} may not be changed"))
    return causes


_RESIZABLE: Final = ("cpu", "memory")


def resize(new: Object, old: Object) -> list[Cause]:
    """CPU and memory of running containers may change, within the pod's class of service."""
    if MIRROR in (old["metadata"].get("annotations") or {}):
        return [forbidden("", "static pods cannot be resized")]
    if (old["spec"].get("os") or {}).get("name") == "windows":
        return [forbidden("", "windows pods cannot be resized")]
    causes = _metadata_and_spec(new)
    if not any(cause.field.startswith("spec.") for cause in causes):
        before = (old.get("status") or {}).get("qosClass") or qos_class(old["spec"])
        if before != qos_class(new["spec"]):
            detail = "Pod QOS Class may not change as a result of resizing"
            causes.append(invalid_value("spec", (new.get("status") or {}).get("qosClass", ""), detail))
    for group in ("initContainers", "containers"):
        pairs = zip(new["spec"].get(group) or (), old["spec"].get(group) or (), strict=False)
        for index, (wanted, present) in enumerate(pairs):
            if group == "initContainers" and present.get("restartPolicy") != "Always":
                if wanted != present:
                    detail = "resources for non-sidecar init containers are immutable"
                    causes.append(forbidden("spec", detail))
                continue
            path = f"spec.{group}[{index}].resources"
            causes += _container_resize(wanted, present, path)
            if _but_resizable(wanted) != _but_resizable(present):
                which = " for sidecar containers" if group == "initContainers" else ""
                causes.append(forbidden("spec", f"only cpu and memory resources{which} are mutable"))
    return causes


def _container_resize(wanted: Object, present: Object, field: str) -> list[Cause]:
    causes: list[Cause] = []
    after, before = wanted.get("resources") or {}, present.get("resources") or {}
    for part in ("requests", "limits"):
        if (before.get(part) or {}).keys() - (after.get(part) or {}).keys():
            causes.append(forbidden(f"{field}.{part}", f"resource {part} cannot be removed"))
    return causes


def _but_resizable(container: Object) -> Object:
    rest: Object = copy_object(container)
    resources = rest.pop("resources", None) or {}
    rest.pop("resizePolicy", None)
    for part in ("requests", "limits"):
        amounts = {name: value for name, value in (resources.get(part) or {}).items() if name not in _RESIZABLE}
        rest[part] = {name: quantity.value_of(value) for name, value in amounts.items()}
    return rest
