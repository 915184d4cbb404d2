"""`restore` and `export` against a server."""

from __future__ import annotations

import io
import re
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
    again = chronicle("restore", *to, "--yes").out
    assert re.search(r"Nothing to restore: each of the \d+ objects of then is as it was", again)


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
    """A quota leaves no room for a ConfigMap. The other objects are restored."""
    name, revision = shop
    quotas, hard = f"/api/v1/namespaces/{name}/resourcequotas", {"hard": {"count/configmaps": "0"}}
    running.ask("POST", quotas, {"metadata": {"name": "none"}, "spec": hard})
    running.ask("PATCH", f"{quotas}/none/status", {"status": hard | {"used": {"count/configmaps": "0"}}})
    output = chronicle("restore", "-n", name, "--to", str(revision), "--yes")
    assert output.code == 3
    assert "  + recreate  configmap/settings\n               would be rejected: " in output.out
    assert "1 would be rejected by the server as of now\n" in output.out
    assert "configmap/settings failed: " in output.out
    assert "deployment.apps/web reverted\n" in output.out
    assert "1 of 3 could not be restored\n" in output.out


ROLE = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings"


def made_again(running: Any, name: str) -> int:
    """Create objects, delete them, and create them again with immutable differences; return the first revision."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "one"}
    binding: dict[str, Any] = {"metadata": {"name": "b"}, "roleRef": role}
    pod: dict[str, Any] = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "a:1"}]}}
    pod["spec"]["automountServiceAccountToken"] = False
    pods, maps = f"/api/v1/namespaces/{name}/pods", f"/api/v1/namespaces/{name}/configmaps"
    fixed: dict[str, Any] = {"metadata": {"name": "fixed"}, "immutable": True, "data": {"a": "1"}}
    first = 0
    for round_ in (1, 2):
        for path, body in ((ROLE.format(name), binding), (pods, pod), (maps, fixed)):
            made = running.ask("POST", path, body)
            if round_ == 1:
                first = int(made["metadata"]["resourceVersion"])
        if round_ == 1:
            for path, body in ((ROLE.format(name), binding), (pods, pod), (maps, fixed)):
                running.ask("DELETE", f"{path}/{body['metadata']['name']}")
        binding["roleRef"] = role | {"name": "two"}
        pod["spec"]["hostname"] = "other"
        fixed["data"] = {"a": "2"}
    return first


@pytest.mark.usefixtures("collector")
def test_objects_made_again_with_immutable_differences(
    chronicle: Chronicle, shop: tuple[str, int], running: Any
) -> None:
    """The plan says that they cannot be changed. Only --replace deletes and creates them."""
    name, _ = shop
    running.ask("POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})
    revision = made_again(running, name)
    to = ("-n", name, "--to", str(revision))
    plan = chronicle("restore", *to, "--dry-run")
    assert plan.code == 3
    for each in ("rolebinding.rbac.authorization.k8s.io/b", "configmap/fixed", "pod/p"):
        assert f"  ± delete and recreate  {each}  (" in plan.out, plan.out
    assert "3 cannot be changed in place; --replace deletes and creates such objects\n" in plan.out
    kept = chronicle("restore", *to, "--yes")
    assert (kept.code, running.ask("GET", f"/api/v1/namespaces/{name}/configmaps/fixed")["data"]) == (3, {"a": "2"})
    done = chronicle("restore", *to, "--yes", "--replace")
    assert done.code == 0, done.out
    assert "pod/p deleted, and created\n" in done.out
    assert running.ask("GET", f"{ROLE.format(name)}/b")["roleRef"]["name"] == "one"
    assert chronicle("restore", *to).out.endswith(" objects of then is as it was.\n")


def test_a_dry_run_changes_nothing(chronicle: Chronicle, shop: tuple[str, int], running: Any) -> None:
    name, revision = shop
    before = running.ask("GET", f"/history/at/-0s/api/v1/namespaces/{name}/configmaps")["items"]
    assert chronicle("restore", "-n", name, "--to", str(revision), "--prune", "--dry-run").code == 0
    assert running.ask("GET", f"/api/v1/namespaces/{name}/configmaps")["items"] == before


def test_a_deletion_is_undone(chronicle: Chronicle, shop: tuple[str, int], running: Any) -> None:
    """Without --to, the state before the deletion comes back; that of a present object must be named."""
    name, _ = shop
    undone = chronicle("restore", "cm/settings", "-n", name, "--yes")
    assert (undone.code, undone.out.splitlines()[-1]) == (0, "configmap/settings created")
    assert "the deletion began with revision " in undone.err
    exists = chronicle("restore", "cm/settings", "-n", name)
    assert (exists.code, "exists; --to names the moment" in exists.err) == (2, True)
    never = chronicle("restore", "cm/never", "-n", name)
    assert never.code == 2
    assert f"there is no configmap/never in namespace {name}, nor was there one since 2" in never.err


def end_namespace(running: Any, name: str) -> str:
    """Delete a namespace as its controller does, and return the revision that marked it."""
    space = f"/api/v1/namespaces/{name}"
    marked = running.ask("DELETE", space)
    for path in (f"{space}/configmaps", f"{space}/secrets", f"/apis/apps/v1/namespaces/{name}/deployments"):
        running.ask("DELETE", path)
    running.ask("PUT", f"{space}/finalize", {**marked, "spec": {"finalizers": []}})
    return str(marked["metadata"]["resourceVersion"])


def test_an_object_in_a_namespace_that_is_gone(chronicle: Chronicle, shop: tuple[str, int], running: Any) -> None:
    """The missing namespace is a part of the plan. A namespace that was being deleted then is no state to restore."""
    name, revision = shop
    going = end_namespace(running, name)
    late = chronicle("restore", "-n", name, "--to", going)
    assert late.code == 2
    assert f"was being deleted since revision {going} by admin: use --to {int(going) - 1}\n" in late.err
    one = chronicle("restore", "cm/settings", "-n", name, "--to", str(revision), "--yes")
    assert (one.code, one.out.splitlines()[-3:-1]) == (
        0,
        [f"namespace/{name} created", "configmap/settings created"],
    )
    assert "(in one transaction, revisions " in one.out
    end_namespace(running, name)
    whole = chronicle("restore", "-n", name, "--yes")
    assert whole.code == 0, whole.out + whole.err
    assert "configmap/settings created\n" in whole.out


def test_restore_of_a_service_whose_address_is_taken(chronicle: Chronicle, shop: tuple[str, int], running: Any) -> None:
    path = f"/api/v1/namespaces/{shop[0]}/services"
    made = running.ask("POST", path, {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}})
    address = made["spec"]["clusterIP"]
    running.ask("DELETE", f"{path}/web")
    other = {"metadata": {"name": "other"}, "spec": {"ports": [{"port": 80}], "clusterIP": address}}
    running.ask("POST", path, other)
    output = chronicle("restore", "svc/web", "-n", shop[0], "--to", made["metadata"]["resourceVersion"], "--yes")
    assert f"service/web created, without cluster IP {address}, which is taken\n" in output.out
    assert output.code == 3


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
    assert "configmap/mine created, without its owner ConfigMap/gone, which is gone\n" in output.out
    assert output.code == 3
    [reference] = running.ask("GET", f"{path}/mine")["metadata"]["ownerReferences"]
    assert (reference["name"], reference["uid"]) == ("owner", fresh)


def test_export(chronicle: Chronicle, shop: tuple[str, int]) -> None:
    name, revision = shop
    output = chronicle("export", "-n", name, "--at", str(revision), "--show-secrets")
    documents = list(yaml.safe_load_all(output.out))
    assert [each["kind"] for each in documents] == ["Namespace", "ConfigMap", "Secret", "Deployment"]
    assert documents[3]["metadata"] == {"name": "web", "namespace": name}
    assert "status" not in documents[3]
    document = chronicle("export", "-n", name, "--at", str(revision), "--show-secrets", "-o", "json").json()
    assert document["items"] == documents
    one = yaml.safe_load(chronicle("export", "cm/settings", "-n", name, "--at", str(revision)).out)
    assert one["data"] == {"color": "blue"}
    everything = list(yaml.safe_load_all(chronicle("export", "-A", "--at", str(revision), "--show-secrets").out))
    assert [each for each in everything if each["metadata"].get("namespace") == name] == documents[1:]
    masked = chronicle("export", "secret/key", "-n", name, "--at", str(revision))
    assert yaml.safe_load(masked.out)["data"] == {"a": "***"}
    assert "the values of 1 Secrets are masked and cannot be applied" in masked.err
