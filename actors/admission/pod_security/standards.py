"""The Pod Security Standards as a table: level and version → checks (k8s.io/pod-security-admission/policy)."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

from kubechronicle.actors.admission.pod_security import checks
from kubechronicle.actors.admission.pod_security.checks import CheckPod
from kubechronicle.api.features.gates import PROGRAM
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.steps import Steps

PRIVILEGED: Final = "privileged"
BASELINE: Final = "baseline"
RESTRICTED: Final = "restricted"
NEWEST_MINOR: Final = PROGRAM.minor
"""The version of ``latest`` and of every later version, unless an older one is emulated."""


@dataclass(frozen=True, slots=True)
class StandardRow:
    """One rule of a standard.

    ``versions``: (first minor version, check), ascending.
    ``overrides``: the baseline rules it replaces.
    """

    id: str
    versions: tuple[tuple[int, CheckPod], ...]
    overrides: tuple[str, ...] = ()

    def check_of(self, minor: int) -> CheckPod | None:
        latest = None
        for first, check in self.versions:
            if first <= minor:
                latest = check
        return latest


# In the order of their messages: bytewise by id.
BASELINE_ROWS: Final = (
    StandardRow("appArmorProfile", ((0, checks.apparmor),)),
    StandardRow("capabilities_baseline", ((0, checks.capabilities),)),
    StandardRow("hostNamespaces", ((0, checks.host_namespaces),)),
    StandardRow("hostPathVolumes", ((0, checks.host_paths),)),
    StandardRow("hostPorts", ((0, checks.host_ports),)),
    StandardRow("hostProbesAndHostLifecycle", ((34, checks.host_probes),)),
    StandardRow("privileged", ((0, checks.privileged),)),
    StandardRow(
        "procMount", ((0, checks.proc_mount), (35, checks.unless(checks.in_user_namespace, checks.proc_mount)))
    ),
    StandardRow(
        "seLinuxOptions",
        (
            (0, checks.selinux(checks.SELINUX_TYPES)),
            (31, checks.selinux(checks.SELINUX_TYPES | {"container_engine_t"})),
        ),
    ),
    StandardRow("seccompProfile_baseline", ((0, checks.seccomp_annotations), (19, checks.seccomp))),
    StandardRow("sysctls", tuple((since, checks.sysctls(since)) for since, _ in checks.SYSCTLS)),
    StandardRow("windowsHostProcess", ((0, checks.host_process),)),
)
RESTRICTED_ROWS: Final = (
    StandardRow(
        "allowPrivilegeEscalation",
        ((8, checks.escalation), (25, checks.unless(checks.for_windows, checks.escalation))),
    ),
    StandardRow(
        "capabilities_restricted",
        ((22, checks.no_capabilities), (25, checks.unless(checks.for_windows, checks.no_capabilities))),
        ("capabilities_baseline",),
    ),
    StandardRow("procMount_restricted", ((35, checks.proc_mount),), ("procMount",)),
    StandardRow("restrictedVolumes", ((0, checks.volumes_of_kinds),), ("hostPathVolumes",)),
    StandardRow("runAsNonRoot", ((0, checks.non_root), (35, checks.unless(checks.in_user_namespace, checks.non_root)))),
    StandardRow("runAsUser", ((23, checks.user), (35, checks.unless(checks.in_user_namespace, checks.user)))),
    StandardRow(
        "seccompProfile_restricted",
        ((19, checks.seccomp_set), (25, checks.unless(checks.for_windows, checks.seccomp_set))),
        ("seccompProfile_baseline",),
    ),
)


@functools.cache
def checks_of(level: str, minor: int) -> tuple[CheckPod, ...]:
    """Return the checks of a level in a version, in the order of their messages."""
    if level == PRIVILEGED:
        return ()
    baseline, restricted = BASELINE_ROWS, RESTRICTED_ROWS if level == RESTRICTED else ()
    replaced = {name for row in restricted if row.check_of(minor) is not None for name in row.overrides}
    rows = [row for row in baseline if row.id not in replaced] + list(restricted)
    return tuple(check for row in rows if (check := row.check_of(minor)) is not None)


def evaluate(level: str, minor: int, meta: Object, spec: Object) -> Steps[list[tuple[str, str]]]:
    """Return (reason, detail) of every violation of the level in the pod. Each check looks at all containers."""
    found = []
    for check in checks_of(level, minor):
        if (violation := check(meta, spec)) is not None:
            found.append(violation)
        yield
    return found
