"""Resource types of a definition, and writes of their objects without a server, for tests."""

from __future__ import annotations

from typing import Any

import orjson

from kubechronicle.api.custom.served import resource_types
from kubechronicle.api.pipeline import patches, patching, pipeline
from kubechronicle.api.pipeline.pipeline import Outcome, Prepared, WriteContext
from kubechronicle.api.registry.registry import ResourceType

GROUP = "g.example.com"
NOW = "2026-11-21T02:30:00Z"

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
SPEC: dict[str, Any] = {
    "replicas": NUMBER,
    "size": {**NUMBER, "default": 3, "minimum": 0},
    "name": {**TEXT, "maxLength": 5},
    "nul": {**TEXT, "nullable": True},
    "any": {"x-kubernetes-preserve-unknown-fields": True},
    "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
    "labels": {"type": "object", "additionalProperties": TEXT},
    "raw": {"type": "object"},
    "rule": {**NUMBER, "x-kubernetes-validations": [{"rule": "self != 7", "message": "must not be 7"}]},
}
STATUS = {"type": "object", "properties": {"replicas": NUMBER, "selector": TEXT, "phase": {**TEXT, "enum": ["A", "B"]}}}
SCHEMA = {"type": "object", "properties": {"spec": {"type": "object", "properties": SPEC}, "status": STATUS}}
SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.selector",
}


def definition(*, subresources: dict[str, Any] | None = None, older: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a definition of Widgets, in version v1 and (with ``older``, its schema) v1beta1."""
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    versions: list[dict[str, Any]] = [
        {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": SCHEMA},
            "subresources": {"status": {}, "scale": SCALE} if subresources is None else subresources,
        }
    ]
    if older is not None:
        versions.append({"name": "v1beta1", "served": True, "storage": False, "schema": {"openAPIV3Schema": older}})
    return {
        "metadata": {"name": f"widgets.{GROUP}", "uid": "d"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": versions},
        "status": {"acceptedNames": names},
    }


def widgets(**options: Any) -> ResourceType:
    return resource_types(definition(**options))[0]


def widget(spec: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    obj: dict[str, Any] = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": "a"}, **more}
    return obj if spec is None else {**obj, "spec": spec}


def context(manager: str, **more: Any) -> WriteContext:
    return WriteContext(now=NOW, uid="u", name_suffix="xxxxx", manager=manager, namespace="n", **more)


def decoded(rt: ResourceType, obj: dict[str, Any], **more: Any) -> tuple[dict[str, Any], list[str]]:
    raw = orjson.dumps(obj)
    return pipeline.decode_object(rt, orjson.loads(raw), context("one", **more), create=True, raw=raw)


def create(rt: ResourceType, obj: dict[str, Any], manager: str = "one") -> Prepared:
    return pipeline.prepare_create(rt, decoded(rt, obj)[0], context(manager))


def stored(prepared: Prepared, revision: int = 5) -> dict[str, Any]:
    """Return the stored object of a write, decoded again and with its resourceVersion."""
    assert prepared.outcome is Outcome.STORE
    obj: dict[str, Any] = orjson.loads(orjson.dumps(prepared.object))
    obj["metadata"]["resourceVersion"] = str(revision)
    return obj


def patch(
    rt: ResourceType,
    old: dict[str, Any],
    body: Any,
    manager: str = "two",
    media_type: str = patching.MERGE_PATCH,
    **more: Any,
) -> Prepared:
    applies = media_type == patching.APPLY_YAML
    ctx = context(manager, name="a", patches=True, applies=applies, **more)
    new, _ = patches.apply_patch(rt, orjson.loads(orjson.dumps(old)), media_type, orjson.dumps(body), ctx)
    return pipeline.prepare_update(rt, old, new, ctx)


def apply(rt: ResourceType, old: dict[str, Any], body: Any, manager: str, **more: Any) -> Prepared:
    return patch(rt, old, body, manager, patching.APPLY_YAML, **more)
