"""Validation of a write: the checks of metadata that all kinds share, and those of the kind, in Kubernetes' order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.declarative.enforcement import DeclaredRules
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import Cause, invalid_value, shown
from kubechronicle.api.meta import metadata
from kubechronicle.api.meta.template_metadata import IN_TEMPLATES_OF_PODS
from kubechronicle.api.pipeline import conversion
from kubechronicle.api.pipeline.conversion import storage_kind
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.schema.empties import Empty, named, put_back
from kubechronicle.api.schema.named_texts import print_by_type
from kubechronicle.api.strategy.strategy import Check, Strategy, WriteContext
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object

# -- preconditions -----------------------------------------------------------------------------------------------------
#
# The uid and the resourceVersion of a write as preconditions, in the words of Kubernetes' store.

PREFIXES: Final = {
    "customresourcedefinitions.apiextensions.k8s.io": "apiextensions.k8s.io/customresourcedefinitions",
    "endpoints": "services/endpoints",
    "ingresses.networking.k8s.io": "ingress",
    "nodes": "minions",
    "replicationcontrollers": "controllers",
    "services": "services/specs",
}
"""Resource -> the prefix of its keys in etcd, if that is not its name."""


def check_uid(
    rt: ResourceType, meta: Mapping[str, Any], held: str, *, name: str, namespace: str, dry_run: bool
) -> None:
    """Check that metadata has no uid other than ``held``, the stored object's or "". 409 otherwise."""
    uid = meta.get("uid")
    if not uid or uid == held:
        return
    key = "/".join(filter(None, (_prefix(rt), namespace, name)))
    prefix = "" if dry_run else "/registry"
    why = (
        f"StorageError: invalid object, Code: 4, Key: {prefix}/{key}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {uid}, UID in object meta: {held}"
    )
    raise status.conflict(rt, name, why)


def _prefix(rt: ResourceType) -> str:
    return PREFIXES.get(rt.resource, rt.plural) if rt.custom is None else f"{rt.group}/{rt.plural}"


def check_revision(
    rt: ResourceType, strategy: Strategy, meta: Object, held: Object, expected: int, ctx: WriteContext
) -> None:
    """Check the resourceVersion of an update: 409 if it is not ``expected``, 422 if it is needed and missing."""
    name = ctx.name or held.get("name", "")
    given = metadata.parse_revision(meta)
    may_overwrite = strategy.unconditional_update or rt.api_version in strategy.unconditional_in
    if given == expected or (given == 0 and may_overwrite):
        return
    if given:
        raise status.conflict(rt, name)
    # Kubernetes names the resource here; other errors name the kind.
    cause = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
    raise status.invalid(rt.group, rt.plural, name, [cause])


def rejection_of_revision(meta: Object, ctx: WriteContext) -> status.StatusError | None:
    """Take the resourceVersion from the metadata of a new object. Return the store's error if it has one."""
    revision = meta.pop("resourceVersion", "")
    if ctx.dry_run and revision and not ctx.applies:
        meta["resourceVersion"] = revision  # kube-apiserver does not reach the check of its store
    elif not ctx.name and revision.isdigit() and int(revision):
        meta["resourceVersion"] = revision  # for validating admission; the object is not stored
        return status.unknown("resourceVersion should not be set on objects to be created")
    return None


# -- validation --------------------------------------------------------------------------------------------------------

ANY_NAME: Final = "any"
"""Key of names.NAME_CHECKS for kinds that leave the name to the common rules."""
NUL: Final = "\0"
"""The one character that no text of Postgres holds. Kubernetes allows it in the names of Events and of RBAC's kinds."""


def validate_create(
    rt: ResourceType, strategy: Strategy, declared: DeclaredRules, obj: Object, known: Sequence[Cause] = ()
) -> list[Cause]:
    """Return the problems of a new object. ``known``: problems that were found before."""
    meta = obj["metadata"]
    causes = _validate_metadata(rt, strategy, meta) if strategy.checks_metadata else []
    causes += strategy.validate(obj) + strategy.validate_as(rt.api_version, obj, None)
    if not causes and (not strategy.checks_metadata or strategy.names == ANY_NAME):
        causes = _validate_common(rt, meta)
    causes = [*_once(strategy, causes), *_declared(rt, strategy, declared, "", obj, None)]
    name = meta.get("name", "")
    if NUL in name:
        causes.append(invalid_value("metadata.name", name, "must not contain the character NUL"))
    return _printed(rt, [*known, *causes])


def validate_update(
    rt: ResourceType,
    strategy: Strategy,
    declared: DeclaredRules,
    subresource: str,
    new: Object,
    old: Object,
    known: Sequence[Cause] = (),
    now: str = "",
) -> list[Cause]:
    """Return the problems of a change at the time ``now``, of the object or through a subresource.

    ``known``: problems that were found before those of the kind's rules.
    """
    # Kubernetes checks metadata up to four times, and reports each problem as often. One check finds valid metadata.
    meta, held = new["metadata"], old["metadata"]
    kube = strategy.kube_finalizers
    causes = _validate_common(rt, meta) + metadata.validate_update(meta, held, kube=False)
    again = bool(causes or (kube and metadata.validate_kube_finalizers(meta.get("finalizers", ()), "")))
    causes += known
    below = strategy.subresources.get(subresource) if subresource else None
    checks = strategy.update_checks if below is None else below.checks
    change = strategy.validate_update if below is None else below.validate_update
    for check in checks:
        if check is Check.METADATA:
            causes += _validate_metadata(rt, strategy, meta) if again else _validate_name(strategy, meta)
        elif check is Check.METADATA_CHANGE:
            causes += metadata.validate_update(meta, held, kube=kube) if again else ()
        elif check is Check.OBJECT:
            changed = strategy.validate_changed
            causes += strategy.validate(new) if changed is None else changed(new, old)
        elif below is None or rt.api_version not in below.lenient_in:
            causes += change(new, old)
            causes += () if below is None or below.validate_now is None else below.validate_now(new, old, now)
    if below is None:
        causes += strategy.validate_as(rt.api_version, new, old)
    causes = [*_once(strategy, causes), *_declared(rt, strategy, declared, subresource, new, old)]
    return _printed(rt, causes)


def _once(strategy: Strategy, causes: list[Cause]) -> list[Cause]:
    """Return what code has found, without repetitions if the kind's strategy goes on with tags."""
    if strategy.repeats_causes or len(causes) < 2:
        return causes
    return list({(cause.field, cause.reason, cause.message): cause for cause in reversed(causes)}.values())[::-1]


def _declared(
    rt: ResourceType, strategy: Strategy, declared: DeclaredRules, subresource: str, new: Object, old: Object | None
) -> Sequence[Cause]:
    """Return the problems that tags of the kind find, in the version of the request."""
    if not rt.definition or not declared.has(rt.definition):
        return ()
    if not rt.is_storage_version:
        new = conversion.convert(new, rt.api_version)
        old = None if old is None else conversion.convert(old, rt.api_version)
    return declared.causes(
        rt.definition, subresource, new, old, strategy.options_in_use, with_code=strategy.checks_immutable
    )


def _printed(rt: ResourceType, causes: list[Cause]) -> list[Cause]:
    if causes and rt.definition:
        print_by_type(causes, storage_kind(rt))
    return causes


def problems(
    obj: Object, strategy: Strategy, empties: Sequence[Empty], validate: Callable[[], list[Cause]]
) -> list[Cause]:
    """Return the problems that ``validate`` finds in an object, as they read with the empty lists of the request."""
    if not empties:
        return validate()
    restored = put_back(obj, named(empties, strategy.empties + IN_TEMPLATES_OF_PODS))
    causes = validate()
    restored.undo()
    return _in_full(causes, obj, empties, validate) if causes else causes


def _in_full(
    causes: list[Cause], obj: Object, empties: Sequence[Empty], validate: Callable[[], list[Cause]]
) -> list[Cause]:
    """Return the causes with the text that they have while all empty lists are there: ``[]`` instead of null.

    ``validate`` runs once more. A cause that it does not find again keeps its text.
    """
    restored = put_back(obj, empties)
    again: dict[tuple[str, str], list[Cause]] = {}
    for cause in reversed(validate()):
        again.setdefault((cause.reason, cause.field), []).append(cause)
    result = [found.pop() if (found := again.get((cause.reason, cause.field))) else cause for cause in causes]
    for cause in shown(result):
        _ = cause.message  # joined here, before its values change
    restored.undo()
    return result


def _name_check(strategy: Strategy) -> names.NameCheck:
    return strategy.check_name or names.NAME_CHECKS[strategy.names]


def _validate_name(strategy: Strategy, meta: Object) -> list[Cause]:
    check = _name_check(strategy)
    prefix, name = meta.get("generateName", ""), meta.get("name", "")
    causes = [invalid_value("metadata.generateName", prefix, text) for text in check(prefix, True)] if prefix else []
    return causes + [invalid_value("metadata.name", name, text) for text in check(name, False)]


def _validate_metadata(rt: ResourceType, strategy: Strategy, meta: Object) -> list[Cause]:
    check = _name_check(strategy)
    return metadata.validate(meta, namespaced=rt.namespaced, name_check=check, kube=strategy.kube_finalizers)


def _validate_common(rt: ResourceType, meta: Object) -> list[Cause]:
    return metadata.validate(meta, namespaced=rt.namespaced, name_check=names.segment_name, kube=False)
