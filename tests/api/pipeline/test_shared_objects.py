"""Updates of custom objects that share the decoded stored object: the same results, and it never changes."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from custom.objects import context, create, stored, widget, widgets

from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.pipeline import patches, patching, pipeline, tracking
from kubechronicle.api.pipeline.pipeline import Prepared
from kubechronicle.api.registry.registry import ResourceType

SPEC = {"size": 4, "tags": ["a", "b"], "labels": {"k": "v"}, "any": {"deep": [1, {"x": None}]}}
METADATA = {"name": "a", "labels": {"l": "1"}, "annotations": {"n": "1"}, "finalizers": ["g.example.com/f"]}


def applied(rt: ResourceType, old: dict[str, Any], body: dict[str, Any], mark: Any, manager: str) -> Prepared:
    """Apply as the writes do. ``mark``: that of the stored entry."""
    ctx = context(manager, name="a", patches=True, applies=True, force=True)
    tracking.note_as_read(rt, old, mark, ctx)
    base = tracking.seen_by_apply(ctx)
    assert (base is old) == (mark in rt.custom.marks.keeping)
    new, _ = patches.apply_patch(rt, base or copy_object(old), patching.APPLY_YAML, orjson.dumps(body), ctx)
    return pipeline.finish_update(rt, old, pipeline.accept_update(rt, old, new, ctx), ctx)


@pytest.mark.parametrize(
    "body",
    [
        widget(SPEC, metadata=METADATA),
        widget({"size": 5}),
        widget({"size": 4, "any": {"deep": [2]}}, metadata={**METADATA, "labels": {"m": "2"}}),
        widget({}, metadata={"name": "a", "annotations": {"n": "2"}}),
        widget({"size": 4.0, "tags": ["b", "c"], "nul": None}),
        widget(None, status={"phase": "A"}),
    ],
)
@pytest.mark.parametrize("manager", ["one", "two"])
def test_an_apply_to_the_shared_object_has_the_result_of_one_to_a_copy(body: dict[str, Any], manager: str) -> None:
    rt = widgets()
    first = stored(create(rt, widget(SPEC, metadata=METADATA)))
    old = stored(applied(rt, first, widget(SPEC, metadata=METADATA), None, "one"), 6)
    before = orjson.dumps(old)
    copied = applied(rt, orjson.loads(before), body, None, manager)
    for mark in rt.custom.marks.keeping:
        shared = applied(rt, old, body, mark, manager)
        assert orjson.dumps(old) == before
        assert (shared.outcome, orjson.dumps(shared.object)) == (copied.outcome, orjson.dumps(copied.object))


def test_the_object_is_not_shared_on_other_paths() -> None:
    rt = widgets()
    old = stored(create(rt, widget(SPEC)))
    kept = rt.custom.marks.kept
    for more, mark in (({}, None), ({}, object()), ({"subresource": "status"}, kept)):
        ctx = context("one", name="a", patches=True, applies=True, **more)
        tracking.note_as_read(rt, old, mark, ctx)
        assert tracking.seen_by_apply(ctx) is None
    other = {**old, "apiVersion": "g.example.com/v1beta1"}
    ctx = context("one", name="a", patches=True, applies=True)
    tracking.note_as_read(rt, other, kept, ctx)
    assert tracking.seen_by_apply(ctx) is None
    assert not ctx.seen.conforms
