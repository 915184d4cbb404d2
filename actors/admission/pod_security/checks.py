"""The checks of the Pod Security Standards (k8s.io/pod-security-admission/policy).

A check receives a pod's metadata and spec, and returns None or (reason, detail) of a violation. Containers are checked
in the order init, ordinary, ephemeral. standards.py lists the checks of each level and version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.values.objects import Object

Violation = tuple[str, str] | None
CheckPod = Callable[[Object, Object], Violation]

APPARMOR_ANNOTATION: Final = "container.apparmor.security.beta.kubernetes.io/"
SECCOMP_POD_ANNOTATION: Final = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_ANNOTATION: Final = "container.seccomp.security.alpha.kubernetes.io/"
PROFILES: Final = ("RuntimeDefault", "Localhost")
CAPABILITIES: Final = frozenset({
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
    "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
})  # fmt: skip
SELINUX_TYPES: Final = frozenset({"", "container_t", "container_init_t", "container_kvm_t"})
VOLUMES: Final = (
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
)
# Safe sysctls, by the first version that allows them.
SYSCTLS: Final = (
    (
        0,
        "kernel.shm_rmid_forced net.ipv4.ip_local_port_range net.ipv4.tcp_syncookies net.ipv4.ping_group_range "
        "net.ipv4.ip_unprivileged_port_start",
    ),
    (27, "net.ipv4.ip_local_reserved_ports"),
    (
        29,
        "net.ipv4.tcp_keepalive_time net.ipv4.tcp_fin_timeout net.ipv4.tcp_keepalive_intvl "
        "net.ipv4.tcp_keepalive_probes",
    ),
    (32, "net.ipv4.tcp_rmem net.ipv4.tcp_wmem"),
    (37, "net.ipv4.tcp_slow_start_after_idle net.ipv4.tcp_notsent_lowat"),
)


# -- words ------------------------------------------------------------------------------------------------------------


def _quoted(items: Iterable[str]) -> str:
    return ", ".join(f'"{item}"' for item in items)


def _counted(word: str, items: Iterable[str]) -> str:
    """Return ``container "a"`` or ``containers "a", "b"``."""
    listed = list(items)
    return f"{word}{'' if len(listed) == 1 else 's'} {_quoted(listed)}"


def _containers(spec: Object) -> Iterator[tuple[str, Object, Object]]:
    """Yield (name, container, its securityContext) of every container."""
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(field) or []:
            yield container.get("name", ""), container, container.get("securityContext") or {}


def _setters(spec: Object, bad: Callable[[Object], bool]) -> list[str]:
    """Return ``pod`` and ``container "c"`` if their securityContext is bad."""
    setters = ["pod"] if bad(spec.get("securityContext") or {}) else []
    containers = [name for name, _, context in _containers(spec) if bad(context)]
    if containers:
        setters.append(_counted("container", containers))
    return setters


def in_user_namespace(spec: Object) -> bool:
    return spec.get("hostUsers") is False


def for_windows(spec: Object) -> bool:
    return (spec.get("os") or {}).get("name") == "windows"


def unless(exempt: Callable[[Object], bool], check: CheckPod) -> CheckPod:
    def checked(meta: Object, spec: Object) -> Violation:
        return None if exempt(spec) else check(meta, spec)

    return checked


# -- baseline ---------------------------------------------------------------------------------------------------------


def apparmor(meta: Object, spec: Object) -> Violation:
    values: set[str] = set()

    def bad(context: Object) -> bool:
        profile = context.get("appArmorProfile")
        if profile is None or profile.get("type") in PROFILES:
            return False
        values.add(profile.get("type", ""))
        return True

    setters = _setters(spec, bad)
    annotations = [
        f"{key}={go_quote(value)}"
        for key, value in sorted((meta.get("annotations") or {}).items())
        if key.startswith(APPARMOR_ANNOTATION)
        and value not in ("", "runtime/default")
        and not value.startswith("localhost/")
    ]
    if annotations:
        setters.append("annotation" if len(annotations) == 1 else "annotations")
    if not setters:
        return None
    listed = [*sorted(values), *annotations]
    reason = "forbidden AppArmor profile" if len(listed) == 1 else "forbidden AppArmor profiles"
    return reason, f"{' and '.join(setters)} must not set AppArmor profile type to {_quoted(listed)}"


def capabilities(meta: Object, spec: Object) -> Violation:
    containers, names = [], set()
    for name, _, context in _containers(spec):
        added = set((context.get("capabilities") or {}).get("add") or []) - CAPABILITIES
        if added:
            containers.append(name)
            names |= added
    if not containers:
        return None
    detail = f"{_counted('container', containers)} must not include {_quoted(sorted(names))}"
    return "non-default capabilities", f"{detail} in securityContext.capabilities.add"


def host_namespaces(meta: Object, spec: Object) -> Violation:
    shared = [f"{name}=true" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    return ("host namespaces", ", ".join(shared)) if shared else None


def host_paths(meta: Object, spec: Object) -> Violation:
    volumes = [one.get("name", "") for one in spec.get("volumes") or [] if one.get("hostPath") is not None]
    return ("hostPath volumes", _counted("volume", volumes)) if volumes else None


def host_ports(meta: Object, spec: Object) -> Violation:
    containers, ports = [], set()
    for name, container, _ in _containers(spec):
        used = {str(port["hostPort"]) for port in container.get("ports") or [] if port.get("hostPort")}
        if used:
            containers.append(name)
            ports |= used
    if not containers:
        return None
    uses = "uses" if len(containers) == 1 else "use"
    noun = "hostPort" if len(ports) == 1 else "hostPorts"
    return "hostPort", f"{_counted('container', containers)} {uses} {noun} {', '.join(sorted(ports))}"


def host_probes(meta: Object, spec: Object) -> Violation:
    containers, hosts = set(), set()
    for name, container, _ in _containers(spec):
        lifecycle = container.get("lifecycle") or {}
        handlers = [container.get(field) for field in ("livenessProbe", "readinessProbe", "startupProbe")]
        handlers += [lifecycle.get("postStart"), lifecycle.get("preStop")]
        for handler in filter(None, handlers):
            for action in ("httpGet", "tcpSocket"):
                host = (handler.get(action) or {}).get("host")
                if host:
                    containers.add(name)
                    hosts.add(host)
    if not containers:
        return None
    uses = "uses" if len(containers) == 1 else "use"
    detail = f"{_counted('container', sorted(containers))} {uses} {_counted('probe or lifecycle host', sorted(hosts))}"
    return "probe or lifecycle host", detail


def privileged(meta: Object, spec: Object) -> Violation:
    containers = [name for name, _, context in _containers(spec) if context.get("privileged")]
    if not containers:
        return None
    return "privileged", f"{_counted('container', containers)} must not set securityContext.privileged=true"


def proc_mount(meta: Object, spec: Object) -> Violation:
    containers, kinds = [], set()
    for name, _, context in _containers(spec):
        kind = context.get("procMount")
        if kind is not None and kind != "Default":
            containers.append(name)
            kinds.add(kind)
    if not containers:
        return None
    detail = f"{_counted('container', containers)} must not set securityContext.procMount to {_quoted(sorted(kinds))}"
    return "procMount", detail


def selinux(allowed: frozenset[str]) -> CheckPod:
    def check(meta: Object, spec: Object) -> Violation:
        kinds: set[str] = set()
        fields: set[str] = set()

        def bad(context: Object) -> bool:
            options = context.get("seLinuxOptions") or {}
            kind = options.get("type", "")
            named = {field for field in ("user", "role") if options.get(field)}
            if kind not in allowed:
                kinds.add(kind)
            fields.update(named)
            return kind not in allowed or bool(named)

        setters = _setters(spec, bad)
        if not setters:
            return None
        details = [_counted("type", sorted(kinds))] if kinds else []
        details += [f"{field} may not be set" for field in ("user", "role") if field in fields]
        text = f"{' and '.join(setters)} set forbidden securityContext.seLinuxOptions"
        return "seLinuxOptions", f"{text}: {'; '.join(details)}"

    return check


def seccomp_annotations(meta: Object, spec: Object) -> Violation:
    annotations = meta.get("annotations") or {}
    keys = [SECCOMP_POD_ANNOTATION, *(SECCOMP_ANNOTATION + name for name, _, _ in _containers(spec))]
    bad = {
        f"{key}={go_quote(annotations[key])}"
        for key in keys
        if key in annotations
        and annotations[key] not in ("runtime/default", "docker/default")
        and not annotations[key].startswith("localhost/")
    }
    if not bad:
        return None
    noun = "annotation" if len(bad) == 1 else "annotations"
    return "seccompProfile", f"forbidden {noun} {', '.join(sorted(bad))}"


def seccomp(meta: Object, spec: Object) -> Violation:
    values: set[str] = set()

    def bad(context: Object) -> bool:
        profile = context.get("seccompProfile")
        if profile is None or profile.get("type") in PROFILES:
            return False
        values.add(profile.get("type", ""))
        return True

    setters = _setters(spec, bad)
    if not setters:
        return None
    text = f"{' and '.join(setters)} must not set securityContext.seccompProfile.type"
    return "seccompProfile", f"{text} to {_quoted(sorted(values))}"


def sysctls(minor: int) -> CheckPod:
    allowed = {name for since, names in SYSCTLS if since <= minor for name in names.split()}

    def check(meta: Object, spec: Object) -> Violation:
        listed = (spec.get("securityContext") or {}).get("sysctls") or []
        bad = [one.get("name", "") for one in listed if one.get("name", "") not in allowed]
        return ("forbidden sysctls", ", ".join(bad)) if bad else None

    return check


def host_process(meta: Object, spec: Object) -> Violation:
    setters = _setters(spec, lambda context: bool((context.get("windowsOptions") or {}).get("hostProcess")))
    if not setters:
        return None
    return "hostProcess", f"{' and '.join(setters)} must not set securityContext.windowsOptions.hostProcess=true"


# -- restricted -------------------------------------------------------------------------------------------------------


def escalation(meta: Object, spec: Object) -> Violation:
    bad = [name for name, _, context in _containers(spec) if context.get("allowPrivilegeEscalation") is not False]
    if not bad:
        return None
    detail = f"{_counted('container', bad)} must set securityContext.allowPrivilegeEscalation=false"
    return "allowPrivilegeEscalation != false", detail


def no_capabilities(meta: Object, spec: Object) -> Violation:
    keeping, adding, names = [], [], set()
    for name, _, context in _containers(spec):
        capabilities = context.get("capabilities") or {}
        if "ALL" not in (capabilities.get("drop") or []):
            keeping.append(name)
        added = set(capabilities.get("add") or []) - {"NET_BIND_SERVICE"}
        if added:
            adding.append(name)
            names |= added
    details = []
    if keeping:
        details.append(f'{_counted("container", keeping)} must set securityContext.capabilities.drop=["ALL"]')
    if adding:
        text = f"{_counted('container', adding)} must not include {_quoted(sorted(names))}"
        details.append(f"{text} in securityContext.capabilities.add")
    return ("unrestricted capabilities", "; ".join(details)) if details else None


def volumes_of_kinds(meta: Object, spec: Object) -> Violation:
    volumes, kinds = [], set()
    for volume in spec.get("volumes") or []:
        if not any(volume.get(kind) is not None for kind in VOLUMES):
            volumes.append(volume.get("name", ""))
            kinds.add(next((field for field in volume if field != "name"), "unknown"))
    if not volumes:
        return None
    uses = "uses" if len(volumes) == 1 else "use"
    detail = f"{_counted('volume', volumes)} {uses} {_counted('restricted volume type', sorted(kinds))}"
    return "restricted volume types", detail


def non_root(meta: Object, spec: Object) -> Violation:
    setters = _setters(spec, lambda context: context.get("runAsNonRoot") is False)
    if setters:
        return "runAsNonRoot != true", f"{' and '.join(setters)} must not set securityContext.runAsNonRoot=false"
    if (spec.get("securityContext") or {}).get("runAsNonRoot"):
        return None
    silent = [name for name, _, context in _containers(spec) if context.get("runAsNonRoot") is None]
    if not silent:
        return None
    detail = f"pod or {_counted('container', silent)} must set securityContext.runAsNonRoot=true"
    return "runAsNonRoot != true", detail


def user(meta: Object, spec: Object) -> Violation:
    setters = _setters(spec, lambda context: context.get("runAsUser") == 0)
    return ("runAsUser=0", f"{' and '.join(setters)} must not set runAsUser=0") if setters else None


def seccomp_set(meta: Object, spec: Object) -> Violation:
    violation = seccomp(meta, spec)
    if violation is not None or (spec.get("securityContext") or {}).get("seccompProfile") is not None:
        return violation
    silent = [name for name, _, context in _containers(spec) if context.get("seccompProfile") is None]
    if not silent:
        return None
    text = f"pod or {_counted('container', silent)} must set securityContext.seccompProfile.type"
    return "seccompProfile", f'{text} to "RuntimeDefault" or "Localhost"'
