"""Creation and update of objects through the pipeline, and the causes of a rejection."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubechronicle.api.builtin.kinds import KindRules
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.pipeline.pipeline import Prepared, WriteContext
from kubechronicle.api.registry.registry import ResourceType, known_registry

NOW = "2026-03-04T05:06:07Z"
Object = dict[str, Any]


def type_of(path: str) -> ResourceType:
    rt = known_registry().lookup(*path.split("/"))
    assert rt is not None
    return rt


def rules_with(*gates: str) -> KindRules:
    """Return the rules of a server with these feature gates on."""
    return KindRules(FeatureGates(given=dict.fromkeys(gates, True)))


def context(path: str, *, name: str = "", subresource: str = "") -> WriteContext:
    rt = type_of(path)
    namespace = "shop" if rt.namespaced else ""
    return WriteContext(now=NOW, uid="u-1", manager="m", namespace=namespace, name=name, subresource=subresource)


def create(path: str, body: Object, name: str = "one", rules: KindRules | None = None) -> Object:
    rt = type_of(path)
    ctx = context(path)
    body = {**copy.deepcopy(body), "metadata": {"name": name, **body.get("metadata", {})}}
    obj, _ = pipeline.decode_object(rt, body, ctx, create=True)
    return pipeline.prepare_create(rt, obj, ctx, rules).object


def update(
    path: str, stored: Object, change: Object, subresource: str = "", rules: KindRules | None = None
) -> Prepared:
    """Update a stored object: set the members of ``change``, one level deep."""
    rt = type_of(path)
    held = {**stored, "metadata": {**stored["metadata"], "resourceVersion": "7"}}
    wanted = {**copy.deepcopy(held), "apiVersion": rt.api_version}
    for member, value in change.items():
        wanted[member] = {**wanted.get(member, {}), **value} if isinstance(value, dict) else value
    ctx = context(path, name=held["metadata"]["name"], subresource=subresource)
    new, _ = pipeline.decode_object(rt, wanted, ctx, create=False)
    return pipeline.prepare_update(rt, held, new, ctx, rules)


def causes(error: StatusError) -> list[str]:
    return [f"{cause['field']}: {cause['message']}" for cause in (error.details or {})["causes"]]


def rejections_of(
    path: str,
    body: Object,
    change: Object | None = None,
    *,
    name: str = "one",
    below: str = "",
    rules: KindRules | None = None,
) -> list[str]:
    """Return the causes of a rejected creation, or of the rejected update of a created object."""
    if change is None:
        with pytest.raises(StatusError) as rejected:
            create(path, body, name, rules)
    else:
        stored = create(path, body, name, rules)
        with pytest.raises(StatusError) as rejected:
            update(path, stored, change, below, rules)
    assert rejected.value.code == 422
    return causes(rejected.value)
