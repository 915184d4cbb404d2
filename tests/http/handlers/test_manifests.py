"""The manifests of the kubectl tests through the handlers and the whole store: applied, or created and patched as by
Helm, each twice; by two managers; and with a field removed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from in_process import Answer, InProcess, open_server
from three_way import patch

from kubechronicle.actors.writing import targets
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.registry.registry import ResourceType, builtin_registry
from kubechronicle.api.schema.types import object_type

Object = dict[str, Any]

FOLDER = Path(__file__).parents[2] / "clients" / "manifests"


def documents() -> list[Any]:
    found: list[Any] = []
    for path in sorted(FOLDER.iterdir()):
        for document in yaml.safe_load_all(path.read_text()):
            found += document["items"] if document["kind"] == "List" else [document]
    return [pytest.param(each, id=f"{each['kind']}/{each['metadata']['name']}") for each in found]


def type_of(manifest: Object) -> ResourceType:
    found = builtin_registry().by_api_version(manifest["apiVersion"], manifest["kind"])
    assert found is not None
    return found


def collection(manifest: Object) -> str:
    rt = type_of(manifest)
    base = f"/apis/{rt.api_version}" if rt.group else f"/api/{rt.version}"
    return f"{base}/namespaces/default/{rt.plural}" if rt.namespaced else f"{base}/{rt.plural}"


def place(manifest: Object) -> str:
    return f"{collection(manifest)}/{manifest['metadata']['name']}"


async def asked(server: InProcess, manifest: Object, manager: str) -> Answer:
    headers = {"content-type": "application/apply-patch+yaml"}
    return await server.ask("PATCH", f"{place(manifest)}?fieldManager={manager}", manifest, headers=headers)


async def apply(server: InProcess, manifest: Object, manager: str = "m") -> Any:
    return (await asked(server, manifest, manager)).ok()


FIRST_UPDATES = ("Job", "PersistentVolumeClaim")
"""Kinds that are stored whole with their first update: the labels of a Job, the phase of a claim."""


def revision(obj: Any) -> str:
    return str(obj["metadata"]["resourceVersion"])


def labelled(manifest: Object, **labels: str) -> Object:
    """Return the object with its labels only."""
    metadata = {"name": manifest["metadata"]["name"], "labels": labels}
    return {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "metadata": metadata}


@pytest.mark.parametrize("manifest", documents())
async def test_applies(manifest: Object, autojump_clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # The clock stands still. A quantity in another notation than stored (0.25) makes each apply a change with a time,
    # and the manager with the later time comes second, as in kube-apiserver.
    now = time.time()
    monkeypatch.setattr(targets, "time", SimpleNamespace(time=lambda: now))
    async with open_server() as server:
        first = await apply(server, manifest)
        if manifest["kind"] in FIRST_UPDATES:
            first = await apply(server, manifest)
        assert revision(await apply(server, manifest)) == revision(first)
        assert await server.get(place(manifest)) == first
        # Another manager's label comes and goes by itself.
        other = await apply(server, labelled(manifest, team="a"), "other")
        assert revision(await apply(server, manifest)) == revision(other)
        assert other["metadata"]["labels"]["team"] == "a"
        conflict = await asked(server, labelled(manifest, team="b"), "third")
        assert [cause["field"] for cause in conflict.refused(409)["details"]["causes"]] == [".metadata.labels.team"]
        gone = await apply(server, labelled(manifest), "other")
        assert gone["metadata"].get("labels") == first["metadata"].get("labels")
        assert without(gone, "metadata") == without(first, "metadata")


@pytest.mark.parametrize("manifest", documents())
async def test_creates_and_patches_as_helm_does(manifest: Object, autojump_clock: Any) -> None:
    async with open_server() as server:
        manifest = json.loads(json.dumps(manifest))
        created = await server.post(collection(manifest), manifest)
        kind = object_type(type_of(manifest).definition)
        upgraded = copy_object(manifest)
        upgraded["metadata"].setdefault("annotations", {})["release"] = "2"
        upgraded["metadata"].setdefault("labels", {})["helm.sh/chart"] = "x-2"

        async def upgrade(before: Object, after: Object, live: Any) -> Any:
            body = patch(without_nulls(before), without_nulls(after), live, kind)
            return await server.patch(place(manifest), body, "strategic-merge-patch")

        if manifest["kind"] in FIRST_UPDATES:
            created = await upgrade(manifest, manifest, created)
        assert revision(await upgrade(manifest, manifest, created)) == revision(created)
        second = await upgrade(manifest, upgraded, created)
        assert second["metadata"]["annotations"]["release"] == "2"
        assert revision(await upgrade(upgraded, upgraded, second)) == revision(second)
        back = await upgrade(upgraded, manifest, second)
        assert without(back, "metadata") == without(created, "metadata")
        assert back["metadata"].get("labels", {}) == created["metadata"].get("labels", {})


def without(obj: Any, *names: str) -> Object:
    return {name: value for name, value in obj.items() if name not in names}


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
