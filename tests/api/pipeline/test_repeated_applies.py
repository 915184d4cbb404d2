"""Applies again and again to one custom object: the values that are known from the last ones change no result."""

from __future__ import annotations

import random
from typing import Any
from unittest.mock import patch

import orjson
import pytest
from custom.objects import GROUP, NUMBER, TEXT, context, definition

from kubechronicle.api.custom.served import resource_types
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta import stored_contents
from kubechronicle.api.meta.encoding import copy_object, encode_custom
from kubechronicle.api.pipeline import patches, patching, pipeline, tracking
from kubechronicle.api.pipeline.pipeline import Outcome, Prepared, WriteContext
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import seal

ITEM = {"type": "object", "required": ["name"], "properties": {"name": TEXT, "value": TEXT, "on": {"type": "boolean"}}}
DEFAULTED = {**ITEM, "properties": {**ITEM["properties"], "size": {**NUMBER, "default": 3}}}  # type: ignore[dict-item]
KEYED = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
SPEC: dict[str, Any] = {
    "size": {**NUMBER, "default": 3},
    "weight": {"type": "number"},
    "keyed": {**KEYED, "items": ITEM},
    "defaulted": {**KEYED, "items": DEFAULTED},
    "atomic": {"type": "array", "items": ITEM},
    "whole": {"type": "array", "items": DEFAULTED},
    "labels": {"type": "object", "additionalProperties": TEXT},
    "nul": {**TEXT, "nullable": True},
    "any": {"x-kubernetes-preserve-unknown-fields": True},
}
STATUS = {"type": "object", "properties": {"phase": TEXT, "labels": SPEC["labels"]}}
SCHEMA = {"type": "object", "properties": {"spec": {"type": "object", "properties": SPEC}, "status": STATUS}}
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def resource() -> ResourceType:
    given = definition(subresources={})
    given["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = SCHEMA
    return next(rt for rt in resource_types(given) if rt.version == "v1")


def items(draw: random.Random) -> list[dict[str, Any]]:
    return [{"name": f"n{n}", "value": draw.choice("ab<")} for n in range(draw.choice((2, 9)))]


def drawn_spec(draw: random.Random) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "size": draw.randint(1, 3),
        "weight": draw.choice((0.5, 1.0, 2)),
        "keyed": items(draw),
        "defaulted": items(draw),
        "atomic": items(draw),
        "whole": items(draw),
        "labels": {f"k{n}": draw.choice(("a", "é")) for n in range(9)},
        "nul": draw.choice((None, "text")),
        "any": draw.choice(({"a": [1, {"x": 1.0}]}, {"b": {"c": "d"}}, [])),
    }
    named = draw.sample([*whole], draw.randint(2, len(whole)))
    return {name: whole[name] for name in sorted(named) if name != "whole" or draw.random() < 0.3}


def spelled(draw: random.Random, spec: dict[str, Any]) -> bytes:
    """Return a body with a spec, in one of several spellings."""
    meta: dict[str, Any] = {"name": "a", "labels": {"l": draw.choice("xyz")}}
    if draw.random() < 0.3:
        meta["annotations"] = {draw.choice(("n", LAST_APPLIED)): draw.choice(("1", "2"))}
    parts: dict[str, Any] = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": meta, "spec": spec}
    spelling = draw.choice((0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6))
    if spelling == 1:
        parts = dict(reversed(parts.items()))
    elif spelling == 2:
        parts |= {"status": spec, "spec": 0}
    elif spelling == 3:
        parts["status"] = {"phase": "A"}
    elif spelling == 4:
        parts["metadata"] = {"name": "a", "annotations": {"spec": spec}}
    text = orjson.dumps(parts, option=orjson.OPT_INDENT_2 if spelling == 5 else 0)
    return text.replace(b',"spec":', b',"spec":7,"spec":') if spelling == 6 else text


def applied(rt: ResourceType, text: bytes, mark: Any, body: bytes, **more: Any) -> tuple[Any, Prepared | None]:
    """Apply as the writes do. Return (what the client sees and what is stored, the prepared write)."""
    ctx = WriteContext(uid="u", name_suffix="", namespace="n", name="a", patches=True, applies=True, **more)
    stored = stored_contents.decode(text) if tracking.shares(rt, mark, ctx) else orjson.loads(text)
    assert stored == orjson.loads(text)
    tracking.note_as_read(rt, stored, mark, ctx)
    base = tracking.seen_by_apply(ctx) or orjson.loads(text)
    try:
        new, warnings = patches.apply_patch(rt, base, patching.APPLY_YAML, body, ctx)
        prepared = pipeline.finish_update(rt, stored, pipeline.accept_update(rt, stored, new, ctx), ctx)
    except StatusError as error:
        return (error.code, error.message, copy_object(error.details)), None
    kept = b"" if prepared.outcome is Outcome.UNCHANGED else encode_custom(prepared.object)
    conforms = prepared.mark is rt.custom.marks.conforming
    return (warnings, prepared.warnings, prepared.outcome, kept, conforms), prepared


def test_known_values_change_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    # The values of the server are larger: here, small ones are noted, too.
    monkeypatch.setattr(stored_contents, "LEAST", 64)
    for seed in range(12):
        apply_repeatedly(random.Random(seed), resource())
    generations = (stored_contents._members._now, stored_contents._members._former)
    assert any(generation.by_text for generation in generations)
    for generation in generations:
        for noted, value in generation.by_text.items():
            assert orjson.loads(b"{%b}" % noted) in ({"spec": value}, {"status": value})


def apply_repeatedly(draw: random.Random, rt: ResourceType) -> None:
    """Apply 150 times to an object, mostly with the last spec, and compare with applies that know nothing."""
    specs = [drawn_spec(draw) for _ in range(3)]
    spec = specs[0]
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec}
    new, _ = patches.apply_new(rt, orjson.dumps(body), context("one", name="a", applies=True))
    created = pipeline.finish_create(rt, new, context("one", name="a", applies=True))
    text, mark = seal(encode_custom(created.object), 5), created.mark
    for turn in range(150):
        spec = spec if draw.random() < 0.85 else draw.choice(specs)
        body_text, manager = spelled(draw, spec), draw.choice(("one", "one", "one", "two", "kubectl"))
        more = {"manager": manager, "force": draw.random() < 0.8, "now": f"2026-11-21T02:30:{turn % 60:02}Z"}
        with (
            patch.object(stored_contents, "split", lambda stored: None),
            patch.object(stored_contents, "note", lambda obj: None),
        ):
            plainly, _ = applied(rt, text, mark, body_text, **more)
        found, prepared = applied(rt, text, mark, body_text, **more)
        assert found == plainly
        if prepared is not None and prepared.outcome is Outcome.STORE:
            text, mark = seal(encode_custom(prepared.object), 6 + turn), prepared.mark
