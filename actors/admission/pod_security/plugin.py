"""PodSecurity: apply the Pod Security Standards that a namespace's labels select
(k8s.io/pod-security-admission/admission).

    pod-security.kubernetes.io/enforce: baseline           pods that violate it are rejected
    pod-security.kubernetes.io/warn: restricted            the client is warned, also about workloads' templates
    pod-security.kubernetes.io/enforce-version: v1.30      the standard of that version; default: latest

A label with an unknown level or version is rejected. In an existing label it counts as restricted for ``enforce`` and
as unset for ``warn``. A configuration may set other defaults than ``privileged``, and exempt namespaces, users and
runtime classes. The audit event of a request tells the enforced standard, and violations of ``audit``'s.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kubechronicle.actors.admission.chain import (
    CREATE,
    UPDATE,
    AdmissionPlugin,
    AdmissionState,
    AdmissionSteps,
    Attributes,
    forbidden,
)
from kubechronicle.actors.admission.pod_security import standards
from kubechronicle.actors.evaluation import judge_large
from kubechronicle.actors.external_answers import awaiting
from kubechronicle.actors.large_work import QUICK_BYTES
from kubechronicle.api.configuration.admission import PodSecurityConfiguration
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import Cause, go_quote, invalid_value
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.steps import Steps, finish
from kubechronicle.eventlog.entries import Entry

PREFIX: Final = "pod-security.kubernetes.io/"
LEVELS: Final = (standards.PRIVILEGED, standards.BASELINE, standards.RESTRICTED)
MODES: Final = ("enforce", "audit", "warn")
LABELS: Final = frozenset(f"{PREFIX}{mode}{suffix}" for mode in MODES for suffix in ("", "-version"))
LATEST: Final = "latest"
# Annotations of audit events.
ENFORCED: Final = f"{PREFIX}enforce-policy"
VIOLATIONS: Final = f"{PREFIX}audit-violations"
EXEMPT: Final = f"{PREFIX}exempt"
ERROR: Final = f"{PREFIX}error"
UNLIMITED: Final = f"{standards.PRIVILEGED}:{LATEST}"
_VERSION: Final = re.compile(r"v1\.(0|[1-9][0-9]*)\Z")
# Pods of a namespace that are checked when its level rises.
MAX_PODS: Final = 3000
# Paths of pod templates in other kinds.
TEMPLATES: Final[Mapping[str, tuple[str, ...]]] = {
    "replicationcontrollers": ("spec", "template"),
    "podtemplates": ("template",),
    "replicasets.apps": ("spec", "template"),
    "deployments.apps": ("spec", "template"),
    "statefulsets.apps": ("spec", "template"),
    "daemonsets.apps": ("spec", "template"),
    "jobs.batch": ("spec", "template"),
    "cronjobs.batch": ("spec", "jobTemplate", "spec", "template"),
}
IGNORED_SUBRESOURCES: Final = frozenset(
    {"exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"}
)


@dataclass(frozen=True, slots=True)
class Standard:
    """A level in a version, "latest" or "v1.30". ``newest``: the minor version of the latest one."""

    level: str = standards.PRIVILEGED
    version: str = LATEST
    newest: int = standards.NEWEST_MINOR

    def __str__(self) -> str:
        return f"{self.level}:{self.version}"

    def violations(self, meta: Object, spec: Object) -> Steps[list[tuple[str, str]]]:
        minor = self.newest if self.version == LATEST else int(self.version.removeprefix("v1."))
        return standards.evaluate(self.level, min(minor, self.newest), meta, spec)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceStandards:
    enforce: Standard = Standard()
    audit: Standard = Standard()
    warn: Standard = Standard()

    @property
    def privileged(self) -> bool:
        return all(getattr(self, mode).level == standards.PRIVILEGED for mode in MODES)

    @property
    def reports_nothing(self) -> bool:
        return self.audit.level == self.warn.level == standards.PRIVILEGED


PERMISSIVE: Final = NamespaceStandards()


class PodSecurity(AdmissionPlugin):
    name = "PodSecurity"
    resources = frozenset({"namespaces", "pods", *TEMPLATES})

    def __init__(
        self, configuration: PodSecurityConfiguration | None = None, newest: int = standards.NEWEST_MINOR
    ) -> None:
        given = configuration or PodSecurityConfiguration()
        of = given.defaults
        self._defaults = NamespaceStandards(
            enforce=Standard(of.enforce, of.enforce_version, newest),
            audit=Standard(of.audit, of.audit_version, newest),
            warn=Standard(of.warn, of.warn_version, newest),
        )
        self._exempt = given.exemptions

    def validate(self, attributes: Attributes, state: AdmissionState) -> AdmissionSteps | None:
        if attributes.object is None:
            return None
        if attributes.rt.resource != "namespaces":
            return self._validate(attributes, attributes.object, state)
        if attributes.subresource:
            return None
        exempt = attributes.name in self._exempt.namespaces
        return _check_namespace(attributes, attributes.object, state, self._defaults, exempt=exempt)

    def _validate(self, attributes: Attributes, obj: Object, state: AdmissionState) -> AdmissionSteps | None:
        is_pod = attributes.rt.resource == "pods"
        if attributes.subresource in IGNORED_SUBRESOURCES if is_pod else attributes.subresource:
            return None
        if reason := self._exemption(attributes):
            _exempt(attributes, state, reason)
            return None
        namespace = state.peek("namespaces", "", attributes.namespace)
        if namespace is None:
            return None
        if self._defaults == PERMISSIVE and LABELS.isdisjoint(namespace.labels):
            if is_pod:
                attributes.annotations[ENFORCED] = UNLIMITED
                _count(attributes, state, Standard(), "enforce", denied=False)
            return None
        policy, causes = policy_of(namespace.labels, self._defaults)
        if not causes and is_pod and policy.privileged:
            attributes.annotations[ENFORCED] = UNLIMITED
            _count(attributes, state, policy.enforce, "enforce", denied=False)
            return None
        if not causes and not is_pod and policy.reports_nothing:
            return None
        pod = _pod_of(obj, TEMPLATES.get(attributes.rt.resource, ()))
        if pod is None or (is_pod and attributes.operation == UPDATE and not _changes_pod(attributes, obj)):
            return None
        meta, spec = pod.get("metadata") or {}, pod.get("spec") or {}
        if spec.get("runtimeClassName", "") in self._exempt.runtime_classes:
            _exempt(attributes, state, "runtimeClass")
            return None
        if causes:
            shown = ", ".join(map(str, causes))
            attributes.annotations[ERROR] = f"Failed to parse policy: {f'[{shown}]' if len(causes) > 1 else shown}"
        return _apply(policy, attributes, state, meta, spec, enforces=is_pod)

    def _exemption(self, attributes: Attributes) -> str:
        """Return the reason why no standard applies to the write, "" if they do."""
        if attributes.namespace in self._exempt.namespaces:
            return "namespace"
        return "user" if attributes.who.user in self._exempt.usernames else ""


def _exempt(attributes: Attributes, state: AdmissionState, reason: str) -> None:
    attributes.annotations[EXEMPT] = reason
    attributes.measured.append((partial(state.metrics.pod_security_exemptions.add, _labels(attributes)), 0.0))


def _count(attributes: Attributes, state: AdmissionState, standard: Standard, mode: str, *, denied: bool) -> None:
    """Count a check against a standard, by the labels of pod_security_evaluations_total."""
    version = LATEST if standard.level == standards.PRIVILEGED else standard.version
    if version != LATEST and int(version.removeprefix("v1.")) > standard.newest:
        version = "future"
    labels = ("deny" if denied else "allow", standard.level, version, mode, *_labels(attributes))
    attributes.measured.append((partial(state.metrics.pod_security.add, labels), 0.0))


def _labels(attributes: Attributes) -> tuple[str, str, str]:
    resource = "pod" if attributes.rt.resource == "pods" else "controller"
    return (attributes.operation.lower(), resource, attributes.subresource)


def _apply(
    policy: NamespaceStandards,
    attributes: Attributes,
    state: AdmissionState,
    meta: Object,
    spec: Object,
    *,
    enforces: bool,
) -> AdmissionSteps:
    """Apply the standards to a pod, or to the template of one. StatusError 403."""
    found = violations = (yield from policy.enforce.violations(meta, spec)) if enforces else []
    if enforces:
        attributes.annotations[ENFORCED] = str(policy.enforce)
        _count(attributes, state, policy.enforce, "enforce", denied=bool(violations))
    if not enforces or policy.audit != policy.enforce:
        found = yield from policy.audit.violations(meta, spec)
    if found:
        attributes.annotations[VIOLATIONS] = _would_violate(policy.audit, found)
        _count(attributes, state, policy.audit, "audit", denied=True)
    if violations:
        raise forbidden(attributes, f"violates PodSecurity {go_quote(str(policy.enforce))}: {_details(violations)}")
    if policy.warn != policy.audit:
        found = yield from policy.warn.violations(meta, spec)
    if found:
        attributes.warnings.append(_would_violate(policy.warn, found))
        _count(attributes, state, policy.warn, "warn", denied=True)


def _would_violate(standard: Standard, violations: Sequence[tuple[str, str]]) -> str:
    return f"would violate PodSecurity {go_quote(str(standard))}: {_details(violations)}"


def _pod_of(obj: Object, path: tuple[str, ...]) -> Object | None:
    node: Any = obj
    for step in path:
        node = (node or {}).get(step)
    return node if isinstance(node, dict) else None


def _details(violations: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{reason} ({detail})" if detail else reason for reason, detail in violations)


def _changes_pod(attributes: Attributes, pod: Object) -> bool:
    """Return True if an update changes images or ephemeral containers. Other updates need no check."""
    if attributes.old is None:
        return True
    new, old = pod.get("spec") or {}, attributes.before.get("spec") or {}
    for field in ("containers", "initContainers"):
        if _images(new, field) != _images(old, field):
            return True
    known = {one.get("name"): one.get("image") for one in old.get("ephemeralContainers") or []}
    added = new.get("ephemeralContainers") or []
    return any(one.get("name") not in known or known[one.get("name")] != one.get("image") for one in added)


def _images(spec: Object, field: str) -> list[Any]:
    return [container.get("image") for container in spec.get(field) or []]


# -- labels -----------------------------------------------------------------------------------------------------------


def policy_of(
    labels: Mapping[str, str], defaults: NamespaceStandards = PERMISSIVE
) -> tuple[NamespaceStandards, list[Cause]]:
    """Return the policy of the labels and their errors. Without ``warn``, a stricter ``enforce`` is used to warn."""
    causes: list[Cause] = []
    enforce = _standard(labels, "enforce", standards.RESTRICTED, defaults.enforce, causes)
    audit = _standard(labels, "audit", standards.PRIVILEGED, defaults.audit, causes)
    warn = _standard(labels, "warn", standards.PRIVILEGED, defaults.warn, causes)
    chosen = labels.get(PREFIX + "enforce", "")
    if PREFIX + "warn" not in labels and chosen in LEVELS and LEVELS.index(chosen) > LEVELS.index(defaults.warn.level):
        version = warn.version if PREFIX + "warn-version" in labels else enforce.version
        warn = Standard(enforce.level, version, enforce.newest)
    return NamespaceStandards(enforce=enforce, audit=audit, warn=warn), causes


def _standard(labels: Mapping[str, str], mode: str, fallback: str, default: Standard, causes: list[Cause]) -> Standard:
    level = labels.get(PREFIX + mode, default.level)
    if level not in LEVELS:
        path = f"metadata.labels[{PREFIX}{mode}]"
        causes.append(invalid_value(path, level, f"must be one of {', '.join(LEVELS)}"))
        level = fallback
    version = labels.get(f"{PREFIX}{mode}-version", default.version)
    if version != LATEST and not _VERSION.match(version):
        path = f"metadata.labels[{PREFIX}{mode}-version]"
        causes.append(invalid_value(path, version, 'must be "latest" or "v1.x"'))
        version = LATEST
    return Standard(level, version, default.newest)


# -- namespaces -------------------------------------------------------------------------------------------------------


def _check_namespace(
    attributes: Attributes, namespace: Object, state: AdmissionState, defaults: NamespaceStandards, *, exempt: bool
) -> AdmissionSteps | None:
    labels = namespace["metadata"].get("labels") or {}
    old_labels = attributes.old.labels if attributes.old is not None else {}
    if LABELS.isdisjoint(labels) and LABELS.isdisjoint(old_labels):
        return None
    policy, causes = policy_of(labels, defaults)
    old, old_causes = policy_of(old_labels, defaults)
    name = namespace["metadata"]["name"]
    if causes and (attributes.operation == CREATE or causes != old_causes):
        raise status.invalid("", "Namespace", name, causes)
    wanted = policy.enforce
    if exempt and attributes.operation == CREATE:
        attributes.warnings.extend(_exempt_warning(name, policy, labels, defaults))
    if attributes.operation == CREATE or wanted == old.enforce or wanted.level == standards.PRIVILEGED:
        return None
    if wanted.version == old.enforce.version and LEVELS.index(wanted.level) <= LEVELS.index(old.enforce.level):
        return None
    if exempt:
        attributes.warnings.extend(_exempt_warning(name, policy, labels, defaults))
        return None
    return _warn_of_existing(attributes, name, wanted, state.entries("pods", name))


def _exempt_warning(
    namespace: str, policy: NamespaceStandards, labels: Mapping[str, str], defaults: NamespaceStandards
) -> list[str]:
    """Return the warning that the labels of an exempt namespace have no effect, if they would have one."""
    if policy.privileged or policy == defaults:
        return []
    ignored = [
        f"{mode}={standard}"
        for mode in MODES
        if (standard := getattr(policy, mode)).level != standards.PRIVILEGED
        and (PREFIX + mode in labels or f"{PREFIX}{mode}-version" in labels)
    ]
    return [
        f"namespace {go_quote(namespace)} is exempt from Pod Security, and the policy ({', '.join(ignored)}) will be "
        "ignored"
    ]


def _warn_of_existing(
    attributes: Attributes, namespace: str, wanted: Standard, entries: Sequence[Entry]
) -> AdmissionSteps:
    """Warn of existing pods that violate the new level. One pod of each controller is checked first."""
    first: list[Entry] = []
    others: list[Entry] = []
    seen: set[str] = set()
    for entry in entries:
        yield None
        owners = entry.ending().owners or ()
        controller = next((one.get("uid", "") for one in owners if one.get("controller")), "")
        (others if controller and controller in seen else first).append(entry)
        seen.add(controller)
    pods = first + others
    breaking: dict[str, list[str]] = {}
    for pod in pods[:MAX_PODS]:
        yield None
        if len(pod.json) > QUICK_BYTES:
            look = partial(judge_large, (PodSecurity.name, pod.key, wanted), pod.revision, _reasons, wanted, pod)
            reasons = yield from awaiting(look)
        else:
            reasons = _reasons(wanted, pod)
        if reasons:
            breaking.setdefault(reasons, []).append(pod.key.name)
    warnings = attributes.warnings
    if len(pods) > MAX_PODS:
        part = f"the first {MAX_PODS} of {len(pods)} existing pods"
        warnings.append(f"new PodSecurity enforce level only checked against {part}")
    if breaking:
        subject = f"existing pods in namespace {go_quote(namespace)} violate the new PodSecurity enforce level"
        warnings.append(f"{subject} {go_quote(str(wanted))}")
    warnings += sorted(f"{_name_list(names)}: {reasons}" for reasons, names in breaking.items())


def _reasons(wanted: Standard, entry: Entry) -> str:
    """Return the reasons of all violations by an existing pod as text."""
    pod = entry.object()
    return ", ".join(reason for reason, _ in finish(wanted.violations(pod["metadata"], pod.get("spec") or {})))


def _name_list(names: list[str]) -> str:
    others = len(names) - 1
    if not others:
        return names[0]
    return f"{min(names)} (and {others} other pod{'' if others == 1 else 's'})"
