"""Everyday manifests, applied repeatedly in every way: from the second time on, nothing changes.

The stored object differs from the manifest: defaults are set, quantities and empty lists have one notation. kubectl
prints "configured" whenever it sends a patch. The server must find that such a patch changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import BINARIES, Api, Server, prepare, unique
from programs import Kubectl

MANIFESTS = sorted((Path(__file__).parent / "manifests").iterdir())

PATCHED_EACH_TIME = {
    # The manifest lacks a default inside a list that is replaced as a whole.
    *("mutatingwebhookconfiguration", "validatingadmissionpolicy", "clusterrolebinding", "job", "networkpolicy/agent"),
    *("horizontalpodautoscaler/shop-web", "statefulset", "endpoints"),
    # It has an empty or false field, which is not stored.
    *("serviceaccount/agent", "clusterrole/NAME-agent-sum", "priorityclass", "persistentvolume/NAME-pv"),
    *("persistentvolumeclaim", "pod", "replicaset"),
    # It writes a quantity in another notation.
    *("resourcequota/team", "limitrange", "runtimeclass", "deployment"),
    # stringData is not stored; the selector of a budget is replaced as a whole.
    *("secret/shop-web", "poddisruptionbudget"),
}


@pytest.fixture(scope="module")
def api(server: Server) -> Iterator[Api]:
    connection = server.api()
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def kubectl(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    prepare("kubectl")
    return Kubectl(str(BINARIES / "kubectl"), server, tmp_path_factory.mktemp("manifests-home"))


class Applied:
    """A manifest in a namespace of its own, with unique names for cluster-scoped objects."""

    def __init__(self, manifest: Path, kubectl: Kubectl, folder: Path) -> None:
        self.name = unique("manifest")
        self.file = folder / manifest.name
        self.file.write_text(manifest.read_text().replace("behaves", self.name))
        self._kubectl = kubectl

    def __call__(self, *arguments: str) -> str:
        return self._kubectl(*arguments, "--namespace", self.name, "-f", str(self.file))

    def objects(self) -> list[Any]:
        listing = json.loads(self("get", "--show-managed-fields", "-o", "json"))
        return [without_controllers(item) for item in listing["items"]]

    def is_patched_each_time(self, line: str) -> bool:
        """Return True if kubectl always patches the object of a line (``deployment.apps/shop-web configured``)."""
        full, _, name = line.split()[0].partition("/")
        kind = full.partition(".")[0]
        return not PATCHED_EACH_TIME.isdisjoint((kind, f"{kind}/{name.replace(self.name, 'NAME')}"))


@pytest.fixture(params=MANIFESTS, ids=lambda path: path.stem)
def applied(request: pytest.FixtureRequest, kubectl: Kubectl, api: Api, tmp_path: Path) -> Iterator[Applied]:
    manifest = Applied(request.param, kubectl, tmp_path)
    api.namespace(manifest.name)
    yield manifest
    manifest("delete", "--wait=false", "--ignore-not-found")
    api.request("DELETE", f"/api/v1/namespaces/{manifest.name}")


def test_client_side_apply(applied: Applied) -> None:
    first = applied("apply").splitlines()
    assert all(line.endswith(" created") for line in first)
    before = applied.objects()
    assert len(first) == len(before)
    for line in applied("apply").splitlines():
        assert line.endswith(" configured" if applied.is_patched_each_time(line) else " unchanged"), line
    assert applied.objects() == before
    assert applied("diff") == ""


def test_server_side_apply(applied: Applied) -> None:
    assert all(line.endswith(" serverside-applied") for line in applied("apply", "--server-side").splitlines())
    before = applied.objects()
    applied("apply", "--server-side")
    assert applied.objects() == before
    assert applied("diff", "--server-side") == ""
    for obj in before:
        managers = obj["metadata"]["managedFields"]
        assert [(entry["manager"], entry["operation"]) for entry in managers] == [("kubectl", "Apply")]


@pytest.mark.parametrize("applied", [path for path in MANIFESTS if path.stem in ("database", "webshop")], indirect=True)
def test_create_then_apply_both_ways(applied: Applied) -> None:
    """Each command takes over from the one before, and then changes nothing."""
    applied("create", "--save-config")
    applied("apply", "--server-side", "--force-conflicts")
    once = [without_managers(obj) for obj in applied.objects()]
    applied("apply", "--server-side", "--force-conflicts")
    assert [without_managers(obj) for obj in applied.objects()] == once


WRITTEN_BY_CONTROLLERS = ("FlowSchema", "Job", "PersistentVolumeClaim", "ResourceQuota", "ValidatingAdmissionPolicy")


def without_controllers(obj: Any) -> Any:
    """Return the object without the fields that controllers add at some time: those of quotas, flow control, policies.

    A Job and a claim are among them: their first update stores labels or the phase, and makes a new revision.
    """
    if obj["kind"] not in WRITTEN_BY_CONTROLLERS:
        return obj
    metadata = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
    metadata["managedFields"] = [each for each in metadata["managedFields"] if each.get("subresource") != "status"]
    return {**obj, "metadata": metadata, "status": None}


def without_managers(obj: Any) -> Any:
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": metadata}
