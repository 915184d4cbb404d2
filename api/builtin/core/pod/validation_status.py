"""Validation of updates of a pod's status. Source: kube-apiserver's ``ValidatePodStatusUpdate``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.builtin.common.checks import (
    MAX_INT32,
    dns_label,
    dns_subdomain,
    dual_stack,
    health_conditions,
    immutable,
    parse_ip,
    qualified_name,
)
from kubechronicle.api.builtin.common.network_values import legacy_ip, staying_valid
from kubechronicle.api.builtin.common.resource_amounts import node_overhead, node_resource_name, not_negative
from kubechronicle.api.builtin.core.pod.options import USUAL, PodOptions
from kubechronicle.api.builtin.core.pod.validation import immutable_annotations
from kubechronicle.api.errors.field_errors import (
    Cause,
    duplicate,
    forbidden,
    internal,
    invalid_value,
    not_found,
    not_supported,
    required,
    too_long,
)
from kubechronicle.api.values.objects import Object

_NOT_BACK: Final = "may not be transitioned to non-terminated state"
_CONDITIONS: Final = ("PodScheduled", "Ready", "Initialized")
_GROUPS: Final = {
    "containerStatuses": "containers",
    "initContainerStatuses": "initContainers",
    "ephemeralContainerStatuses": "ephemeralContainers",
}
_STATUSES: Final = tuple(_GROUPS)


MAX_UINT32: Final = 2**32 - 1
MAX_IMAGE_REFERENCE: Final = 256


def pod_status(new: Object, old: Object, options: PodOptions = USUAL) -> list[Cause]:
    """Check a status update: a finished container stays finished, and addresses are valid, one per family."""
    status, held, spec = new.get("status") or {}, old.get("status") or {}, old["spec"]
    causes = immutable_annotations(new, old)
    for index, condition in enumerate(status.get("conditions") or ()):
        causes += _observed(condition, f"status.conditions[{index}].observedGeneration")
        kind = condition.get("type", "")
        if kind not in _CONDITIONS:
            causes += qualified_name(kind, f"status.conditions[{index}].Type")
    nominated = status.get("nominatedNodeName")
    if nominated and nominated != held.get("nominatedNodeName"):
        causes += dns_subdomain(nominated, "status.nominatedNodeName")
        if options.nominations_end and spec.get("nodeName"):
            detail = "may not be set on pods that are already bound to a node"
            causes.append(forbidden("status.nominatedNodeName", detail))
    causes += _observed(status, "status.observedGeneration")
    causes += immutable("status.qosClass", status.get("qosClass", ""), held.get("qosClass", ""))
    if not _may_restart_all(spec):
        causes += _finished_containers(status, held, spec)
    if status.get("resourceClaimStatuses"):
        causes += _claim_statuses(status["resourceClaimStatuses"], new["spec"].get("resourceClaims") or ())
    if status.get("extendedResourceClaimStatus") is not None:
        causes += _extended_claim(status["extendedResourceClaimStatus"], new["spec"])
    causes += _node_claims(status, new["spec"])
    causes += _volume_health(status, new["spec"])
    causes += _addresses(status, held, "podIPs", strict=options.strict_addresses)
    host_ips = status.get("hostIPs") or ()
    if host_ips and host_ips[0].get("ip", "") != status.get("hostIP", ""):
        causes.append(invalid_value("status.hostIPs[0].ip", host_ips[0].get("ip", ""), "must be equal to `hostIP`"))
    causes += _addresses(status, held, "hostIPs", strict=options.strict_addresses)
    for member in _STATUSES:
        for index, each in enumerate(status.get(member) or ()):
            if "user" in each:
                causes += _user(each["user"], new["spec"], f"status.{member}[{index}].user.linux")
    for member in _STATUSES:
        known = _resource_names(new["spec"].get(_GROUPS[member]) or ())
        for index, each in enumerate(status.get(member) or ()):
            if "allocatedResourcesStatus" in each:
                causes += _allocated(each, known, member, f"status.{member}[{index}].allocatedResourcesStatus")
    return causes + (_image_volumes(status) if options.image_digests else [])


def _observed(holder: Object, field: str) -> list[Cause]:
    value = holder.get("observedGeneration", 0)
    return [invalid_value(field, value, "must be a non-negative integer")] if value < 0 else []


def _may_restart_all(spec: Object) -> bool:
    """Return whether a container's end may restart the whole pod (KEP-5532): then no container is finished for good."""
    return any(
        rule.get("action") == "RestartAllContainers"
        for group in ("containers", "initContainers")
        for container in spec.get(group) or ()
        for rule in container.get("restartPolicyRules") or ()
    )


def _restarts_after(container: Object | None, spec: Object, code: int) -> bool:
    """Return whether a container is restarted after it ends with this exit code."""
    if container is None:
        return False
    for rule in container.get("restartPolicyRules") or ():
        codes = rule.get("exitCodes") or {}
        among = code in (codes.get("values") or ())
        if rule.get("action") == "Restart" and among == (codes.get("operator") == "In"):
            return True
    policy = container.get("restartPolicy") or spec.get("restartPolicy", "Always")
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def _finished_containers(status: Object, held: Object, spec: Object) -> list[Cause]:
    causes: list[Cause] = []
    usual = {each.get("name"): each for each in spec.get("containers") or ()}
    for field, name, code in _restarted(status, held, "containerStatuses"):
        if not _restarts_after(usual.get(name), spec, code):
            causes.append(forbidden(field, _NOT_BACK))
    first = {each.get("name"): each for each in spec.get("initContainers") or ()}
    for field, name, code in _restarted(status, held, "initContainerStatuses"):
        container = first.get(name) or {}
        if not _restarts_after(container, spec, code) and container.get("restartPolicy") != "Always":
            causes.append(forbidden(field, _NOT_BACK))
    causes += [forbidden(field, _NOT_BACK) for field, _, _ in _restarted(status, held, "ephemeralContainerStatuses")]
    return causes


def _restarted(status: Object, held: Object, member: str) -> Iterator[tuple[str, str, int]]:
    """Yield (field, name, exit code) of containers that had ended and no longer are."""
    now = {each.get("name"): each for each in status.get(member) or ()}
    for index, before in enumerate(held.get(member) or ()):
        ended, after = (before.get("state") or {}).get("terminated"), now.get(before.get("name"))
        if ended is not None and after is not None and (after.get("state") or {}).get("terminated") is None:
            yield f"status.{member}[{index}].state", before.get("name", ""), ended.get("exitCode", 0)


def _claim_statuses(statuses: Sequence[Object], claims: Sequence[Object]) -> list[Cause]:
    causes: list[Cause] = []
    known = {each.get("name") for each in claims}
    seen: set[str] = set()
    for index, each in enumerate(statuses):
        field, name, made = f"status.resourceClaimStatuses[{index}].name", each.get("name", ""), "resourceClaimName"
        if name not in known:
            causes.append(invalid_value(field, name, "must match the name of an entry in `spec.resourceClaims`"))
        if name in seen:
            causes.append(duplicate(field, name))
        seen.add(name)
        if each.get(made) is not None:
            causes += dns_subdomain(each[made], f"status.resourceClaimStatuses[{index}].{made}")
    return causes


def _extended_claim(status: Object, spec: Object) -> list[Cause]:
    field = "status.extendedResourceClaimStatus"
    mappings = status.get("requestMappings") or ()
    path, causes = f"{field}.requestMappings", []
    if not mappings:
        causes.append(required(path, "at least one request mapping is required"))
    containers = {
        each.get("name"): each for group in ("initContainers", "containers") for each in spec.get(group) or ()
    }
    seen: set[tuple[str, str, str]] = set()
    for index, mapping in enumerate(mappings):
        name, resource, place = mapping.get("containerName", ""), mapping.get("resourceName", ""), f"{path}[{index}]"
        if name not in containers:
            detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
            causes.append(invalid_value(f"{place}.containerName", name, detail))
        elif resource not in ((containers[name].get("resources") or {}).get("requests") or ()):
            detail = (
                "must match the extended resource name of an entry in spec.initContainers.resources.requests or "
                "spec.containers.resources.requests"
            )
            causes.append(invalid_value(f"{place}.resourceName", resource, detail))
        request = mapping.get("requestName", "")
        causes += dns_label(request, f"{field}.requestName")
        if (name, resource, request) in seen:
            causes.append(duplicate(f"{place}.containerName", name))
            causes.append(duplicate(f"{place}.resourceName", resource))
            causes.append(duplicate(f"{place}.requestName", request))
        seen.add((name, resource, request))
    claim, place = status.get("resourceClaimName", ""), f"{field}.resourceClaimName"
    return causes + (dns_subdomain(claim, place) if claim else [required(place)])


def _node_claims(status: Object, spec: Object) -> list[Cause]:
    """Check that the pod refers to each claim for resources of its node, and their names and amounts."""
    member, causes = "nodeAllocatableResourceClaimStatuses", list[Cause]()
    references = [*(spec.get("resourceClaims") or ()), *(status.get("resourceClaimStatuses") or ())]
    known = {each.get("resourceClaimName") for each in references}
    for index, each in enumerate(status.get(member) or ()):
        claim, field = each.get("resourceClaimName"), f"status.{member}[{index}]"
        if not claim:
            continue
        if claim not in known:
            causes.append(invalid_value(f"{field}.resourceClaimName", claim, "no mapping found in pod reference"))
        for position, mapped in enumerate(each.get("mapping") or ()):
            place, taken = f"{field}.mapping[{position}]", mapped.get("quantity")
            causes += node_resource_name(mapped.get("name", ""), f"{place}.name")
            causes += not_negative(taken, f"{place}.quantity") if taken is not None else []
        for position, overhead in enumerate(each.get("overhead") or ()):
            place = f"{field}.overhead[{position}]"
            causes += node_resource_name(overhead.get("name", ""), f"{place}.name")
            causes += node_overhead(overhead, place)
    return causes


def _volume_health(status: Object, spec: Object) -> list[Cause]:
    volumes = {each.get("name") for each in spec.get("volumes") or ()}
    causes: list[Cause] = []
    for index, each in enumerate(status.get("volumeHealth") or ()):
        name, field = each.get("name"), f"status.volumeHealth[{index}]"
        if name and name not in volumes:
            causes.append(not_found(f"{field}.name", name))
        causes += health_conditions(each, field)
    return causes


def _image_volumes(status: Object) -> list[Cause]:
    """Check the references of image volumes that a kubelet has mounted (KEP-5365)."""
    causes: list[Cause] = []
    for member in _STATUSES:
        for index, each in enumerate(status.get(member) or ()):
            for position, mount in enumerate(each.get("volumeMounts") or ()):
                image = (mount.get("volumeStatus") or {}).get("image")
                if image is None:
                    continue
                field = f"status.{member}[{index}].volumeMounts[{position}].volumeStatus.imageVolumeStatus.imageRef"
                reference = image.get("imageRef", "")
                if not reference:
                    causes.append(required(field, "imageRef must not be empty"))
                elif len(reference.encode()) > MAX_IMAGE_REFERENCE:
                    causes.append(too_long(field, MAX_IMAGE_REFERENCE))
    return causes


def _addresses(status: Object, held: Object, member: str, *, strict: bool) -> list[Cause]:
    values = [each.get("ip", "") for each in status.get(member) or ()]
    present = staying_valid((each.get("ip", "") for each in held.get(member) or ()), strict=strict)
    causes: list[Cause] = []
    for index, value in enumerate(values):
        causes += legacy_ip(value, f"status.{member}[{index}]", present)
    if len(values) < 2:
        return causes
    parsed = [address for address in map(parse_ip, values) if address is not None]
    wrong = next((index for index, value in enumerate(values) if parse_ip(value) is None), None)
    if wrong is not None:
        problem = f"failed to check for dual stack with error:invalid IP[{wrong}]: {values[wrong]}"
        causes.append(internal(f"status.{member}", problem))
    if wrong is not None or not dual_stack(parsed) or len(values) > 2:
        shown = [{"IP": value} for value in values]
        causes.append(invalid_value(f"status.{member}", shown, "may specify no more than one IP for each IP family"))
    return causes


def _user(user: Object, spec: Object, field: str) -> list[Cause]:
    """Check the user and group numbers of a container; Windows has none."""
    linux = user.get("linux")
    if linux is None:
        return []
    if (spec.get("os") or {}).get("name") == "windows":
        return [forbidden(field, "cannot be set for a windows pod")]
    # A container runtime may tell any user of Linux; the groups have the limits of a pod's.
    numbers = [(f"{field}.uid", linux.get("uid", 0), MAX_UINT32), (f"{field}.gid", linux.get("gid", 0), MAX_INT32)]
    groups = linux.get("supplementalGroups") or ()
    numbers += [(f"{field}.supplementalGroups[{index}]", group, MAX_INT32) for index, group in enumerate(groups)]
    return [
        invalid_value(path, value, f"must be between 0 and {most}, inclusive")
        for path, value, most in numbers
        if not 0 <= value <= most
    ]


def _allocated(status: Object, known: Mapping[Any, Collection[str]], member: str, field: str) -> list[Cause]:
    given = status["allocatedResourcesStatus"]
    if member == "ephemeralContainerStatuses":
        return [forbidden(field, "must not be specified in container status")] if given else []
    resources = known.get(status.get("name"))
    causes: list[Cause] = []
    for index, each in enumerate(given or ()):
        path, name = f"{field}[{index}]", each.get("name", "")
        if resources is not None:
            causes += _known_resource(name, resources, f"{path}.name")
        seen: set[str] = set()
        for position, resource in enumerate(each.get("resources") or ()):
            health, unit = resource.get("health", ""), resource.get("resourceID", "")
            choices = ("Healthy", "Unhealthy", "Unknown")
            if health not in choices:
                causes.append(not_supported(f"{path}.resources[{position}].health", health, choices))
            if unit in seen:
                causes.append(duplicate(f"{path}.resources[{position}].resourceID", unit))
            seen.add(unit)
    return causes


def _resource_names(containers: Sequence[Object]) -> dict[Any, Collection[str]]:
    """Return the requested resources and the claims of each container. The first one of a name counts."""
    found: dict[Any, Collection[str]] = {}
    for container in reversed(containers):
        resources = container.get("resources") or {}
        claims = (
            "/".join(filter(None, (f"claim:{claim.get('name', '')}", claim.get("request"))))
            for claim in resources.get("claims") or ()
        )
        requests = (name for name in resources.get("requests") or () if not name.startswith("claim:"))
        found[container.get("name")] = {*claims, *requests}
    return found


def _known_resource(name: str, known: Collection[str], field: str) -> list[Cause]:
    if name in known:
        return []
    if name.startswith("claim:"):
        detail = (
            "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or "
            "'claim:<claimName>' if request is empty"
        )
        return [invalid_value(field, name, detail)]
    return [invalid_value(field, name, "must match one of the container's resource requests")]
