"""All that read the log tell the same changes to be deletions (api/history/cells.py)."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from in_process import InProcess, open_server

from kubechronicle.api.admission.logged_changes import PAGES
from kubechronicle.api.admission.logged_writes import LoggedWrites, NotReplayed
from kubechronicle.api.history.cells import action_of
from kubechronicle.api.registry.registry import known_registry
from kubechronicle.ops.client.commands.between import MARK, _operation

API = "/apis/history.kubechronicle.dev/v1/transactions"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
REVISIONS = "/apis/history.kubechronicle.dev/v1/namespaces/default/revisions"
FREE = {"metadata": {"finalizers": None}}


async def _change(server: InProcess, way: str) -> None:
    """Make an object with a finalizer, and change it in one way; its last change is the one to judge."""
    path = f"{CONFIGMAPS}/{way}"
    if way == "evicted":
        container = {"name": "c", "image": "i"}
        pod = {"metadata": {"name": way, "finalizers": ["a.b/c"]}, "spec": {"containers": [container]}}
        await server.post(PODS, pod)
        await server.post(f"{PODS}/{way}/eviction", {"metadata": {"name": way}})
        return
    metadata = {"name": way, "labels": {"collection": way}} | ({} if "at-once" in way else {"finalizers": ["a.b/c"]})
    await server.post(CONFIGMAPS, {"metadata": metadata, "data": {"a": "1"}})
    if way.endswith(("freed", "twice", "touched")):
        await server.delete(path)
    patch = {"patchType": "merge", "patch": FREE if way.endswith("freed") else {"data": {"a": "2"}}}
    if way == "collection":
        await server.delete(f"{CONFIGMAPS}?labelSelector=collection%3D{way}")
    elif way.startswith("transaction"):
        change = {"verb": "delete"} if "delete" in way else {"verb": "patch", **patch}
        change |= {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": way}
        await server.post(API, {"spec": {"changes": [change]}})
    elif way.startswith("patch"):
        await server.patch(path, patch["patch"])
    else:
        await server.delete(path)


@pytest.mark.parametrize(
    ("way", "operation", "action", "group"),
    [
        ("delete-marks", "DELETE", "delete", MARK),
        ("delete-at-once", "DELETE", "delete", "Delete"),
        ("collection", "DELETE", "deletecollection", MARK),
        ("evicted", "", "evict", MARK),
        ("transaction-delete-marks", "DELETE", "delete", None),
        ("transaction-delete-at-once", "DELETE", "delete", "Delete"),
        ("transaction-changes", "UPDATE", "update", None),
        ("transaction-touched", "UPDATE", "update", None),
        ("transaction-freed", "UPDATE", "delete", "Delete"),
        ("patch-changes", "UPDATE", "patch", "Update"),
        ("patch-touched", "UPDATE", "patch", "Update"),
        ("patch-freed", "UPDATE", "patch", "Delete"),
    ],
)
async def test_each_way(way: str, operation: str, action: str, group: str | None) -> None:
    async with open_server() as server:
        await _change(server, way)
        query = f"fieldSelector=object.name%3D{way}&order=newest&limit=1"
        [revision] = (await server.get(f"{REVISIONS}?{query}&content=diff"))["items"]
        assert action_of(revision) == action
        states = await server.get(f"{REVISIONS}?{query}&content=states")
    [change] = PAGES.decode(orjson.dumps(states)).items
    assert _write_operation(change) == operation
    request = revision["request"]
    subresource = "eviction" if request["uri"].endswith("/eviction") else ""
    columns = {"operation": revision["operation"], "verb": request["verb"], "subresource": subresource}
    assert _operation(columns) == (group or "Update"), "the marks of Transactions are counted by a query of their own"


def _write_operation(change: Any) -> str:
    resource = "pods" if change.object.resource == "pods" else "configmaps"
    try:
        return LoggedWrites(known_registry()).write_of(change, resource).operation
    except NotReplayed:
        return ""
