"""What tests of rules write, and what they are refused with."""

from __future__ import annotations

import copy
from typing import Any

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.pipeline.pipeline import WriteContext
from kubechronicle.api.registry.registry import builtin_registry

NOW = "2026-01-01T00:00:00Z"


def refusal(
    path: str, body: dict[str, Any], after: dict[str, Any] | None = None, subresource: str = ""
) -> list[tuple[str, str]]:
    """Return (field, message) of a creation's causes, or of those of an update of what it has made to ``after``."""
    rt = builtin_registry().lookup(*path.split("/"))
    assert rt is not None
    namespace = "n" if rt.namespaced else ""
    ctx = WriteContext(now=NOW, uid="u", manager="m", namespace=namespace)

    def decoded(content: dict[str, Any], there: WriteContext, *, create: bool) -> dict[str, Any]:
        content = copy.deepcopy({**content, "metadata": {"name": "a", **content.get("metadata", {})}})
        return pipeline.decode_object(rt, content, there, create=create)[0]

    try:
        stored = pipeline.prepare_create(rt, decoded(body, ctx, create=True), ctx).object
        if after is not None:
            stored["metadata"]["resourceVersion"] = "1"
            there = WriteContext(now=NOW, uid="u", manager="m", namespace=namespace, name="a", subresource=subresource)
            wanted = {**after, "metadata": {**after.get("metadata", {}), "resourceVersion": "1"}}
            pipeline.prepare_update(rt, stored, decoded(wanted, there, create=False), there)
    except StatusError as error:
        return [(cause["field"], cause["message"]) for cause in (error.details or {})["causes"]]
    return []
