"""`restore` and `export` against a server."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import pytest
import yaml

Chronicle = Callable[..., Any]


def test_restore(chronicle: Chronicle, shop: tuple[str, int], running: Any) -> None:
    name, revision = shop
    to = ("-n", name, "--to", str(revision))
    plan = chronicle("restore", *to, "--dry-run", "-v").out
    assert "  + recreate  configmap/settings\n" in plan
    assert "spec.replicas: 5 → 3\n" in plan
    assert "data.a: *** (before) → *** (after)\n" in plan
    assert plan.endswith("1 to recreate, 2 to revert\n1 did not exist then; --prune deletes such objects\n")
    assert chronicle("restore", *to).err.startswith("kubechronicle: nothing was restored: --yes restores")
    assert chronicle("diff", "-n", name, "--from", str(revision)).code == 1
    one = chronicle("restore", "deployment/web", *to, "--yes")
    assert one.out.endswith("deployment.apps/web reverted\n")
    assert chronicle("diff", "deployment/web", "-n", name, "--from", str(revision)).code == 0
    whole = chronicle("restore", *to, "--prune", "--yes", "-o", "json").json()
    assert [(each["kind"], each["name"], each["outcome"]) for each in whole["results"]] == [
        ("ConfigMap", "settings", "created"),
        ("Secret", "key", "reverted"),
        ("ConfigMap", "new", "deleted"),
    ]
    assert chronicle("diff", "-n", name, "--from", str(revision)).code == 0
    who = chronicle("who", "changed", "secret/key", "-n", name, "-o", "json").json()["answers"][0]["revision"]["who"]
    assert who["fieldManager"] == "kubechronicle-restore"
    assert "Nothing to restore" in chronicle("restore", *to, "--yes").out


@pytest.mark.parametrize(("answer", "is_done"), [("y\n", True), ("n\n", False), ("\n", False), ("", False)])
def test_restore_asks(
    chronicle: Chronicle, shop: tuple[str, int], monkeypatch: pytest.MonkeyPatch, answer: str, is_done: bool
) -> None:
    terminal = io.StringIO(answer)
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdin", terminal)
    output = chronicle("restore", "cm/settings", "-n", shop[0], "--to", str(shop[1]))
    assert "recreate  configmap/settings" in output.out
    assert "Carry out this plan? [y/N] " in output.err
    assert (output.code == 0, "configmap/settings created" in output.out) == (is_done, is_done)


def test_an_object_that_waited_for_finalizers(chronicle: Chronicle, shop: tuple[str, int], running: Any) -> None:
    """The state just before its end was being deleted: the one before its deletion began is restored."""
    name, _ = shop
    path = f"/api/v1/namespaces/{name}/configmaps"
    running.ask("POST", path, {"metadata": {"name": "held", "finalizers": ["example.com/a"]}, "data": {"a": "b"}})
    waiting = running.ask("DELETE", f"{path}/held")["metadata"]["resourceVersion"]
    running.ask("PATCH", f"{path}/held", {"metadata": {"finalizers": None}})
    output = chronicle("restore", "cm/held", "-n", name, "--to", waiting, "--yes")
    assert output.out.endswith("configmap/held created\n")
    restored = running.ask("GET", f"{path}/held")
    assert restored["data"] == {"a": "b"}
    running.ask("PATCH", f"{path}/held", {"metadata": {"finalizers": None}})


def test_restore_reports_failures(chronicle: Chronicle, shop: tuple[str, int], running: Any) -> None:
    """A Secret has become immutable. The other objects are restored."""
    name, revision = shop
    running.ask("PATCH", f"/api/v1/namespaces/{name}/secrets/key", {"immutable": True})
    output = chronicle("restore", "-n", name, "--to", str(revision), "--yes")
    assert output.code == 1
    assert "secret/key failed: " in output.out
    assert "configmap/settings created\n" in output.out
    assert output.out.endswith("1 of 3 could not be restored\n")


def test_restore_of_a_service_whose_address_is_taken(chronicle: Chronicle, shop: tuple[str, int], running: Any) -> None:
    path = f"/api/v1/namespaces/{shop[0]}/services"
    made = running.ask("POST", path, {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}})
    address = made["spec"]["clusterIP"]
    running.ask("DELETE", f"{path}/web")
    other = {"metadata": {"name": "other"}, "spec": {"ports": [{"port": 80}], "clusterIP": address}}
    running.ask("POST", path, other)
    output = chronicle("restore", "svc/web", "-n", shop[0], "--to", made["metadata"]["resourceVersion"], "--yes")
    assert output.out.endswith(f"service/web created, without cluster IP {address}, which is taken\n")
    assert output.code == 0


def test_restored_objects_refer_to_present_owners(chronicle: Chronicle, shop: tuple[str, int], running: Any) -> None:
    name, _ = shop
    path = f"/api/v1/namespaces/{name}/configmaps"
    owner = running.ask("POST", path, {"metadata": {"name": "owner"}})["metadata"]
    gone = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "nobody"}
    references = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}, gone]
    mine = running.ask("POST", path, {"metadata": {"name": "mine", "ownerReferences": references}})
    for each in ("mine", "owner"):
        running.ask("DELETE", f"{path}/{each}")
    fresh = running.ask("POST", path, {"metadata": {"name": "owner"}})["metadata"]["uid"]
    output = chronicle("restore", "cm/mine", "-n", name, "--to", mine["metadata"]["resourceVersion"], "--yes")
    assert output.out.endswith("configmap/mine created, without its owner ConfigMap/gone, which is gone\n")
    [reference] = running.ask("GET", f"{path}/mine")["metadata"]["ownerReferences"]
    assert (reference["name"], reference["uid"]) == ("owner", fresh)


def test_export(chronicle: Chronicle, shop: tuple[str, int]) -> None:
    name, revision = shop
    output = chronicle("export", "-n", name, "--at", str(revision))
    documents = list(yaml.safe_load_all(output.out))
    assert [each["kind"] for each in documents] == ["Namespace", "ConfigMap", "Secret", "Deployment"]
    assert documents[3]["metadata"] == {"name": "web", "namespace": name}
    assert "status" not in documents[3]
    document = chronicle("export", "-n", name, "--at", str(revision), "-o", "json").json()
    assert document["items"] == documents
    one = yaml.safe_load(chronicle("export", "cm/settings", "-n", name, "--at", str(revision)).out)
    assert one["data"] == {"color": "blue"}
    everything = list(yaml.safe_load_all(chronicle("export", "-A", "--at", str(revision)).out))
    assert [each for each in everything if each["metadata"].get("namespace") == name] == documents[1:]
