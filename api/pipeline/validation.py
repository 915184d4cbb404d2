"""Validation of a write: the checks of metadata that all kinds share, and those of the kind, in Kubernetes' order."""

from __future__ import annotations

from kubechronicle.api.errors.field_errors import Cause, invalid_value
from kubechronicle.api.meta import metadata
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.strategy.strategy import Strategy, SubresourceStrategy
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object


def validate_create(rt: ResourceType, strategy: Strategy, obj: Object) -> list[Cause]:
    """Return the problems of a new object."""
    meta = obj["metadata"]
    causes = _validate_metadata(rt, strategy, meta) if strategy.checks_metadata else []
    causes += strategy.validate(obj) + strategy.validate_as(rt.api_version, obj, None)
    if not causes and not strategy.checks_metadata:
        causes = _validate_common(rt, meta)
    return causes


def validate_update(
    rt: ResourceType, strategy: Strategy, below: SubresourceStrategy | None, new: Object, old: Object
) -> list[Cause]:
    """Return the problems of a change, of the object or through the subresource ``below``."""
    # Kubernetes checks metadata up to four times, and reports each problem as often. One check finds valid metadata.
    meta, held = new["metadata"], old["metadata"]
    kube = strategy.kube_finalizers
    common = _validate_common(rt, meta) + metadata.validate_update(meta, held, kube=False)
    again = bool(common or (kube and metadata.validate_kube_finalizers(meta.get("finalizers", ()), "")))
    moved = metadata.validate_update(meta, held, kube=kube) if again and strategy.checks_metadata_change else []
    if below is not None:
        lenient = rt.api_version in below.lenient_in
        return common + moved + ([] if lenient else below.validate_update(new, old))
    if strategy.validates_whole_update:
        whole = _validate_metadata(rt, strategy, meta) if again else _validate_name(strategy, meta)
        whole += strategy.validate(new)
        changed = moved + strategy.validate_update(new, old)
        return common + (whole + changed if strategy.validates_first else changed + whole)
    common += moved
    if strategy.validates_spec_update:
        common += strategy.validate(new)
    return common + strategy.validate_update(new, old) + strategy.validate_as(rt.api_version, new, old)


def _validate_name(strategy: Strategy, meta: Object) -> list[Cause]:
    check = names.NAME_CHECKS[strategy.names]
    prefix, name = meta.get("generateName", ""), meta.get("name", "")
    causes = [invalid_value("metadata.generateName", prefix, text) for text in check(prefix, True)] if prefix else []
    return causes + [invalid_value("metadata.name", name, text) for text in check(name, False)]


def _validate_metadata(rt: ResourceType, strategy: Strategy, meta: Object) -> list[Cause]:
    check = names.NAME_CHECKS[strategy.names]
    return metadata.validate(meta, namespaced=rt.namespaced, name_check=check, kube=strategy.kube_finalizers)


def _validate_common(rt: ResourceType, meta: Object) -> list[Cause]:
    return metadata.validate(meta, namespaced=rt.namespaced, name_check=names.segment_name, kube=False)
