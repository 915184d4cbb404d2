"""Patches and applies of long lists and maps take time in proportion to their length."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from kubechronicle.api.managed_fields import managers
from kubechronicle.api.managed_fields.managers import Writer
from kubechronicle.api.patch import json_patch, strategic_merge
from kubechronicle.api.pipeline import server_side_apply
from kubechronicle.api.registry.registry import known_registry
from kubechronicle.api.schema import types

# Each one compares two times, which mean little beside other processes.
pytestmark = pytest.mark.alone

PODS = known_registry().builtin("", "v1", "pods")
KIND = types.object_type(PODS.definition)
WRITER = Writer(manager="m", api_version="v1", now="2026-01-01T00:00:00Z")


def pod(size: int, *, backwards: bool = False) -> dict[str, Any]:
    order = list(reversed(range(size))) if backwards else list(range(size))
    env = [{"name": f"e{n}", "value": "v"} for n in order]
    meta = {"name": "a", "finalizers": [f"x/f{n}" for n in order], "labels": {f"l{n}": "v" for n in order}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [{"name": "c", "env": env}]}}


def tracked(size: int) -> dict[str, Any]:
    obj = pod(size)
    managers.track(KIND, None, obj, writer=WRITER)
    return obj


def apply_backwards(size: int) -> Callable[[], object]:
    body = orjson.dumps(pod(size, backwards=True))
    request = server_side_apply.ApplyRequest(body=body, writer=WRITER, force=True)
    old = tracked(size)
    return lambda: server_side_apply.apply_to(PODS, old, request)


def merge_backwards(size: int) -> Callable[[], object]:
    old, patch = tracked(size), {"spec": pod(size, backwards=True)["spec"]}
    return lambda: strategic_merge.apply(old, patch, KIND)


def track_backwards(size: int) -> Callable[[], object]:
    old, new = tracked(size), pod(size, backwards=True)
    return lambda: managers.track(KIND, old, new, writer=WRITER)


def patch_items(size: int) -> Callable[[], object]:
    old, operations = tracked(size), [{"op": "copy", "from": "/metadata/name", "path": "/metadata/finalizers/-"}] * size
    return lambda: json_patch.apply(old, operations)


@pytest.mark.parametrize("make", [apply_backwards, merge_backwards, track_backwards, patch_items])
def test_four_times_the_items_take_about_four_times_the_time(make: Callable[[int], Callable[[], object]]) -> None:
    def seconds(size: int) -> float:
        best = 9.0
        for _ in range(4):
            work = make(size)
            start = time.thread_time()
            work()
            best = min(best, time.thread_time() - start)
        return best

    seconds(50)
    # Names of items are kept, up to a bound, which makes the shorter list cheaper still. The square would be 16 times.
    assert seconds(8000) < 9 * seconds(2000) + 0.005
