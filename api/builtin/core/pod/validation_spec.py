"""Validation of the spec that pods and pod templates share, in the order in which Kubernetes reports it."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

from kubechronicle.api.builtin.common.checks import (
    MAX_INT32,
    MIRROR,
    dns_label,
    dns_subdomain,
    in_range,
    one_of,
    qualified_name,
    wrong,
)
from kubechronicle.api.builtin.common.go_shapes import record
from kubechronicle.api.builtin.common.network_values import legacy_ip, staying_valid
from kubechronicle.api.builtin.common.resource_amounts import HUGE_PAGES, pod_resource_name, requirements
from kubechronicle.api.builtin.common.scheduling import affinity, tolerations, topology_spread
from kubechronicle.api.builtin.core.pod.defaults import container_requests
from kubechronicle.api.builtin.core.pod.options import USUAL, PodOptions
from kubechronicle.api.builtin.core.pod.validation_containers import (
    PodFacts,
    containers,
    ephemeral_containers,
    init_containers,
)
from kubechronicle.api.builtin.core.pod.validation_security import (
    containers_of,
    host_processes,
    operating_system,
    pod_context,
    share_process_namespace,
)
from kubechronicle.api.builtin.core.pod.validation_volumes import volumes
from kubechronicle.api.errors.field_errors import (
    Cause,
    duplicate,
    forbidden,
    invalid_value,
    not_found,
    not_supported,
    required,
    too_long,
)
from kubechronicle.api.meta.metadata import validate_labels
from kubechronicle.api.values import names, quantity
from kubechronicle.api.values.objects import Object

RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
DNS_POLICIES: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
PREEMPTION_POLICIES: Final = ("PreemptLowerPriority", "Never")

MAX_NAME_SERVERS: Final = 3
MAX_SEARCHES: Final = 32
MAX_SEARCH_CHARACTERS: Final = 2048
"""Limits of Linux' resolver configuration: servers, search paths, and characters of all search paths."""


def pod_spec(spec: Object, field: str, pod: Object | None = None, options: PodOptions = USUAL) -> list[Cause]:
    """Check a pod's spec. ``pod`` is the pod's metadata, or None for a template."""
    causes: list[Cause] = []
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is None:
        causes.append(required(f"{field}.terminationGracePeriodSeconds"))
    good: dict[str, Object] = {}
    if spec.get("volumes"):
        good, found = volumes(
            spec["volumes"], f"{field}.volumes", pod, images_without_reference=options.images_without_reference
        )
        causes += found
    claims = frozenset(claim["name"] for claim in spec.get("resourceClaims") or () if claim.get("name"))
    if spec.get("resourceClaims"):
        causes += _resource_claims(spec["resourceClaims"], f"{field}.resourceClaims", pod)
    facts = PodFacts(
        good,
        claims,
        grace,
        spec.get("restartPolicy", ""),
        spec.get("hostUsers") is not False,
        None if spec.get("os") is None else spec["os"].get("name", ""),
        pod is not None,
        options,
    )
    usual = spec.get("containers") or ()
    causes += containers(usual, f"{field}.containers", facts)
    if spec.get("initContainers"):
        causes += init_containers(spec["initContainers"], usual, f"{field}.initContainers", facts)
    if spec.get("ephemeralContainers"):
        added = spec["ephemeralContainers"]
        causes += ephemeral_containers(added, spec, f"{field}.ephemeralContainers", facts)
    if spec.get("resources"):
        causes += _pod_resources(spec, f"{field}.resources", claims)
    if spec.get("hostNetwork"):
        causes += _host_network(usual, f"{field}.containers", is_pod=pod is not None)
    if facts.restart_policy not in RESTART_POLICIES:
        causes += one_of(facts.restart_policy, RESTART_POLICIES, f"{field}.restartPolicy")
    dns_policy = spec.get("dnsPolicy", "")
    if dns_policy not in DNS_POLICIES:
        causes += one_of(dns_policy, DNS_POLICIES, f"{field}.dnsPolicy")
    if spec.get("nodeSelector"):
        causes += validate_labels(spec["nodeSelector"], f"{field}.nodeSelector")
    if spec.get("securityContext"):
        causes += pod_context(spec["securityContext"], spec, f"{field}.securityContext", options)
    elif spec.get("shareProcessNamespace"):
        causes += share_process_namespace(spec, field)
    if spec.get("affinity"):
        causes += affinity(spec["affinity"], f"{field}.affinity")
    if spec.get("dnsConfig") is not None or dns_policy == "None":
        valid = staying_valid((), strict=options.strict_addresses)
        causes += _dns_config(spec.get("dnsConfig"), dns_policy, f"{field}.dnsConfig", valid)
    return causes + _optional_fields(spec, field, facts)


def _optional_fields(spec: Object, field: str, facts: PodFacts) -> list[Cause]:
    """Check the fields that few pods have."""
    causes: list[Cause] = []
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        causes += qualified_name(gate.get("conditionType", ""), f"{field}.readinessGates[{index}].conditionType")
    if spec.get("schedulingGates"):
        causes += _scheduling_gates(spec["schedulingGates"], f"{field}.schedulingGates")
    if spec.get("topologySpreadConstraints"):
        causes += topology_spread(
            spec["topologySpreadConstraints"],
            f"{field}.topologySpreadConstraints",
            merged=facts.options.merged_selectors,
        )
    causes += host_processes(spec, field)
    if spec.get("hostUsers") is False:
        causes += _user_namespace(spec, field, on_host_network=facts.options.users_on_host_network)
    if spec.get("hostnameOverride") is not None:
        causes += _hostname_override(spec, f"{field}.hostnameOverride")
    for name in ("serviceAccountName", "nodeName"):
        if spec.get(name):
            causes += dns_subdomain(spec[name], f"{field}.{name}")
    if spec.get("activeDeadlineSeconds") is not None:
        causes += in_range(spec["activeDeadlineSeconds"], 1, MAX_INT32, f"{field}.activeDeadlineSeconds")
    for name in ("hostname", "subdomain"):
        if spec.get(name):
            causes += dns_label(spec[name], f"{field}.{name}")
    if spec.get("tolerations"):
        causes += tolerations(
            spec["tolerations"], f"{field}.tolerations", comparing=facts.options.comparing_tolerations
        )
    valid = staying_valid((), strict=facts.options.strict_addresses)
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        causes += legacy_ip(alias.get("ip", ""), f"{field}.hostAliases[{index}].ip", valid)
        for position, name in enumerate(alias.get("hostnames") or ()):
            causes += dns_subdomain(name, f"{field}.hostAliases[{index}].hostnames[{position}]")
    if spec.get("priorityClassName"):
        causes += dns_subdomain(spec["priorityClassName"], f"{field}.priorityClassName")
    if spec.get("runtimeClassName") is not None:
        causes += dns_subdomain(spec["runtimeClassName"], f"{field}.runtimeClassName")
    causes += preemption_policy(spec.get("preemptionPolicy"), f"{field}.preemptionPolicy")
    if spec.get("overhead"):
        causes += requirements({"limits": spec["overhead"]}, f"{field}.overhead")
    if spec.get("os") is not None:
        causes += operating_system(spec, field)
    if spec.get("schedulingGroup") is not None:
        causes += _scheduling_group(spec, f"{field}.schedulingGroup")
    if facts.files:
        causes += _files_of_variables(facts.files, spec)
    return causes


def _scheduling_group(spec: Object, field: str) -> list[Cause]:
    """Check the reference to a PodGroup. A pod of a group has no responders to evictions."""
    name = spec["schedulingGroup"].get("podGroupName")
    if name is None:
        causes = [invalid_value(f"{field}.podGroupName", None, "must specify one of: `podGroupName`")]
    else:
        causes = dns_subdomain(name, f"{field}.podGroupName")
    if spec.get("evictionResponders"):
        causes.append(forbidden(field, "may not be set when evictionResponders is set"))
    return causes


def _user_namespace(spec: Object, field: str, *, on_host_network: bool) -> list[Cause]:
    """Reject host namespaces and raw devices for a pod with its own user namespace."""
    refused = "when `hostUsers` is false"
    shared = (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC"))
    causes = [
        forbidden(f"{field}.{shown}", refused) for name, shown in shared[int(on_host_network) :] if spec.get(name)
    ]
    return causes + [
        forbidden(f"{path}.volumeDevices", refused)
        for each, path in containers_of(spec, field)
        if each.get("volumeDevices")
    ]


MAX_HOST_NAME: Final = 64
"""Longest host name in Linux, in bytes."""


def _hostname_override(spec: Object, field: str) -> list[Cause]:
    name = spec["hostnameOverride"]
    causes: list[Cause] = []
    for member in ("setHostnameAsFQDN", "hostNetwork"):
        if spec.get(member):
            causes.append(forbidden(field, f"may not be specified when {member} is true"))
    if len(name.encode()) > MAX_HOST_NAME:
        causes.append(too_long(field, MAX_HOST_NAME))
    return causes + dns_subdomain(name, field)


def _files_of_variables(files: Sequence[tuple[str, str]], spec: Object) -> list[Cause]:
    """Check that variables from files, as (field, volume), refer to an emptyDir volume of the pod."""
    sources = {volume.get("name", ""): volume for volume in spec.get("volumes") or ()}
    causes: list[Cause] = []
    for field, name in sorted(files, key=lambda each: ".initContainers[" not in each[0]):
        if name not in sources:
            causes.append(not_found(field, name))
        elif sources[name].get("emptyDir") is None:
            causes.append(invalid_value(field, name, "referenced volume must be of type emptyDir"))
    return causes


def _resource_claims(claims: Sequence[Object], field: str, pod: Object | None) -> list[Cause]:
    if pod is not None and MIRROR in (pod.get("annotations") or {}):
        return [forbidden("", "static pods do not support resource claims") for _ in claims]
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        path, name = f"{field}[{index}]", claim.get("name", "")
        if not name:
            causes.append(required(f"{path}.name"))
        elif name in seen:
            causes.append(duplicate(f"{path}.name", name))
        else:
            causes += dns_label(name, f"{path}.name")
        seen.add(name)
        given = [each for each in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(each) is not None]
        if len(given) > 1:
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            causes.append(invalid_value(path, record(claim, "PodResourceClaim"), detail))
        elif not given:
            detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            causes.append(invalid_value(path, record(claim, "PodResourceClaim"), detail))
        for member in given:
            causes += dns_subdomain(claim[member], f"{path}.{member}")
    return causes


def _pod_resources(spec: Object, field: str, claims: frozenset[str]) -> list[Cause]:
    """Check pod-level resources: no container limit exceeds them, nor does the total of the requests."""
    resources = spec["resources"]
    if (spec.get("os") or {}).get("name") == "windows":
        return [forbidden(field, "may not be set for a windows pod")]
    causes: list[Cause] = []
    if resources.get("claims") is not None:
        causes.append(forbidden(f"{field}.claims", "claims may not be set for Resources at pod-level"))
    causes += requirements(resources, field, claims, pod_resource_name)
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name, total in container_requests(spec).items():
        pod_amount = requests.get(name)
        if pod_amount is not None and quantity.value_of(total) > quantity.value_of(pod_amount):
            detail = f"must be greater than or equal to aggregate container requests of {total}"
            causes.append(invalid_value(f"{field}.requests[{name}]", pod_amount, detail))
    for name, total in container_requests(spec, "limits").items():
        pod_amount = limits.get(name) if name.startswith(HUGE_PAGES) else None
        if pod_amount is not None and quantity.value_of(total) > quantity.value_of(pod_amount):
            detail = f"must be greater than or equal to aggregate container limits of {total}"
            causes.append(invalid_value(f"{field}.limits[{name}]", pod_amount, detail))
    for index, container in enumerate(spec.get("containers") or ()):
        for name, limit in ((container.get("resources") or {}).get("limits") or {}).items():
            most = limits.get(name)
            if most is not None and quantity.value_of(limit) > quantity.value_of(most):
                detail = f"must be less than or equal to pod limits of {most}"
                causes.append(invalid_value(f"{field}.containers[{index}][{name}].limits", limit, detail))
    return causes


def _host_network(usual: Sequence[Object], field: str, *, is_pod: bool) -> list[Cause]:
    detail = "must match `containerPort` when `hostNetwork` is true"
    return [
        invalid_value(f"{field}[{index}].ports[{position}].hostPort", port.get("hostPort", 0), detail)
        for index, container in enumerate(usual)
        for position, port in enumerate(container.get("ports") or ())
        if (is_pod or port.get("hostPort", 0)) and port.get("hostPort", 0) != port.get("containerPort", 0)
    ]


def _dns_config(config: Object | None, policy: str, field: str, valid: Container[str]) -> list[Cause]:
    if config is None:
        return [required(field, "must provide `dnsConfig` when `dnsPolicy` is None")]
    servers, searches = config.get("nameservers") or [], config.get("searches") or []
    if policy == "None" and not servers:
        detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        return [required(f"{field}.nameservers", detail)]
    causes: list[Cause] = []
    if len(servers) > MAX_NAME_SERVERS:
        detail = f"must not have more than {MAX_NAME_SERVERS} nameservers"
        causes.append(invalid_value(f"{field}.nameservers", servers, detail))
    for index, server in enumerate(servers):
        causes += legacy_ip(server, f"{field}.nameservers[{index}]", valid)
    if len(searches) > MAX_SEARCHES:
        detail = f"must not have more than {MAX_SEARCHES} search paths"
        causes.append(invalid_value(f"{field}.searches", searches, detail))
    if len(" ".join(searches)) > MAX_SEARCH_CHARACTERS:
        detail = f"must not have more than {MAX_SEARCH_CHARACTERS} characters (including spaces) in the search list"
        causes.append(invalid_value(f"{field}.searches", searches, detail))
    for index, search in enumerate(searches):
        if search != ".":
            domain = search.removesuffix(".")
            causes += wrong(f"{field}.searches[{index}]", domain, names.dns_subdomain_with_underscores(domain))
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            causes.append(required(f"{field}.options[{index}]", "must not be empty"))
    return causes


def _scheduling_gates(gates: Sequence[Object], field: str) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name, path = gate.get("name", ""), f"{field}[{index}]"
        causes += qualified_name(name, path)
        if name in seen:
            causes.append(duplicate(path, name))
        seen.add(name)
    return causes


def preemption_policy(value: str | None, field: str) -> list[Cause]:
    """Check the preemption policy of a pod or priority class."""
    if value is None or value in PREEMPTION_POLICIES:
        return []
    return [not_supported(field, value, PREEMPTION_POLICIES)] if value else [required(field)]
