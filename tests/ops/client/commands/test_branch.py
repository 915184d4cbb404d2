"""`branch`: its actions, their refusals, and a kubeconfig for a branch."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from server_in_thread import Running

from kubechronicle.ops.client.commands.branch import _kubeconfig_of, _without_prefix

SPACE = "/api/v1/namespaces/default"


@pytest.fixture(autouse=True)
def no_branches(running: Running) -> Any:
    yield
    for each in running.ask("GET", "/apis/history.kubechronicle.dev/v1/branches")["items"]:
        running.ask("DELETE", f"/apis/history.kubechronicle.dev/v1/branches/{each['metadata']['name']}")


def configmap(name: str, colour: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"colour": colour}}


def test_a_branch_is_created_compared_and_deleted(running: Running, chronicle: Any) -> None:
    running.ask("POST", f"{SPACE}/configmaps", configmap("settings", "red"))
    created = chronicle("branch", "create", "try")
    assert created.code == 0
    assert "Created branch try. It begins with the cluster as of revision" in created.out
    running.ask("PATCH", f"/branch/try{SPACE}/configmaps/settings", {"data": {"colour": "blue"}})
    running.ask("PATCH", f"{SPACE}/configmaps/settings", {"data": {"colour": "green"}})

    diff = chronicle("branch", "diff", "try")
    assert diff.code == 1
    # The loops of a branch also make the objects that this server, without loops, lacks.
    assert {"-  colour: red", "+  colour: blue"} <= set(diff.out.splitlines())
    found = chronicle("branch", "diff", "try", "--against", "now", "-o", "json").json()["differences"]
    (change,) = [each["diff"] for each in found if each["name"] == "settings"]
    assert [(each["path"], each["old"], each["value"]) for each in change] == [("/data/colour", "green", "blue")]
    patch = chronicle("branch", "diff", "try", "--against", "now", "-o", "patch").out
    assert '{"op":"test","path":"/data/colour","value":"green"}' in patch
    assert chronicle("branch", "list").out.startswith("try ")
    deleted = chronicle("branch", "delete", "try")
    assert deleted.out == "Deleted branch try; nothing of it is left.\n"
    assert chronicle("branch", "list").err == "there are no branches\n"
    running.ask("DELETE", f"{SPACE}/configmaps/settings")


def test_secrets_are_masked_unless_they_are_to_be_shown(running: Running, chronicle: Any) -> None:
    chronicle("branch", "create", "try")
    running.ask("POST", f"/branch/try{SPACE}/secrets", {"metadata": {"name": "key"}, "stringData": {"a": "b"}})
    assert "'***'" in chronicle("branch", "diff", "try").out
    assert "a: Yg==" in chronicle("branch", "diff", "try", "--show-secrets").out
    assert "# left out: Secret default/key" in chronicle("branch", "diff", "try", "-o", "patch").out


def test_a_branch_of_the_past_begins_at_its_moment(running: Running, chronicle: Any) -> None:
    made = running.ask("POST", f"{SPACE}/configmaps", configmap("gone", "red"))
    running.ask("DELETE", f"{SPACE}/configmaps/gone")
    chronicle("branch", "create", "try", "--at", made["metadata"]["resourceVersion"])
    assert running.ask("GET", f"/branch/try{SPACE}/configmaps/gone")["data"] == {"colour": "red"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("create",), "which branch?"),
        (("list", "try"), "list takes no name"),
        (("delete", "try", "--at", "2h"), "--at belongs to create"),
        (("create", "try", "--against", "now"), "--against belongs to diff"),
        (("list", "-o", "patch"), "-o patch belongs to diff"),
        (("delete", "try"), "not found"),
        (("diff", "try"), "not found"),
    ],
)
def test_mistakes_are_refused(chronicle: Any, arguments: tuple[str, ...], message: str) -> None:
    refused = chronicle("branch", *arguments)
    assert refused.code == 2
    assert message in refused.err


def test_a_kubeconfig_names_the_branch_and_nothing_else() -> None:
    document = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}, {"name": "other", "context": {}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://a:6443/", "certificate-authority": "/ca"}}],
        "users": [{"name": "u", "user": {"token": "t"}}, {"name": "v", "user": {}}],
    }
    found = _kubeconfig_of(document, "try")
    assert found["clusters"][0]["cluster"] == {"server": "https://a:6443/branch/try", "certificate-authority": "/ca"}
    assert found["users"] == [{"name": "u", "user": {"token": "t"}}]
    assert found["current-context"] == found["contexts"][0]["name"] == "here-branch-try"
    assert yaml.safe_load(yaml.safe_dump(found)) == found


def test_the_prefix_of_another_branch_or_moment_is_left_out() -> None:
    for path in ("", "/", "/branch/x", "/history/at/2h", "/branch/x/history/at/41"):
        assert _without_prefix(f"https://a:6443{path}") == "https://a:6443"
    assert _without_prefix("https://a/cluster/branch/x") == "https://a/cluster"
