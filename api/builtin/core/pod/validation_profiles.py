"""Validation of annotations that name seccomp and AppArmor profiles, the older form of security context fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kubechronicle.api.builtin.common.checks import descending_path
from kubechronicle.api.builtin.core.pod.validation_security import containers_of
from kubechronicle.api.errors.field_errors import Cause, forbidden, go_quote, invalid_value
from kubechronicle.api.values.objects import Object

APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
SECCOMP_POD: Final = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP: Final = "container.seccomp.security.alpha.kubernetes.io/"
LOCALHOST: Final = "localhost/"
_PLAIN: Final[Mapping[str, tuple[str, ...]]] = {
    "RuntimeDefault": ("runtime/default", "docker/default"),
    "Unconfined": ("unconfined",),
}
"""Type of a profile -> its names in annotations."""


def profile_annotations(annotations: Mapping[str, str], spec: Object, field: str) -> list[Cause]:
    """Check that each annotation names a profile, and that those of AppArmor name a container."""
    causes: list[Cause] = []
    if SECCOMP_POD in annotations:
        causes += _seccomp(annotations[SECCOMP_POD], f"{field}.{SECCOMP_POD}")
    for key, profile in annotations.items():
        if key.startswith(SECCOMP):
            causes += _seccomp(profile, f"{field}.{key}")
    for key, profile in annotations.items():
        if not key.startswith(APP_ARMOR):
            continue
        name = key.removeprefix(APP_ARMOR)
        if all(container.get("name") != name for container, _ in containers_of(spec, "")):
            causes.append(invalid_value(f"{field}[{key}]", name, "container not found"))
        if profile not in ("", "runtime/default", "unconfined") and not profile.startswith(LOCALHOST):
            detail = f"invalid AppArmor profile name: {go_quote(profile)}"
            causes.append(invalid_value(f"{field}[{key}]", profile, detail))
    return causes


def _seccomp(profile: str, field: str) -> list[Cause]:
    if profile in ("runtime/default", "docker/default", "unconfined"):
        return []
    if profile.startswith(LOCALHOST):
        return descending_path(profile.removeprefix(LOCALHOST), field)
    return [invalid_value(field, profile, "must be a valid seccomp profile")]


def matching_profiles(annotations: Mapping[str, str], spec: Object, field: str) -> list[Cause]:
    """Check that an annotation and a field name the same profile."""
    causes: list[Cause] = []
    context = spec.get("securityContext") or {}
    profile = context.get("seccompProfile")
    if profile is not None and SECCOMP_POD in annotations:
        causes += _matching_profile(
            annotations[SECCOMP_POD], profile, f"{field}.securityContext.seccompProfile", "seccomp"
        )
    for container, path, own in _contexts(spec, field):
        profile, key = own.get("seccompProfile"), SECCOMP + container.get("name", "")
        if profile is not None and key in annotations:
            causes += _matching_profile(annotations[key], profile, f"{path}.securityContext.seccompProfile", "seccomp")
    if (spec.get("os") or {}).get("name") == "windows":
        return causes
    for container, path, own in _contexts(spec, field):
        profile = own.get("appArmorProfile") or context.get("appArmorProfile")
        key = APP_ARMOR + container.get("name", "")
        if profile is not None and key in annotations:
            causes += _matching_profile(
                annotations[key], profile, f"{path}.securityContext.appArmorProfile", "apparmor"
            )
    return causes


def _contexts(spec: Object, field: str) -> Iterator[tuple[Object, str, Object]]:
    for container, path in containers_of(spec, field):
        yield container, path, container.get("securityContext") or {}


def _matching_profile(annotation: str, profile: Object, field: str, profile_kind: str) -> list[Cause]:
    kind = profile.get("type", "")
    plain = _PLAIN.get(kind, ())[: 1 if profile_kind == "apparmor" else None]
    if (plain and annotation not in plain) or (kind == "Localhost" and not annotation.startswith(LOCALHOST)):
        return [forbidden(f"{field}.type", f"{profile_kind} type in annotation and field must match")]
    if kind == "Localhost" and annotation.removeprefix(LOCALHOST) != profile.get("localhostProfile"):
        return [forbidden(f"{field}.localhostProfile", f"{profile_kind} profile in annotation and field must match")]
    return []


def app_armor_field(annotation: str) -> Object | None:
    """Return the profile that an AppArmor annotation names, or None if it is invalid."""
    for kind, words in _PLAIN.items():
        if annotation == words[0]:
            return {"type": kind}
    path = annotation.removeprefix(LOCALHOST)
    if annotation.startswith(LOCALHOST) and path and path == path.strip():
        return {"type": "Localhost", "localhostProfile": path}
    return None
