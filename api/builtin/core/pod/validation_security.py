"""Validation of security contexts of containers and pods, and of fields that an operating system does not support."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.checks import MAX_INT32, descending_path, dns_subdomain, one_of_if_set
from kubechronicle.api.builtin.common.go_shapes import record
from kubechronicle.api.builtin.core.pod.options import USUAL, PodOptions
from kubechronicle.api.errors.field_errors import (
    Cause,
    duplicate,
    forbidden,
    invalid_value,
    not_supported,
    required,
    too_long,
)
from kubechronicle.api.kinds.reading import enum
from kubechronicle.api.values.objects import Object

PROFILE_TYPES: Final = ("Localhost", "RuntimeDefault", "Unconfined")
MAX_PROFILE_PATH: Final = 4095
"""Longest path in Linux in bytes, without its terminator."""

_SYSCTL: Final = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?\Z")
_SYSCTL_MESSAGE: Final = (
    "must have at most 253 characters and match regex "
    r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
)
MAX_SYSCTL: Final = 253


def containers_of(spec: Mapping[str, Any], field: str) -> Iterator[tuple[Object, str]]:
    """Yield all containers of a pod with their field paths, in Kubernetes' order."""
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            yield container, f"{field}.{group}[{index}]"


def _ids(context: Object, field: str, *members: str) -> list[Cause]:
    return [
        invalid_value(f"{field}.{name}", context[name], f"must be between 0 and {MAX_INT32}, inclusive")
        for name in members
        if context.get(name) is not None and not 0 <= context[name] <= MAX_INT32
    ]


def _seccomp(profile: Object | None, field: str) -> list[Cause]:
    if profile is None:
        return []
    kind, path = profile.get("type", ""), profile.get("localhostProfile")
    causes: list[Cause] = []
    if not kind:
        causes.append(required(f"{field}.type", "type is required when seccompProfile is set"))
    elif kind not in PROFILE_TYPES:
        causes.append(not_supported(f"{field}.type", kind, PROFILE_TYPES))
    if kind == "Localhost":
        if path is None:
            causes.append(required(f"{field}.localhostProfile", "must be set when seccomp type is Localhost"))
        else:
            causes += descending_path(path, f"{field}.localhostProfile")
    elif path is not None:
        detail = "can only be set when seccomp type is Localhost"
        causes.append(invalid_value(f"{field}.localhostProfile", record(profile, "SeccompProfile"), detail))
    return causes


def _app_armor(profile: Object | None, field: str) -> list[Cause]:
    if profile is None:
        return []
    kind, path, place = profile.get("type", ""), profile.get("localhostProfile"), f"{field}.localhostProfile"
    if not kind:
        return [required(f"{field}.type", "type is required when appArmorProfile is set")]
    if kind not in PROFILE_TYPES:
        return [not_supported(f"{field}.type", kind, PROFILE_TYPES)]
    if kind != "Localhost":
        if path is None:
            return []
        return [invalid_value(place, path, "can only be set when AppArmor type is Localhost")]
    if not path or not path.strip():
        detail = "must be set when AppArmor type is Localhost"
        return [invalid_value(place, path, "must not be padded with whitespace") if path else required(place, detail)]
    causes: list[Cause] = []
    if path != path.strip():
        causes.append(invalid_value(place, path, "must not be padded with whitespace"))
    if len(path.encode()) > MAX_PROFILE_PATH:
        causes.append(too_long(place, MAX_PROFILE_PATH))
    return causes


_DOMAIN_NETBIOS: Final = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}\Z')
_DOMAIN_DNS: Final = re.compile(
    r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*\Z"
)
MAX_GMSA: Final = 64 * 1024
MAX_WINDOWS_DOMAIN: Final = 256
MAX_WINDOWS_USER: Final = 104


def _windows(options: Object | None, field: str) -> list[Cause]:
    if options is None:
        return []
    causes: list[Cause] = []
    if options.get("gmsaCredentialSpecName") is not None:
        causes += dns_subdomain(options["gmsaCredentialSpecName"], f"{field}.gmsaCredentialSpecName")
    spec = options.get("gmsaCredentialSpec")
    if spec is not None and not spec:
        detail = "gmsaCredentialSpec cannot be an empty string"
        causes.append(invalid_value(f"{field}.gmsaCredentialSpec", spec, detail))
    elif spec is not None and len(spec.encode()) > MAX_GMSA:
        causes.append(
            invalid_value(f"{field}.gmsaCredentialSpec", spec, "gmsaCredentialSpec size must be under 64 KiB")
        )
    user = options.get("runAsUserName")
    if user is not None:
        causes += [invalid_value(f"{field}.runAsUserName", user, text) for text in _user_problems(user)]
    return causes


def _user_problems(text: str) -> list[str]:
    if not text:
        return ["runAsUserName cannot be an empty string"]
    if re.search(r"[\x00-\x1f\x7f]", text):
        return ["runAsUserName cannot contain control characters"]
    if text.count("\\") > 1:
        return ["runAsUserName cannot contain more than one backslash"]
    domain, backslash, user = text.rpartition("\\")
    problems: list[str] = []
    if len(domain) >= MAX_WINDOWS_DOMAIN:
        problems.append(f"runAsUserName's Domain length must be under {MAX_WINDOWS_DOMAIN} characters")
    if backslash and not (_DOMAIN_NETBIOS.match(domain) or _DOMAIN_DNS.match(domain)):
        problems.append("runAsUserName's Domain doesn't match the NetBios nor the DNS format")
    if not user:
        problems.append("runAsUserName's User cannot be empty")
    elif len(user) > MAX_WINDOWS_USER:
        problems.append(f"runAsUserName's User length must not be longer than {MAX_WINDOWS_USER} characters")
    if re.fullmatch(r"[. ]+", user):
        problems.append("runAsUserName's User cannot contain only periods or spaces")
    if re.search(r'["/\\:;|=,+*?<>@\[\]]', user):
        problems.append(
            r'runAsUserName\'s User cannot contain the following characters: "/\:;|=,+*?<>@[]'.replace("\\'", "'")
        )
    return problems


def container_context(context: Object, field: str, *, host_users: bool) -> list[Cause]:
    """Check a container's own security context."""
    causes = _ids(context, field, "runAsUser", "runAsGroup")
    mount = context.get("procMount")
    if mount is not None:
        causes += one_of_if_set(mount, enum("core.v1.ProcMountType"), f"{field}.procMount")
        if host_users and mount == "Unmasked":
            detail = "`hostUsers` must be false to use `Unmasked`"
            causes.append(invalid_value(f"{field}.procMount", mount, detail))
    causes += _seccomp(context.get("seccompProfile"), f"{field}.seccompProfile")
    if context.get("allowPrivilegeEscalation") is False:
        refused = "cannot set `allowPrivilegeEscalation` to false and "
        if context.get("privileged"):
            shown = record(context, "SecurityContext")
            causes.append(invalid_value(field, shown, refused + "`privileged` to true"))
        for capability in (context.get("capabilities") or {}).get("add") or ():
            if capability == "CAP_SYS_ADMIN":
                shown = record(context, "SecurityContext")
                causes.append(invalid_value(field, shown, refused + "`capabilities.Add` CAP_SYS_ADMIN"))
    causes += _windows(context.get("windowsOptions"), f"{field}.windowsOptions")
    return causes + _app_armor(context.get("appArmorProfile"), f"{field}.appArmorProfile")


_NAMESPACED_SYSCTLS: Final = (
    ("hostNetwork", ("net.",)),
    ("hostIPC", ("kernel.shm", "kernel.msg", "fs.mqueue.", "kernel.sem")),
)
"""(spec field that shares a namespace with the host, prefixes of the sysctls of that namespace)."""


def _sysctls(given: list[Object], spec: Object, field: str) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, sysctl in enumerate(given):
        name, path = sysctl.get("name", ""), f"{field}[{index}].name"
        if not name:
            causes.append(required(path))
        elif len(name) > MAX_SYSCTL or not _SYSCTL.match(name):
            causes.append(invalid_value(path, name, _SYSCTL_MESSAGE))
        elif name in seen:
            causes.append(duplicate(path, name))
        seen.add(name)
        for shared, beginnings in _NAMESPACED_SYSCTLS:
            if spec.get(shared) and name.replace("/", ".").startswith(beginnings):
                causes.append(invalid_value(path, name, f"may not be specified when '{shared}' is true"))
    return causes


def pod_context(context: Object, spec: Object, field: str, options: PodOptions = USUAL) -> list[Cause]:
    """Check the security context of a pod."""
    causes = _ids(context, field, "fsGroup", "runAsUser", "runAsGroup")
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        causes += [
            Cause(cause.reason, cause.message, f"{field}.supplementalGroups[{index}]")
            for cause in _ids({"group": group}, field, "group")
        ]
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        causes.append(invalid_value(f"{field.rpartition('.')[0]}.shareProcessNamespace", True, detail))
    if context.get("sysctls"):
        causes += _sysctls(context["sysctls"], spec, f"{field}.sysctls")
    policy = context.get("fsGroupChangePolicy")
    causes += one_of_if_set(policy, enum("core.v1.PodFSGroupChangePolicy"), f"{field}.fsGroupChangePolicy")
    causes += _seccomp(context.get("seccompProfile"), f"{field}.seccompProfile")
    causes += _windows(context.get("windowsOptions"), f"{field}.windowsOptions")
    causes += _app_armor(context.get("appArmorProfile"), f"{field}.appArmorProfile")
    policy = context.get("supplementalGroupsPolicy")
    causes += one_of_if_set(policy, enum("core.v1.SupplementalGroupsPolicy"), f"{field}.supplementalGroupsPolicy")
    choices = ("MountOption", "Recursive") if options.mounts_with_label else ("Recursive",)
    return causes + one_of_if_set(context.get("seLinuxChangePolicy"), choices, f"{field}.seLinuxChangePolicy")


def share_process_namespace(spec: Object, field: str) -> list[Cause]:
    """Check the process namespace of a pod without a security context."""
    return pod_context({}, spec, f"{field}.securityContext")


# -- operating system -------------------------------------------------------------------------------------------------

_NOT_FOR_WINDOWS: Final = "cannot be set for a windows pod"
_LINUX_POD: Final = (
    ("securityContext", "appArmorProfile"),
    ("securityContext", "seLinuxOptions"),
    ("", "hostUsers"),
    ("", "hostPID"),
    ("", "hostIPC"),
    ("securityContext", "seccompProfile"),
    ("securityContext", "fsGroup"),
    ("securityContext", "fsGroupChangePolicy"),
    ("securityContext", "sysctls"),
    ("", "shareProcessNamespace"),
    ("securityContext", "runAsUser"),
    ("securityContext", "runAsGroup"),
    ("securityContext", "supplementalGroups"),
    ("securityContext", "supplementalGroupsPolicy"),
    ("securityContext", "seLinuxChangePolicy"),
)
_SWITCHES: Final = ("hostPID", "hostIPC", "sysctls")
"""Fields that count as absent when they are false or empty."""

_LINUX_CONTAINER: Final = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
)


def operating_system(spec: Object, field: str) -> list[Cause]:
    """Reject fields of the other operating system in a pod that names its own."""
    name = spec["os"].get("name", "")
    if not name:
        return [required(f"{field}.os.name")]
    if name not in ("linux", "windows"):
        return [not_supported(f"{field}.os", name, ("linux", "windows"))]
    return _for_linux(spec, field) if name == "linux" else _for_windows(spec, field)


def _for_linux(spec: Object, field: str) -> list[Cause]:
    detail = "windows options cannot be set for a linux pod"
    holders = [(spec, field), *containers_of(spec, field)]
    return [
        forbidden(f"{path}.securityContext.windowsOptions", detail)
        for holder, path in holders
        if (holder.get("securityContext") or {}).get("windowsOptions") is not None
    ]


def _for_windows(spec: Object, field: str) -> list[Cause]:
    causes: list[Cause] = []
    context = spec.get("securityContext") or {}
    for above, name in _LINUX_POD:
        value = context.get(name) if above else spec.get(name)
        if value is not None and (value or name not in _SWITCHES):
            causes.append(forbidden(f"{field}.{above}.{name}" if above else f"{field}.{name}", _NOT_FOR_WINDOWS))
    for container, path in containers_of(spec, field):
        own = container.get("securityContext") or {}
        causes += [
            forbidden(f"{path}.securityContext.{name}", _NOT_FOR_WINDOWS)
            for name in _LINUX_CONTAINER
            if own.get(name) is not None
        ]
    return causes


def host_processes(spec: Object, field: str) -> list[Cause]:
    """Check that all containers run as Windows host processes, or none."""
    causes: list[Cause] = []
    of_pod = ((spec.get("securityContext") or {}).get("windowsOptions") or {}).get("hostProcess")
    count = total = 0
    for container, path in containers_of(spec, field):
        total += 1
        own = ((container.get("securityContext") or {}).get("windowsOptions") or {}).get("hostProcess")
        if of_pod is not None and own is not None and of_pod != own:
            detail = f"pod hostProcess value must be identical if both are specified, was {str(of_pod).lower()}"
            causes.append(invalid_value(f"{path}.securityContext.windowsOptions.hostProcess", own, detail))
        count += bool(own if own is not None else of_pod)
    if count and count != total:
        detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        causes.append(invalid_value(field, "", detail))
    if count and not spec.get("hostNetwork"):
        detail = "hostNetwork must be true if pod contains any hostProcess containers"
        causes.append(invalid_value(f"{field}.hostNetwork", False, detail))
    return causes
