"""Validation of containers: ordinary, init and ephemeral ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Final

from kubechronicle.api.builtin.common.checks import PROTOCOLS, descending_path, dns_label, one_of, port_number, wrong
from kubechronicle.api.builtin.common.resource_amounts import requirements
from kubechronicle.api.builtin.core.pod.options import USUAL, PodOptions
from kubechronicle.api.builtin.core.pod.validation_container_parts import (
    PROBES,
    bind_options,
    environment,
    environment_from,
    lifecycle,
    probe,
)
from kubechronicle.api.builtin.core.pod.validation_security import container_context
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
from kubechronicle.api.kinds.reading import enum
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object


@dataclass(frozen=True, slots=True)
class PodFacts:
    """Facts about the pod that its containers' rules need.

    ``volumes``: the valid volumes by name.
    ``claims``: names of the resource claims.
    ``grace``: termination grace period in seconds.
    ``restart_policy``: the pod's restart policy.
    ``host_users``: whether the pod uses the host's user namespace.
    ``os``: the name of the operating system; None if the pod names none.
    ``is_pod``: False for a template.
    ``options``: the choices of feature gates.
    ``files``: collected output: (field, volume) of each variable that comes from a file.
    """

    volumes: dict[str, Object]
    claims: frozenset[str]
    grace: int | None
    restart_policy: str
    host_users: bool
    os: str | None
    is_pod: bool
    options: PodOptions = USUAL
    files: list[tuple[str, str]] = dataclass_field(default_factory=list)


def container(given: Object, field: str, facts: PodFacts) -> list[Cause]:
    """Check the rules that all kinds of containers share."""
    causes: list[Cause] = []
    name = given.get("name", "")
    if not name:
        causes.append(required(f"{field}.name"))
    else:
        causes += dns_label(name, f"{field}.name")
    if not given.get("image"):
        causes.append(required(f"{field}.image"))
    policy = given.get("terminationMessagePolicy", "")
    if policy != "File":
        causes += one_of(policy, ("File", "FallbackToLogsOnError"), f"{field}.terminationMessagePolicy")
    if given.get("ports"):
        causes += _ports(given["ports"], f"{field}.ports")
    if given.get("env"):
        causes += environment(given["env"], f"{field}.env", facts.files, from_files=facts.options.files_of_variables)
    if given.get("envFrom"):
        causes += environment_from(given["envFrom"], f"{field}.envFrom")
    if given.get("volumeMounts"):
        causes += _mounts(given, f"{field}.volumeMounts", facts.volumes)
    if given.get("volumeDevices"):
        causes += _devices(given, f"{field}.volumeDevices", facts.volumes)
    policy = given.get("imagePullPolicy", "")
    if policy not in enum("core.v1.PullPolicy"):
        causes += one_of(policy, enum("core.v1.PullPolicy"), f"{field}.imagePullPolicy")
    if given.get("resources"):
        causes += requirements(given["resources"], f"{field}.resources", facts.claims)
    if given.get("resizePolicy"):
        causes += _resize_policy(given["resizePolicy"], f"{field}.resizePolicy", facts.restart_policy)
    if given.get("securityContext"):
        causes += container_context(given["securityContext"], f"{field}.securityContext", host_users=facts.host_users)
    return causes


def _ports(ports: Sequence[Object], field: str) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        path = f"{field}[{index}]"
        name = port.get("name")
        if name:
            problems = names.port_name(name)
            causes += wrong(f"{path}.name", name, problems)
            if not problems and name in seen:
                causes.append(duplicate(f"{path}.name", name))
            seen.add(name)
        number = port.get("containerPort", 0)
        if not number:
            causes.append(required(f"{path}.containerPort"))
        else:
            causes += port_number(number, f"{path}.containerPort")
        if port.get("hostPort", 0):
            causes += port_number(port["hostPort"], f"{path}.hostPort")
        causes += one_of(port.get("protocol", ""), PROTOCOLS, f"{path}.protocol")
    return causes


PROPAGATIONS: Final = ("Bidirectional", "HostToContainer", "None")


def _mounts(given: Object, field: str, volumes: dict[str, Object]) -> list[Cause]:
    causes: list[Cause] = []
    devices = {each.get("name", ""): each.get("devicePath", "") for each in given.get("volumeDevices") or ()}
    device_places = set(devices.values())
    taken: set[str] = set()
    for index, mount in enumerate(given["volumeMounts"]):
        path, name, place = f"{field}[{index}]", mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            causes.append(required(f"{path}.name"))
        if name not in volumes:
            causes.append(not_found(f"{path}.name", name))
        if not place:
            causes.append(required(f"{path}.mountPath"))
        if place in taken:
            causes.append(invalid_value(f"{path}.mountPath", place, "must be unique"))
        taken.add(place)
        if name in devices:
            causes.append(invalid_value(f"{path}.name", name, "must not already exist in volumeDevices"))
        if place in device_places:
            detail = "must not already exist as a path in volumeDevices"
            causes.append(invalid_value(f"{path}.mountPath", place, detail))
        if len(mount) > 2:
            causes += _mount_options(mount, path, field, given)
            causes += bind_options(mount.get("bindMountOptions") or (), path, volumes.get(name))
    return causes


def _mount_options(mount: Object, path: str, field: str, given: Object) -> list[Cause]:
    causes: list[Cause] = []
    sub_path, expression = mount.get("subPath", ""), mount.get("subPathExpr", "")
    # As in Kubernetes, these field paths have no index.
    if sub_path:
        causes += descending_path(sub_path, f"{field}.subPath")
    if expression:
        if sub_path:
            detail = "subPathExpr and subPath are mutually exclusive"
            causes.append(invalid_value(f"{path}.subPathExpr", expression, detail))
        causes += descending_path(expression, f"{field}.subPathExpr")
    propagation = mount.get("mountPropagation")
    if propagation is not None:
        if propagation not in PROPAGATIONS:
            causes.append(not_supported(f"{field}.mountPropagation", propagation, PROPAGATIONS))
        if propagation == "Bidirectional" and not (given.get("securityContext") or {}).get("privileged"):
            detail = "Bidirectional mount propagation is available only to privileged containers"
            causes.append(forbidden(f"{field}.mountPropagation", detail))
    recursive, place = mount.get("recursiveReadOnly"), f"{field}.recursiveReadOnly"
    if recursive in ("Enabled", "IfPossible"):
        if not mount.get("readOnly"):
            causes.append(forbidden(place, "may only be specified when readOnly is true"))
        if propagation not in (None, "None"):
            causes.append(forbidden(place, "may only be specified when mountPropagation is None or not specified"))
    elif recursive not in (None, "Disabled"):
        causes.append(not_supported(place, recursive, ("Disabled", "Enabled", "IfPossible")))
    return causes


def _devices(given: Object, field: str, volumes: dict[str, Object]) -> list[Cause]:
    causes: list[Cause] = []
    mounts = {each.get("name", ""): each.get("mountPath", "") for each in given.get("volumeMounts") or ()}
    mount_places = set(mounts.values())
    seen: set[str] = set()
    places: set[str] = set()
    for index, device in enumerate(given["volumeDevices"]):
        path, name, place = f"{field}[{index}]", device.get("name", ""), device.get("devicePath", "")
        if not name:
            causes.append(required(f"{path}.name"))
        if name in seen:
            causes.append(invalid_value(f"{path}.name", name, "must be unique"))
        volume = volumes.get(name)
        if volume is None:
            causes.append(not_found(f"{path}.name", name))
        elif volume.get("persistentVolumeClaim") is None and volume.get("ephemeral") is None:
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            causes.append(invalid_value(f"{path}.name", name, detail))
        if not place:
            causes.append(required(f"{path}.devicePath"))
        if place in places:
            causes.append(invalid_value(f"{path}.devicePath", place, "must be unique"))
        if ".." in place.split("/"):
            causes.append(invalid_value(f"{path}.devicePath", place, "can not contain backsteps ('..')"))
        else:
            places.add(place)
        if name in mounts:
            causes.append(invalid_value(f"{path}.name", name, "must not already exist in volumeMounts"))
        if place in mount_places:
            detail = "must not already exist as a path in volumeMounts"
            causes.append(invalid_value(f"{path}.devicePath", place, detail))
        if name:
            seen.add(name)
    return causes


def _resize_policy(policies: Sequence[Object], field: str, restart_policy: str) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        name, restart = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if name in seen:
            causes.append(duplicate(f"{field}[{index}]", name))
        seen.add(name)
        causes += one_of(name, ("cpu", "memory"), field)
        causes += one_of(restart, ("NotRequired", "RestartContainer"), field)
        if restart_policy == "Never" and restart != "NotRequired":
            causes.append(invalid_value(field, restart, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"))
    return causes


MAX_RESTART_RULES: Final = 20
MAX_EXIT_CODES: Final = 255
_RULES_NEED_POLICY: Final = "must specify restartPolicy when restart rules are used"
_NO_RULES_OF_SIDECARS: Final = "restartPolicyRules are not allowed for init containers with restart policy Always"
_RESTART_ACTIONS: Final = ("Restart", "RestartAllContainers")


def _restart_policy(given: Object, field: str, *, of_all: bool) -> list[Cause]:
    """Check a container's restart policy, and its rules by exit code, which take precedence (KEP-5307, KEP-5532)."""
    policy, rules = given.get("restartPolicy"), given.get("restartPolicyRules") or ()
    causes: list[Cause] = []
    if policy is None:
        if not rules:
            return causes
        causes.append(required(f"{field}.restartPolicy", _RULES_NEED_POLICY))
    elif policy not in enum("core.v1.RestartPolicy"):
        causes.append(not_supported(f"{field}.restartPolicy", policy, enum("core.v1.RestartPolicy")))
    path = f"{field}.restartPolicyRules"
    if len(rules) > MAX_RESTART_RULES:
        causes.append(too_long(path, MAX_RESTART_RULES))
    for index, rule in enumerate(rules):
        causes += _restart_rule(rule, f"{path}[{index}]", _RESTART_ACTIONS if of_all else _RESTART_ACTIONS[:1])
    return causes


def _restart_rule(rule: Object, field: str, actions: Sequence[str]) -> list[Cause]:
    causes: list[Cause] = []
    action, codes = rule.get("action", ""), rule.get("exitCodes")
    if action not in actions:
        causes.append(not_supported(f"{field}.action", action, actions))
    if codes is None:
        return [*causes, required(f"{field}.exitCodes", "must be specified")]
    operator = codes.get("operator", "")
    if operator not in ("In", "NotIn"):
        causes.append(not_supported(f"{field}.exitCodes.operator", operator, ("In", "NotIn")))
    if len(codes.get("values") or ()) > MAX_EXIT_CODES:
        causes.append(too_long(f"{field}.exitCodes.values", MAX_EXIT_CODES))
    return causes


def _hooks_and_probes(given: Object, field: str, facts: PodFacts) -> list[Cause]:
    causes: list[Cause] = []
    if given.get("lifecycle"):
        causes += lifecycle(given["lifecycle"], f"{field}.lifecycle", facts.grace, facts.os)
    for kind in PROBES:
        if given.get(kind) is not None:
            causes += probe(kind, given[kind], f"{field}.{kind}")
    return causes


def containers(given: Sequence[Object], field: str, facts: PodFacts) -> list[Cause]:
    """Check the ordinary containers: at least one, with different names and host ports."""
    if not given:
        return [required(field)]
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, each in enumerate(given):
        path, name = f"{field}[{index}]", each.get("name", "")
        causes += container(each, path, facts)
        if name in seen:
            causes.append(duplicate(f"{path}.name", name))
        seen.add(name)
        causes += _hooks_and_probes(each, path, facts)
        if "restartPolicy" in each or "restartPolicyRules" in each:
            causes += _restart_policy(each, path, of_all=facts.options.restarts_of_all)
    return causes + _host_ports(given, field, set())


def init_containers(given: Sequence[Object], usual: Sequence[Object], field: str, facts: PodFacts) -> list[Cause]:
    """Check the init containers; those with restartPolicy Always keep running as sidecars."""
    causes: list[Cause] = []
    seen = {each.get("name", "") for each in usual}
    for index, each in enumerate(given):
        path, name = f"{field}[{index}]", each.get("name", "")
        causes += container(each, path, facts)
        policy = each.get("restartPolicy")
        if policy == "Always" and not facts.options.restarts_of_all:
            if each.get("restartPolicyRules"):
                causes.append(forbidden(f"{path}.restartPolicyRules", _NO_RULES_OF_SIDECARS))
        elif policy is not None:
            causes += _restart_policy(each, path, of_all=facts.options.restarts_of_all)
        elif each.get("restartPolicyRules"):  # without a policy, the rules themselves stay unchecked
            causes.append(required(f"{path}.restartPolicy", _RULES_NEED_POLICY))
        if name in seen:
            causes.append(duplicate(f"{path}.name", name))
        elif name:
            seen.add(name)
        causes += _host_ports([each], field, set())
        if policy == "Always":
            causes += _hooks_and_probes(each, path, facts)
            continue
        causes += [
            forbidden(f"{path}.{member}", "may not be set for init containers without restartPolicy=Always")
            for member in ("lifecycle", *PROBES)
            if each.get(member) is not None
        ]
        detail = "must not be set to 'RestartContainer' for non-sidecar initContainers"
        causes += [
            invalid_value(f"{path}.resizePolicy[{position}].restartPolicy", "RestartContainer", detail)
            for position, rule in enumerate(each.get("resizePolicy") or ())
            if rule.get("restartPolicy") == "RestartContainer"
        ]
    return causes


def _host_ports(given: Sequence[Object], field: str, taken: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    for index, each in enumerate(given):
        for position, port in enumerate(each.get("ports") or ()):
            number = port.get("hostPort", 0)
            if not number:
                continue
            key = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{number}"
            if key in taken:
                causes.append(duplicate(f"{field}[{index}].ports[{position}].hostPort", key))
            taken.add(key)
    return causes


_EPHEMERAL: Final = "cannot be set for an Ephemeral Container"
_NOT_EPHEMERAL: Final = (
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    *PROBES,
    "lifecycle",
)


def ephemeral_containers(given: Sequence[Object], spec: Object, field: str, facts: PodFacts) -> list[Cause]:
    """Check containers added to a running pod: no ports, probes, resources or restarts."""
    causes: list[Cause] = []
    others = {each.get("name", "") for group in ("containers", "initContainers") for each in spec.get(group) or ()}
    seen = set(others)
    for index, each in enumerate(given):
        path, name = f"{field}[{index}]", each.get("name", "")
        causes += container(each, path, facts) + trimmed_image(each, path)
        if name in seen:
            causes.append(duplicate(f"{path}.name", name))
        seen.add(name)
        target = each.get("targetContainerName", "")
        if target and target not in others:
            causes.append(not_found(f"{path}.targetContainerName", target))
        causes += [
            forbidden(f"{path}.{member}", _EPHEMERAL)
            for member in _NOT_EPHEMERAL
            if each.get(member) or (member != "resources" and each.get(member) is not None)
        ]
        for position, mount in enumerate(each.get("volumeMounts") or ()):
            causes += [
                forbidden(f"{path}.volumeMounts[{position}].{member}", _EPHEMERAL)
                for member in ("subPath", "subPathExpr")
                if mount.get(member)
            ]
    return causes


def trimmed_image(given: Object, field: str) -> list[Cause]:
    """Reject spaces around an image's name; templates have always been allowed to have them."""
    image = given.get("image", "")
    if image == image.strip():
        return []
    return [invalid_value(f"{field}.image", image, "must not have leading or trailing whitespace")]
