"""Conversions by a webhook: batches, kept results, and decisions that wait for one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
import trio
import trio.testing
from admission.decisions import decided
from custom.definitions import definition, established, version

from kubechronicle.actors.external_answers import NeedsExternalAnswer
from kubechronicle.actors.reading import conversions as module
from kubechronicle.actors.reading.conversions import Conversions, WebhookError
from kubechronicle.api.custom.served import resource_types
from kubechronicle.api.errors.status import StatusError
from kubechronicle.eventlog.request_parts import CURRENT, Parts

V2 = "example.com/v2"
CONVERSION = {
    "strategy": "Webhook",
    "webhook": {"clientConfig": {"url": "https://hook/"}, "conversionReviewVersions": ["v1"]},
}


def custom(generation: int = 1) -> Any:
    obj = established(definition(version(), version("v2")))
    obj["spec"]["conversion"] = CONVERSION
    obj["metadata"]["generation"] = generation
    return resource_types(obj)[0].custom


def widget(name: str, revision: int = 1, size: int = 1) -> dict[str, Any]:
    meta = {"name": name, "uid": name, "resourceVersion": str(revision)}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": meta, "spec": {"a": "x" * size}}


class Hook:
    """Answers reviews, and counts the objects of each. ``fails``: the answer to all."""

    def __init__(self, fails: str = "") -> None:
        self.sizes: list[int] = []
        self.fails = fails

    async def __call__(self, config: Mapping[str, Any], body: bytes, *, timeout: float) -> Any:
        assert config == {"url": "https://hook/"}
        if self.fails:
            self.sizes.append(0)
            raise WebhookError(self.fails)
        request = json.loads(body)["request"]
        assert not any("resourceVersion" in obj["metadata"] for obj in request["objects"])
        self.sizes.append(len(request["objects"]))
        objects = [{**obj, "apiVersion": request["desiredAPIVersion"], "spec": {"b": 1}} for obj in request["objects"]]
        response = {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects}
        return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}


async def test_objects_are_converted_in_one_review_and_kept() -> None:
    hook, kind = Hook(), custom()
    conversions = Conversions(hook)
    present = {**widget("z"), "apiVersion": V2}
    found = await conversions.convert(kind, [widget("a", 3), present, widget("b", 4)], V2)
    assert [obj["metadata"]["name"] for obj in found] == ["a", "z", "b"]
    assert [obj["metadata"]["resourceVersion"] for obj in found] == ["3", "1", "4"]
    assert found[0]["spec"] == {"b": 1}
    assert found[1] is present
    (again,) = await conversions.convert(kind, [widget("a", 9)], V2)  # the same contents at another revision
    assert again["metadata"]["resourceVersion"] == "9"
    assert hook.sizes == [2]


async def test_a_changed_definition_is_asked_again() -> None:
    hook = Hook()
    conversions = Conversions(hook)
    await conversions.convert(custom(1), [widget("a")], V2)
    await conversions.convert(custom(2), [widget("a")], V2)
    assert hook.sizes == [1, 1]


async def test_reviews_are_bounded_by_objects_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_OBJECTS", 3)
    monkeypatch.setattr(module, "MOST_BYTES", 1_000)
    hook = Hook()
    many = [*(widget(f"a{n}") for n in range(4)), widget("b", size=2_000), widget("c")]
    found = await Conversions(hook).convert(custom(), many, V2)
    assert [obj["metadata"]["name"] for obj in found] == [obj["metadata"]["name"] for obj in many]
    assert hook.sizes == [3, 1, 1, 1]


async def test_kept_results_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES", 150)
    hook, kind = Hook(), custom()
    conversions = Conversions(hook)
    for name in ("a", "b", "c", "a"):
        await conversions.convert(kind, [widget(name)], V2)
    assert hook.sizes == [1, 1, 1, 1]


async def test_a_decision_waits_for_the_conversion_and_is_made_again() -> None:
    hook, kind = Hook(), custom()
    conversions = Conversions(hook)
    attempts = 0

    async def attempt() -> dict[str, Any]:
        nonlocal attempts
        attempts += 1
        return conversions.recall(kind, widget("a", 5), V2)

    with pytest.raises(NeedsExternalAnswer):
        await attempt()
    found = await decided(attempt)
    assert (found["apiVersion"], found["metadata"]["resourceVersion"]) == (V2, "5")
    assert (attempts, hook.sizes) == (3, [1])


async def test_a_failed_conversion_ends_the_decision_but_not_the_next_one() -> None:
    hook, kind = Hook("connection refused"), custom()
    conversions = Conversions(hook)

    async def attempt() -> dict[str, Any]:
        return conversions.recall(kind, widget("a"), V2)

    with pytest.raises(StatusError) as caught:
        await decided(attempt)
    assert caught.value.message == "conversion webhook for example.com/v1, Kind=Widget failed: connection refused"
    hook.fails = ""
    assert (await decided(attempt))["apiVersion"] == V2
    assert hook.sizes == [0, 1]


async def test_a_result_is_kept_for_a_minute(autojump_clock: trio.testing.MockClock) -> None:
    hook, kind = Hook(), custom()
    conversions = Conversions(hook)
    for seconds in (0, 59, 2):
        await trio.sleep(seconds)
        await conversions.convert(kind, [widget("a")], V2)
    assert hook.sizes == [1, 1]


async def test_the_wait_for_the_webhook_is_a_part_of_the_request() -> None:
    parts = Parts()
    token = CURRENT.set(parts)
    try:
        await Conversions(Hook()).convert(custom(), [widget("a")], V2)
    finally:
        CURRENT.reset(token)
    assert parts.seconds["decode-response-object"] > 0
