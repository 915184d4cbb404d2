"""`revert`: a user's changes undone, with the later changes of others kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from server_in_thread import Running

Chronicle = Callable[..., Any]


def test_revert(chronicle: Chronicle, shop: tuple[str, int], running: Running) -> None:
    """Bob scales, labels, deletes, creates and changes a Secret; jane then sets one of his fields again."""
    name, _ = shop
    space, apps = f"/api/v1/namespaces/{name}", f"/apis/apps/v1/namespaces/{name}/deployments"
    begun = str(running.ask("GET", f"{space}/configmaps")["metadata"]["resourceVersion"])
    running.ask_as("bob", "PATCH", f"{apps}/web", {"spec": {"replicas": 9}, "metadata": {"labels": {"a": "1"}}})
    running.ask_as("bob", "DELETE", f"{space}/configmaps/new")
    running.ask_as("bob", "POST", f"{space}/configmaps", {"metadata": {"name": "bobs"}})
    running.ask_as("bob", "PATCH", f"{space}/secrets/key", {"stringData": {"a": "bobs word"}})
    running.ask_as("jane", "PATCH", f"{apps}/web", {"spec": {"replicas": 7, "paused": True}})
    flags = ("--user", "bob", "--since", begun, "-n", name)
    planned = chronicle("revert", *flags, "--dry-run")
    assert planned.code == 3
    lines = [line.strip() for line in planned.out.splitlines()]
    assert lines[0] == "To undo 4 changes by bob, of 4 objects:"
    assert f"+ recreate  configmap/new -n {name}" in lines
    assert f"- delete    configmap/bobs -n {name}" in lines
    assert "data.a: *** (before) → *** (after)" in lines
    kept = "spec.replicas: kept, it was changed since by jane (impersonated by "
    assert any(each.startswith(kept) for each in lines)
    assert "1 to recreate, 1 to revert, 1 to delete, 1 to revert in part" in lines
    assert lines[-1] == f"deployment.apps/web -n {name}: spec.replicas: it was changed since"
    assert running.ask("GET", f"{space}/configmaps/bobs")["metadata"]["name"] == "bobs"
    done = chronicle("revert", *flags, "--yes")
    assert done.code == 3
    web = running.ask("GET", f"{apps}/web")
    assert (web["spec"]["replicas"], web["spec"]["paused"], web["metadata"].get("labels") or {}) == (7, True, {})
    assert {each["metadata"]["name"] for each in running.ask("GET", f"{space}/configmaps")["items"]} == {"new"}
    assert running.ask("GET", f"{space}/secrets/key")["data"] == {"a": "cXVpZXQ="}
    again = chronicle("revert", *flags, "-o", "json", "--dry-run").json()
    actions = {(each["name"], each["action"]) for each in again["plan"]}
    assert ("web", "keep") in actions
    assert not {action for _, action in actions} & {"update", "delete", "create"}


def test_a_field_that_others_have_set_and_set_back_stays(
    chronicle: Chronicle, shop: tuple[str, int], running: Running
) -> None:
    """A fuzzed run found it: others add a field that the user has removed, and remove it again."""
    name, _ = shop
    maps = f"/api/v1/namespaces/{name}/configmaps"
    since = running.ask("GET", maps)["metadata"]["resourceVersion"]
    running.ask_as("uma", "POST", maps, {"metadata": {"name": "m"}, "data": {"x": "1", "y": "1", "z": "1"}})
    for user, data in (("uma", {"y": None}), ("uma", {"z": "2"}), ("wes", {"y": "3"}), ("vic", {"y": None})):
        running.ask_as(user, "PATCH", f"{maps}/m", {"data": data})
    done = chronicle("revert", "--user", "uma", "--since", since, "-n", name, "--yes")
    assert done.code == 3, done.err
    assert "data.y: kept, it was changed since by vic (impersonated by admin) at revision " in done.out
    assert running.ask("GET", f"{maps}/m")["data"] == {"x": "1", "z": "1"}
    assert "Nothing to undo" not in done.out


def test_nothing_to_undo_and_mistakes(chronicle: Chronicle, shop: tuple[str, int], running: Running) -> None:
    name, revision = shop
    nothing = chronicle("revert", "--user", "nobody", "--since", str(revision), "-n", name)
    assert nothing.code == 0
    assert nothing.out.startswith(
        f"There are no changes by nobody since {revision} in namespace {name}: 5 changes were"
    )
    running.ask_as("tim", "PATCH", f"/api/v1/namespaces/{name}/secrets/key", {"stringData": {"a": "b"}})
    unasked = chronicle("revert", "secret/key", "--user", "tim", "--since", str(revision), "-n", name)
    assert unasked.code == 2
    assert "nothing was undone: --yes undoes without asking" in unasked.err
