"""The uid and the resourceVersion of a write as preconditions, in the words of Kubernetes' store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import invalid_value
from kubechronicle.api.meta import metadata
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.strategy.strategy import Strategy
from kubechronicle.api.strategy.write_context import WriteContext
from kubechronicle.api.values.objects import Object

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
