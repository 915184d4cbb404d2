"""Audit events of writes that tell what these changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from in_process import MAPS, configmap

from kubechronicle.api.history.secret_values import LAST_APPLIED
from kubechronicle.http.audit import changes
from kubechronicle.http.audit.changes import CHANGES, EFFECT, REVISION, TOO_LONG
from tests.http.audit.test_requests import EVERYTHING, Recorder, audit_of, recording

SECRETS = "/api/v1/namespaces/default/secrets"


def annotated(recorder: Recorder) -> dict[str, str]:
    """Return the annotations of the last event that tell a change, by the end of their names."""
    found = recorder.last()["annotations"]
    return {key.rpartition("/")[2]: value for key, value in found.items() if key in (CHANGES, EFFECT, REVISION)}


async def test_events_tell_the_revision_and_the_difference(tmp_path: Path) -> None:
    async with recording(tmp_path) as (server, recorder):
        audit_of(server).tells_changes = True
        created = await server.post(MAPS, configmap("a", x="1"))
        assert annotated(recorder) == {"revision": created["metadata"]["resourceVersion"]}
        changed = await server.patch(f"{MAPS}/a", {"data": {"x": "2", "y": "3"}})
        found = annotated(recorder)
        assert found["revision"] == changed["metadata"]["resourceVersion"]
        assert json.loads(found["changes"]) == [
            {"op": "replace", "path": "/data/x", "value": "2", "old": "1"},
            {"op": "add", "path": "/data/y", "value": "3"},
        ]
        await server.patch(f"{MAPS}/a", {"data": {"x": "2"}})
        assert annotated(recorder) == {"effect": "no-op"}
        await server.patch(f"{MAPS}/a?dryRun=All", {"data": {"y": None}})
        found = annotated(recorder)
        assert found["effect"] == "dry-run"
        assert json.loads(found["changes"]) == [{"op": "remove", "path": "/data/y", "old": "3"}]
        await server.delete(f"{MAPS}/a?dryRun=All")
        assert annotated(recorder) == {"effect": "dry-run"}
        before = server.assembly.views.applied
        await server.delete(f"{MAPS}/a")
        assert annotated(recorder) == {"revision": str(before + 1)}


async def test_values_of_secrets_are_masked_and_metadata_has_no_difference(tmp_path: Path) -> None:
    def secret(value: str) -> Any:
        return {"metadata": {"name": "s"}, "stringData": {"a": value, "b": "same"}}

    for level in ("RequestResponse", "Metadata"):
        async with recording(tmp_path, EVERYTHING.replace("RequestResponse", level)) as (server, recorder):
            audit_of(server).tells_changes = True
            await server.post(SECRETS, secret("before"))
            await server.put(f"{SECRETS}/s", secret("after"))
            found = annotated(recorder)
            assert found["revision"]
            assert ("changes" in found) is (level == "RequestResponse")
            if level == "RequestResponse":
                (change,) = json.loads(found["changes"])
                assert change["path"] == "/data/a"
                assert change["old"].startswith("*** (")
                assert change["value"].startswith("*** (")
                assert change["old"] != change["value"]


async def test_long_differences_and_a_server_that_was_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MOST_SHOWN", 100)
    async with recording(tmp_path) as (server, recorder):
        await server.post(MAPS, configmap("a"))
        assert annotated(recorder) == {}
        audit_of(server).tells_changes = True
        audit_of(server).apply(audit_of(server).matcher)
        await server.patch(f"{MAPS}/a", {"data": {"x": "long " * 40}})
        assert annotated(recorder)["changes"] == TOO_LONG
        monkeypatch.setattr(changes, "MOST_COMPARED", 10)
        await server.patch(f"{MAPS}/a", {"data": {"x": "y"}})
        assert annotated(recorder)["changes"] == TOO_LONG


async def test_a_transaction_tells_no_values_of_secrets(tmp_path: Path) -> None:
    """A policy's rule about Secrets is none about transactions: neither the request nor the answer may have them."""
    named = {"apiVersion": "v1", "kind": "Secret"}
    metadata = {"name": "s", "namespace": "default", "annotations": {LAST_APPLIED: "hush"}}
    made = {**named, "metadata": metadata, "stringData": {"a": "hush"}}
    patched = {**named, "namespace": "default", "name": "t", "patchType": "merge"}
    patched["patch"] = {"stringData": {"a": "hush"}}
    plain = {"apiVersion": "v1", **configmap("m", a="b")}
    sent = [{"verb": "create", "object": made}, {"verb": "patch", **patched}, {"verb": "create", "object": plain}]
    body = {"apiVersion": "history.kubechronicle.dev/v1", "kind": "Transaction", "spec": {"changes": sent}}
    async with recording(tmp_path) as (server, recorder):
        await server.post(SECRETS, {"metadata": {"name": "t"}})
        answer = await server.post("/apis/history.kubechronicle.dev/v1/transactions", body)
        event = recorder.last()
        for shown in (answer, event["requestObject"], event["responseObject"]):
            assert "hush" not in json.dumps(shown)
            assert [change["verb"] for change in shown["spec"]["changes"]] == ["create", "patch", "create"]
            assert shown["spec"]["changes"][2]["object"]["data"] == {"a": "b"}
        assert (await server.get(f"{SECRETS}/t"))["data"] == {"a": "aHVzaA=="}
        assert (await server.get(f"{SECRETS}/s"))["data"] == {"a": "aHVzaA=="}
