"""The status of a definition, as kube-apiserver's controllers write it: accepted names and conditions.

Pure: each function returns the new status, or the present one if nothing changes. actors/definitions/ writes it.

    created          NamesAccepted=True, Established=True                   all names are free in the group
                     NamesAccepted=False, Established=False                 one of them is another definition's
    being deleted    Terminating=True   InstanceDeletionPending             in the step that marks the definition
                                        InstanceDeletionInProgress          its objects are being deleted
                     Terminating=False  InstanceDeletionCompleted           in the step that removes it

kube-apiserver needs two writes to establish a definition; one is enough here. Source: apiextensions-apiserver
``pkg/controller/status``, ``establish``, ``apiapproval``, ``nonstructuralschema`` and ``finalizer``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kubechronicle.api.builtin.apiextensions.validation_names import (
    APPROVED,
    BYPASSED,
    MISSING,
    approval_state,
    is_protected,
)
from kubechronicle.api.builtin.apiextensions.validation_structural import structural
from kubechronicle.api.builtin.apiextensions.validation_versions import bundle_problem
from kubechronicle.api.builtin.apiextensions.where import Where
from kubechronicle.api.errors.field_errors import aggregate, go_quote, invalid_value
from kubechronicle.api.values.objects import Object, ReadOnlyObject

CLEANUP_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"

# (status, reason, message) of Terminating.
PENDING: Final = (
    "True",
    "InstanceDeletionPending",
    "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
)
IN_PROGRESS: Final = ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
COMPLETED: Final = ("False", "InstanceDeletionCompleted", "removed all instances")
NEVER_ESTABLISHED: Final = ("False", "NeverEstablished", "resource was never established")
OVERLAPPING: Final = ("False", "OverlappingBuiltInResource", "instances overlap with built-in resources in storage")

_ESTABLISHED: Final = ("True", "InitialNamesAccepted", "the initial names have been accepted")
_NOT_ACCEPTED: Final = ("False", "NotAccepted", "not all names are accepted")
_INVALID_BUNDLE: Final = ("False", "InvalidCABundle", "The conversion webhook CABundle is invalid")
_NO_CONFLICTS: Final = ("True", "NoConflicts", "no conflicts found")

_REASONS: Final = {APPROVED: "ApprovedAnnotation", BYPASSED: "UnapprovedAnnotation", MISSING: "MissingAnnotation"}
_RESOURCE_NAMES: Final = ("plural", "singular")
_KIND_NAMES: Final = ("kind", "listKind")
_LISTS: Final = ("shortNames", "categories")
NOTHING_ACCEPTED: Final[ReadOnlyObject] = {"plural": "", "kind": ""}


def waiting(timeout: str) -> tuple[str, str, str]:
    """Return Terminating while objects remain, because of their finalizers. ``timeout``: the reason for giving up."""
    return "True", "InstanceDeletionCheck", f"could not confirm zero CustomResources remaining: {timeout}"


def failed(error: str) -> tuple[str, str, str]:
    """Return Terminating after an error of the deletion of objects."""
    return "True", "InstanceDeletionFailed", f"could not issue all deletes: {error}"


def with_condition(status: ReadOnlyObject, kind: str, state: tuple[str, str, str], *, now: str) -> Object:
    """Return the status with this condition. Its time is that of the last change of True, False or Unknown."""
    wanted, reason, message = state
    conditions = [dict(one) for one in status.get("conditions") or ()]
    held = next((one for one in conditions if one.get("type") == kind), None)
    if held is None:
        held = {"type": kind, "status": wanted, "lastTransitionTime": now}
        conditions.append(held)
    elif held.get("status") != wanted or not held.get("lastTransitionTime"):
        held |= {"status": wanted, "lastTransitionTime": now}
    held |= {"reason": reason, "message": message}
    return {**status, "conditions": conditions}


def condition(status: ReadOnlyObject, kind: str) -> ReadOnlyObject:
    """Return the condition of this type, or {}."""
    return next((one for one in status.get("conditions") or () if one.get("type") == kind), {})


def reconciled(
    definition: ReadOnlyObject, accepted_in_group: Iterable[ReadOnlyObject], *, now: str, written: Iterable[str] = ()
) -> Object:
    """Return the status that a definition should have.

    ``accepted_in_group``: status.acceptedNames of all definitions of the group, this one included.
    ``written``: the versions in which objects are stored, for a definition that does not say it. Version 0.1.0 of this
    server kept no status.storedVersions.
    """
    status: Object = dict(definition.get("status") or {})
    if not status.get("storedVersions"):
        versions = definition["spec"]["versions"]
        known = {version["name"] for version in versions}
        storage = [version["name"] for version in versions if version.get("storage")]
        status["storedVersions"] = [*sorted(known.intersection(written).difference(storage)), *storage]
    status = _with_names(definition, status, accepted_in_group, now=now)
    status = _with_establishment(definition, status, now=now)
    status = _with_approval(definition, status, now=now)
    return _with_structure(definition, status, now=now)


# -- names ------------------------------------------------------------------------------------------------------------


def _with_names(definition: ReadOnlyObject, status: Object, others: Iterable[ReadOnlyObject], *, now: str) -> Object:
    wanted, accepted = definition["spec"]["names"], status.get("acceptedNames") or NOTHING_ACCEPTED
    if same_names(wanted, accepted):
        return status
    new, state = _accepted(wanted, accepted, others)
    held = condition(status, "NamesAccepted")
    if same_names(new, accepted) and (held.get("status"), held.get("reason"), held.get("message")) == state:
        return status
    return with_condition({**status, "acceptedNames": new}, "NamesAccepted", state, now=now)


def same_names(one: ReadOnlyObject, other: ReadOnlyObject) -> bool:
    """Tell whether two sets of names are the same; an absent list is an empty one."""
    return _plain(one) == _plain(other)


def _plain(names: ReadOnlyObject) -> list[Any]:
    return [names.get(field) or "" for field in (*_RESOURCE_NAMES, *_KIND_NAMES)] + [
        names.get(field) or [] for field in _LISTS
    ]


def _accepted(
    wanted: ReadOnlyObject, accepted: ReadOnlyObject, others: Iterable[ReadOnlyObject]
) -> tuple[Object, tuple[str, str, str]]:
    """Return the names to accept, and the state of NamesAccepted: the last conflict, in the order of the fields."""
    resources: set[str] = set()
    kinds: set[str] = set()
    for names in others:
        resources.update((names.get("plural", ""), names.get("singular", ""), *(names.get("shortNames") or ())))
        kinds.update((names.get("kind", ""), names.get("listKind", "")))
    new, state = dict(accepted), _NO_CONFLICTS

    def accept(field: str, used: set[str]) -> None:
        nonlocal state
        name, own = wanted.get(field, ""), accepted.get(field, "")
        if name != own and name in used:
            state = ("False", f"{field[0].upper()}{field[1:]}Conflict", f"{go_quote(name)} is already in use")
        else:
            new[field] = name

    for field in _RESOURCE_NAMES:
        accept(field, resources)
    own_short = set(accepted.get("shortNames") or ())
    taken = [name for name in wanted.get("shortNames") or () if name not in own_short and name in resources]
    if taken:
        state = ("False", "ShortNamesConflict", _aggregated([f"{go_quote(name)} is already in use" for name in taken]))
    else:
        _copy_list(wanted, new, "shortNames")
    for field in _KIND_NAMES:
        accept(field, kinds)
    _copy_list(wanted, new, "categories")
    return new, state


def _copy_list(wanted: ReadOnlyObject, new: Object, field: str) -> None:
    if wanted.get(field):
        new[field] = list(wanted[field])
    else:
        new.pop(field, None)


def _aggregated(errors: list[str]) -> str:
    """Return several errors as one, each text once (apimachinery ``util/errors``)."""
    texts = list(dict.fromkeys(errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _with_establishment(definition: ReadOnlyObject, status: Object, *, now: str) -> Object:
    held = condition(status, "Established")
    if held.get("status") == "True":
        return status
    state = _NOT_ACCEPTED
    if condition(status, "NamesAccepted").get("status") == "True":
        state = _INVALID_BUNDLE if _has_invalid_bundle(definition["spec"]) else _ESTABLISHED
    return _changed(status, "Established", state, now=now)


def _has_invalid_bundle(spec: ReadOnlyObject) -> bool:
    webhook = (spec.get("conversion") or {}).get("webhook") or {}
    bundle: str = (webhook.get("clientConfig") or {}).get("caBundle") or ""
    return bool(bundle and bundle_problem(bundle))


def _changed(status: Object, kind: str, state: tuple[str, str, str], *, now: str) -> Object:
    """Return the status with the condition in this state; the same object if it is."""
    held = condition(status, kind)
    if (held.get("status"), held.get("reason"), held.get("message")) == state:
        return status
    return with_condition(status, kind, state, now=now)


# -- policies ---------------------------------------------------------------------------------------------------------


def _with_approval(definition: ReadOnlyObject, status: Object, *, now: str) -> Object:
    if not is_protected(definition["spec"]["group"]):
        return status
    state, reason = approval_state(definition["metadata"].get("annotations"))
    conforms = "True" if state == APPROVED else "False"
    wanted = (conforms, _REASONS.get(state, "InvalidAnnotation"), reason)
    return _changed(status, "KubernetesAPIApprovalPolicyConformant", wanted, now=now)


def _with_structure(definition: ReadOnlyObject, status: Object, *, now: str) -> Object:
    """Report a schema that is not structural. Only a definition of v1beta1 can have one: it keeps unknown fields."""
    spec, kind = definition["spec"], "NonStructuralSchema"
    if not spec.get("preserveUnknownFields"):
        conditions = status.get("conditions") or ()
        if not condition(status, kind):
            return status
        return {**status, "conditions": [one for one in conditions if one.get("type") != kind]}
    causes = [invalid_value("spec.preserveUnknownFields", True, "must be false")]
    for index, version in enumerate(spec["versions"]):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is not None:
            causes += structural(schema, Where.of(f"spec.versions[{index}].schema.openAPIV3Schema"))
    return _changed(status, kind, ("True", "Violations", aggregate(causes)), now=now)
