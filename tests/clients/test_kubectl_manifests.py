"""Manifests as people have them, applied again and again: the second time changes nothing, whichever way.

What the server writes down differs from what people write: defaults, quantities and empty lists have one spelling.
kubectl says "configured" whenever it sends a patch; that such a patch changes nothing is the server's part.
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
    # The manifest leaves out a default inside a list that is replaced as a whole.
    *("mutatingwebhookconfiguration", "validatingadmissionpolicy", "clusterrolebinding", "job", "networkpolicy/agent"),
    *("horizontalpodautoscaler/shop-web", "statefulset", "endpoints"),
    # It has something empty, or false, that is not written down.
    *("serviceaccount/agent", "clusterrole/NAME-agent-sum", "priorityclass", "persistentvolume/NAME-pv"),
    *("persistentvolumeclaim", "pod", "replicaset"),
    # It spells a quantity in another way.
    *("resourcequota/team", "limitrange", "runtimeclass", "deployment"),
    # stringData is gone afterwards; a budget's selector is replaced as a whole.
    *("secret/shop-web", "poddisruptionbudget"),
}


@pytest.fixture(scope="module")
def api(server: Server) -> Iterator[Api]:
    found = server.api()
    yield found
    found.close()


@pytest.fixture(scope="module")
def kubectl(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    prepare("kubectl")
    return Kubectl(str(BINARIES / "kubectl"), server, tmp_path_factory.mktemp("manifests-home"))


class Applied:
    """A manifest in a namespace of its own, with names of its own for what is in none."""

    def __init__(self, manifest: Path, kubectl: Kubectl, folder: Path) -> None:
        self.name = unique("manifest")
        self.file = folder / manifest.name
        self.file.write_text(manifest.read_text().replace("behaves", self.name))
        self._kubectl = kubectl

    def __call__(self, *arguments: str) -> str:
        return self._kubectl(*arguments, "--namespace", self.name, "-f", str(self.file))

    def objects(self) -> list[Any]:
        found = json.loads(self("get", "--show-managed-fields", "-o", "json"))
        return [without_controllers(item) for item in found["items"]]

    def is_patched_each_time(self, line: str) -> bool:
        """For a line such as ``deployment.apps/shop-web configured``."""
        full, _, name = line.split()[0].partition("/")
        kind = full.partition(".")[0]
        return not PATCHED_EACH_TIME.isdisjoint((kind, f"{kind}/{name.replace(self.name, 'NAME')}"))


@pytest.fixture(params=MANIFESTS, ids=lambda path: path.stem)
def applied(request: pytest.FixtureRequest, kubectl: Kubectl, api: Api, tmp_path: Path) -> Iterator[Applied]:
    found = Applied(request.param, kubectl, tmp_path)
    api.namespace(found.name)
    yield found
    found("delete", "--wait=false", "--ignore-not-found")
    api.request("DELETE", f"/api/v1/namespaces/{found.name}")


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
    for found in before:
        managers = found["metadata"]["managedFields"]
        assert [(entry["manager"], entry["operation"]) for entry in managers] == [("kubectl", "Apply")]


@pytest.mark.parametrize("applied", [path for path in MANIFESTS if path.stem in ("database", "webshop")], indirect=True)
def test_create_then_apply_both_ways(applied: Applied) -> None:
    """Each way of writing takes over from the one before, and comes to rest."""
    applied("create", "--save-config")
    applied("apply", "--server-side", "--force-conflicts")
    once = [without_managers(found) for found in applied.objects()]
    applied("apply", "--server-side", "--force-conflicts")
    assert [without_managers(found) for found in applied.objects()] == once


def without_controllers(found: Any) -> Any:
    """The object without what the quota's controller adds to it, sooner or later."""
    if found["kind"] != "ResourceQuota":
        return found
    metadata = {name: value for name, value in found["metadata"].items() if name != "resourceVersion"}
    metadata["managedFields"] = [each for each in metadata["managedFields"] if each.get("subresource") != "status"]
    return {**found, "metadata": metadata, "status": None}


def without_managers(found: Any) -> Any:
    metadata = {name: value for name, value in found["metadata"].items() if name != "managedFields"}
    return {**found, "metadata": metadata}
