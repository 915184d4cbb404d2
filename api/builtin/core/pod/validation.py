"""Validation of the creation and update of pods.

The status is in validation_status.py, the other subresources in validation_subresources.py, and the rules that pods
share with templates in validation_spec.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.builtin.common.checks import MAX_INT32, MIRROR, descending_path, in_range, sorted_labels
from kubechronicle.api.builtin.common.go_shapes import difference, record
from kubechronicle.api.builtin.common.scheduling import REQUIRED, tolerations
from kubechronicle.api.builtin.core.pod.options import USUAL, PodOptions
from kubechronicle.api.builtin.core.pod.validation_containers import trimmed_image
from kubechronicle.api.builtin.core.pod.validation_security import containers_of
from kubechronicle.api.builtin.core.pod.validation_spec import pod_spec
from kubechronicle.api.errors.field_errors import Cause, forbidden, go_quote, invalid_value, required
from kubechronicle.api.strategy.strategy import keep
from kubechronicle.api.values.objects import Object

# -- validation -------------------------------------------------------------------------------------------------------

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_COST: Final = re.compile(r"(0|-?[1-9][0-9]*)\Z")


def pod(obj: Object, options: PodOptions = USUAL) -> list[Cause]:
    """Check a new pod."""
    spec = obj["spec"]
    causes = metadata_and_spec(obj, options)
    if spec.get("ephemeralContainers"):
        causes.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        causes.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    if obj["metadata"].get("annotations"):
        causes += matching_profiles(obj["metadata"]["annotations"], spec, "spec")
    return causes


def metadata_and_spec(obj: Object, options: PodOptions = USUAL) -> list[Cause]:
    """Check the rules that hold for a new and for a changed pod."""
    spec, metadata = obj["spec"], obj["metadata"]
    causes: list[Cause] = []
    if metadata.get("annotations"):
        causes += specific_annotations(metadata["annotations"], spec, "metadata.annotations", options)
    causes += pod_spec(spec, "spec", metadata, options)
    if not spec.get("serviceAccountName"):
        for index, volume in enumerate(spec.get("volumes") or ()):
            for position, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
                if source.get("serviceAccountToken") is not None:
                    path = f"spec.volumes[{index}].projected.sources[{position}].serviceAccountToken"
                    causes.append(forbidden(path, "must not be specified when serviceAccountName is not set"))
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            causes += trimmed_image(container, f"spec.{group}[{index}]")
    return causes


def specific_annotations(
    annotations: Mapping[str, str], spec: Object, field: str, options: PodOptions = USUAL
) -> list[Cause]:
    """Check the annotations that the server interprets."""
    causes: list[Cause] = []
    if MIRROR in annotations and not spec.get("nodeName"):
        detail = "must set spec.nodeName if mirror pod annotation is set"
        causes.append(invalid_value(f"{field}[{MIRROR}]", annotations[MIRROR], detail))
    cost = annotations.get(DELETION_COST) if options.deletion_costs else None
    if cost is not None and not (_COST.match(cost) and -MAX_INT32 - 1 <= int(cost) <= MAX_INT32):
        causes.append(invalid_value(f"{field}[{DELETION_COST}]", cost, "must be a 32bit integer"))
    return causes + profile_annotations(annotations, spec, field)


POD_UPDATE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_CHANGEABLE: Final = ("activeDeadlineSeconds", "tolerations", "schedulingGates")


def pod_update(new: Object, old: Object, options: PodOptions = USUAL) -> list[Cause]:
    """Check a changed pod: only images, the deadline, more tolerations and fewer scheduling gates may change."""
    causes = metadata_and_spec(new, options) + immutable_annotations(new, old)
    spec, held = new["spec"], old["spec"]
    for group in ("containers", "initContainers"):
        wanted, present = spec.get(group) or (), held.get(group) or ()
        if len(wanted) != len(present):
            return [*causes, forbidden(f"spec.{group}", "pod updates may not add or remove containers")]
        for index, container in enumerate(wanted):
            if not container.get("image"):
                causes.append(required(f"spec.{group}[{index}].image"))
            causes += trimmed_image(container, f"spec.{group}[{index}]")
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
    if spec.get("tolerations") != held.get("tolerations"):
        causes += _more_tolerations(
            spec.get("tolerations") or (),
            held.get("tolerations") or (),
            comparing=options.comparing_tolerations,
        )
    causes += _fewer_gates(spec.get("schedulingGates") or (), held.get("schedulingGates") or ())
    return causes if spec == held else causes + _frozen(spec, held)


def _frozen(spec: Object, held: Object) -> list[Cause]:
    """Reject changes of fields that are immutable: compare the specs with all changeable fields reset to their old
    values."""
    causes: list[Cause] = []
    wanted = dict(spec)
    for name in _CHANGEABLE:
        keep(name, wanted, held)
    for group in ("containers", "initContainers"):
        if spec.get(group):
            wanted[group] = [
                {**one, "image": other.get("image", "")} for one, other in zip(spec[group], held[group], strict=True)
            ]
    if held.get("terminationGracePeriodSeconds", 0) < 0 and wanted.get("terminationGracePeriodSeconds") == 1:
        wanted["terminationGracePeriodSeconds"] = held["terminationGracePeriodSeconds"]
    if held.get("schedulingGates"):
        causes += _gated(wanted, held)
    if wanted != held and record(wanted, "PodSpec", compared=True) != record(held, "PodSpec", compared=True):
        shown = difference(record(held, "PodSpec"), record(wanted, "PodSpec"))
        causes.append(forbidden("spec", f"{POD_UPDATE}\n{shown}"))
    return causes


def _gated(wanted: Object, held: Object) -> list[Cause]:
    """Check the narrowed node selection of a gated pod, and reset the changeable fields in ``wanted``."""
    causes: list[Cause] = []
    selector, before = wanted.get("nodeSelector") or {}, held.get("nodeSelector") or {}
    if any(selector.get(key) != value for key, value in before.items()):
        detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        causes.append(invalid_value("spec.nodeSelector", sorted_labels(selector), detail))
    keep("nodeSelector", wanted, held)
    affinities = [dict(part.get("affinity") or {}) for part in (wanted, held)]
    nodes = [part.get("nodeAffinity") or {} for part in affinities]
    if nodes[0] != nodes[1]:
        keep("nodeAffinity", *affinities)
        wanted["affinity"] = affinities[0]
        if not affinities[0] and "affinity" not in held:
            del wanted["affinity"]
    terms = [(part.get(REQUIRED) or {}).get("nodeSelectorTerms") or [] for part in nodes]
    path = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
    if not terms[1]:
        return causes
    shown = [record(term, "NodeSelectorTerm") for term in terms[0]]
    if len(terms[0]) != len(terms[1]):
        detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        return [*causes, invalid_value(path, shown or None, detail)]
    for index, (term, present) in enumerate(zip(*terms, strict=True)):
        if not _only_adds(term, present):
            detail = "only additions are allowed (no mutations or deletions)"
            causes.append(invalid_value(f"{path}[{index}]", shown[index], detail))
    return causes


def _only_adds(term: Object, held: Object) -> bool:
    parts = [(term.get(name) or [], held.get(name) or []) for name in ("matchExpressions", "matchFields")]
    if not any(before for _, before in parts):
        return not any(after for after, _ in parts)
    return all(after[: len(before)] == before for after, before in parts)


def immutable_annotations(new: Object, old: Object) -> list[Cause]:
    """Reject changes of the mirror pod annotation and of AppArmor annotations."""
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


def _more_tolerations(wanted: Sequence[Object], present: Sequence[Object], *, comparing: bool) -> list[Cause]:
    def without_seconds(toleration: Object) -> tuple[tuple[str, Any], ...]:
        return tuple(sorted((name, value) for name, value in toleration.items() if name != "tolerationSeconds"))

    known = set(map(without_seconds, wanted))
    if all(without_seconds(each) in known for each in present):
        return tolerations(wanted, "spec.tolerations", comparing=comparing)
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


# -- profiles ---------------------------------------------------------------------------------------------------------

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
