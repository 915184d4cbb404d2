"""The parts of a slow request's time, as annotations of its event."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from admission.prepared_webhooks import Hooks, configure, webhook
from in_process import MAPS, configmap

from kubechronicle.http.audit import requests
from kubechronicle.http.audit.requests import LATENCY
from kubechronicle.ops.server import composition
from tests.http.audit.test_requests import recording


async def test_a_slow_request_tells_where_its_time_went(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = Hooks()
    monkeypatch.setattr(composition, "Webhooks", lambda outgoing, find_service: hooks)

    async def slowly(request: dict[str, Any]) -> dict[str, Any]:
        await trio.sleep(0.02)
        return {}

    hooks.replies |= {"one": slowly, "two": slowly, "three": slowly, "four": slowly}
    async with recording(tmp_path) as (server, recorder):
        await configure(server, "mutating", webhook("one"), webhook("two"))
        await configure(server, "validating", webhook("three"), webhook("four"))
        await server.post(MAPS, configmap("fast"))
        assert not [key for key in recorder.last()["annotations"] if key.startswith(LATENCY)]
        monkeypatch.setattr(requests, "SLOW", 0.03)
        await server.post(MAPS, configmap("slow"))
        found = {
            key.removeprefix(LATENCY): value
            for key, value in recorder.last()["annotations"].items()
            if key.startswith(LATENCY)
        }
        assert found.keys() == {
            "authentication", "authorization", "mutating-webhook", "validating-webhook", "etcd",
            "serialize-response-object", "total",
        }  # fmt: skip
        assert all(value.endswith(("s", "ms", "µs")) for value in found.values())
        assert float(found["mutating-webhook"].removesuffix("ms")) >= 40  # one after the other
        assert float(found["validating-webhook"].removesuffix("ms")) >= 20  # both at once
        labels = {"verb": "POST", "resource": "configmaps", "group": "", "version": "v1", "subresource": ""}
        whole, indicator = [
            await server.metric(
                f"apiserver_request_{name}duration_seconds_sum",
                scope="resource",
                component="apiserver",
                **more,
                **labels,
            )
            for name, more in (("", {"dry_run": ""}), ("sli_", {}))
        ]
        assert whole - indicator >= 0.119  # of both writes


async def test_tables_and_metadata_are_transformed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "SLOW", -1.0)
    forms = {
        "application/json": "serialize-response-object",
        "application/json;as=Table;g=meta.k8s.io;v=v1": "transform-response-object",
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1": "transform-response-object",
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1": "transform-response-object",
    }
    async with recording(tmp_path) as (server, recorder):
        await server.post(MAPS, configmap("a"))
        for accept, expected in forms.items():
            for target in [MAPS] if "List" in accept else [f"{MAPS}/a"] if "Partial" in accept else [MAPS, f"{MAPS}/a"]:
                (await server.ask("GET", target, headers={"accept": accept})).ok()
                names = {key.removeprefix(LATENCY) for key in recorder.last()["annotations"] if LATENCY in key}
                assert {name for name in names if name.endswith("response-object")} == {expected}, (accept, target)


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.2345, "1.2345s"), (0.6, "600ms"), (0.0123456789, "12.345679ms"), (0.0000125, "12.5µs")]
)
def test_durations_are_written_as_go_writes_them(seconds: float, text: str) -> None:
    assert requests.go_seconds(seconds) == text
