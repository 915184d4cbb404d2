"""Creation and update of objects through the pipeline, and the causes of a rejection."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.pipeline.pipeline import Prepared, WriteContext
from kubechronicle.api.registry.registry import builtin_registry

NOW = "2026-03-04T05:06:07Z"
Object = dict[str, Any]


def context(path: str, *, name: str = "", subresource: str = "") -> WriteContext:
    rt = builtin_registry().lookup(*path.split("/"))
    assert rt is not None
    namespace = "shop" if rt.namespaced else ""
    return WriteContext(now=NOW, uid="u-1", manager="m", namespace=namespace, name=name, subresource=subresource)


def create(path: str, body: Object, name: str = "one") -> Object:
    rt = builtin_registry().lookup(*path.split("/"))
    assert rt is not None
    ctx = context(path)
    body = {**copy.deepcopy(body), "metadata": {"name": name, **body.get("metadata", {})}}
    obj, _ = pipeline.decode_object(rt, body, ctx, create=True)
    return pipeline.prepare_create(rt, obj, ctx).object


def update(path: str, stored: Object, change: Object, subresource: str = "") -> Prepared:
    """Update a stored object: set the members of ``change``, one level deep."""
    rt = builtin_registry().lookup(*path.split("/"))
    assert rt is not None
    held = {**stored, "metadata": {**stored["metadata"], "resourceVersion": "7"}}
    wanted = {**copy.deepcopy(held), "apiVersion": rt.api_version}
    for member, value in change.items():
        wanted[member] = {**wanted.get(member, {}), **value} if isinstance(value, dict) else value
    ctx = context(path, name=held["metadata"]["name"], subresource=subresource)
    new, _ = pipeline.decode_object(rt, wanted, ctx, create=False)
    return pipeline.prepare_update(rt, held, new, ctx)


def causes(error: StatusError) -> list[str]:
    return [f"{cause['field']}: {cause['message']}" for cause in (error.details or {})["causes"]]


def rejections_of(
    path: str, body: Object, change: Object | None = None, *, name: str = "one", below: str = ""
) -> list[str]:
    """Return the causes of a rejected creation, or of the rejected update of a created object."""
    if change is None:
        with pytest.raises(StatusError) as rejected:
            create(path, body, name)
    else:
        stored = create(path, body, name)
        with pytest.raises(StatusError) as rejected:
            update(path, stored, change, below)
    assert rejected.value.code == 422
    return causes(rejected.value)
