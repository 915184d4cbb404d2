"""`branch`: its actions, their refusals, and a kubeconfig for a branch."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import yaml
from custom.serving import until
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


def set_up_three_sides(running: Running, chronicle: Any) -> None:
    """Make a base, and change its objects in a branch and in the cluster."""
    running.ask("POST", f"{SPACE}/configmaps", {"metadata": {"name": "both"}, "data": {"a": "1", "b": "1", "c": "1"}})
    for name in ("branch-deletes", "both-touch", "cluster-deletes", "cluster-changes"):
        running.ask("POST", f"{SPACE}/configmaps", configmap(name, "red"))
    running.ask("POST", f"{SPACE}/secrets", {"metadata": {"name": "key"}, "stringData": {"a": "old", "b": "old"}})
    chronicle("branch", "create", "try")
    inside = f"/branch/try{SPACE}"
    running.ask("PATCH", f"{inside}/configmaps/both", {"data": {"a": "branch", "c": "branch"}})
    running.ask("DELETE", f"{inside}/configmaps/branch-deletes")
    running.ask("DELETE", f"{inside}/configmaps/both-touch")
    running.ask("PATCH", f"{inside}/configmaps/cluster-deletes", {"data": {"colour": "blue"}})
    running.ask("POST", f"{inside}/configmaps", configmap("branch-creates", "blue"))
    running.ask("POST", f"{inside}/configmaps", configmap("both-create", "blue"))
    running.ask("PATCH", f"{inside}/secrets/key", {"stringData": {"a": "new"}})
    running.ask(
        "POST",
        f"{inside}/services",
        {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}}},
    )
    running.ask("PATCH", f"{SPACE}/configmaps/both", {"data": {"b": "jane", "c": "jane", "d": "jane"}})
    running.ask("PATCH", f"{SPACE}/configmaps/both-touch", {"data": {"colour": "green"}})
    running.ask("DELETE", f"{SPACE}/configmaps/cluster-deletes")
    running.ask("POST", f"{SPACE}/configmaps", configmap("both-create", "green"))
    running.ask("PATCH", f"{SPACE}/configmaps/cluster-changes", {"data": {"colour": "green"}})
    running.ask("PATCH", f"{SPACE}/secrets/key", {"stringData": {"b": "jane"}})


@pytest.fixture
def three_sides(running: Running, chronicle: Any) -> Any:
    set_up_three_sides(running, chronicle)
    yield
    for plural in ("configmaps", "secrets", "services"):
        for each in running.ask("GET", f"{SPACE}/{plural}")["items"]:
            if each["metadata"]["name"] not in ("kubernetes", "kube-root-ca.crt"):
                running.ask("DELETE", f"{SPACE}/{plural}/{each['metadata']['name']}")


def data_of(running: Running, name: str) -> Any:
    found = [each for each in running.ask("GET", f"{SPACE}/configmaps")["items"] if each["metadata"]["name"] == name]
    return found[0]["data"] if found else None


def test_a_diff_against_now_takes_nothing_from_others(three_sides: None, chronicle: Any) -> None:
    found = chronicle("branch", "diff", "try", "--against", "now", "-o", "json").json()["differences"]
    (both,) = [each for each in found if each["name"] == "both"]
    assert {each["path"]: each["value"] for each in both["diff"]} == {"/data/a": "branch", "/data/c": "branch"}
    assert both["conflicts"] == ["data.c"]
    text = chronicle("branch", "diff", "try", "--against", "now")
    assert "jane" not in "".join(
        line for line in text.out.splitlines() if line.startswith(("- ", "+ ")) and "d:" in line
    )
    assert "conflict: configmap/both -n default: data.c: changed since the base" in text.err
    patch = chronicle("branch", "diff", "try", "--against", "now", "-o", "patch").out
    assert "# conflict: configmap/both -n default: data.c: changed since the base" in patch
    assert "/data/d" not in patch


def test_a_merge_keeps_the_changes_of_others_and_names_conflicts(
    three_sides: None, running: Running, chronicle: Any
) -> None:
    plan = chronicle("branch", "merge", "try", "--dry-run")
    assert plan.code == 3
    assert data_of(running, "branch-creates") is None
    done = chronicle("branch", "merge", "try", "--yes")
    assert done.code == 3, done.err
    assert "(in one transaction, revisions " in done.out
    assert data_of(running, "both") == {"a": "branch", "b": "jane", "c": "jane", "d": "jane"}
    assert data_of(running, "branch-deletes") is None
    assert data_of(running, "branch-creates") == {"colour": "blue"}
    assert data_of(running, "both-touch") == {"colour": "green"}
    assert data_of(running, "cluster-deletes") is None
    assert data_of(running, "both-create") == {"colour": "green"}
    assert data_of(running, "cluster-changes") == {"colour": "green"}
    secret = running.ask("GET", f"{SPACE}/secrets/key")["data"]
    assert secret == {"a": "bmV3", "b": "amFuZQ=="}
    assert running.ask("GET", f"{SPACE}/services/web")["spec"]["clusterIP"]
    *_, what = done.out.partition("What is not merged:\n")
    assert {line.strip() for line in what.splitlines()} == {
        "configmap/both -n default: data.c: it was changed since",
        "configmap/both-touch -n default: it has other changes since",
        "configmap/both-create -n default: another object of this name was created since",
        "configmap/cluster-deletes -n default: it was deleted since",
    }
    again = chronicle("branch", "merge", "try", "--yes", "-o", "json").json()
    assert all(each["action"] in ("keep", "leave") for each in again["plan"]), again
    assert "results" not in again


def test_the_reason_of_a_merge_names_its_branch(running: Running, chronicle: Any) -> None:
    chronicle("branch", "create", "try")
    running.ask("POST", f"/branch/try{SPACE}/configmaps", configmap("merged", "blue"))
    assert chronicle("branch", "merge", "try", "--yes").code == 0
    entry = chronicle("log", "configmap/merged", "-o", "json").json()["items"][0]
    assert entry["reason"].startswith("merge of branch try, which began at revision ")
    running.ask("DELETE", f"{SPACE}/configmaps/merged")
    again = chronicle("branch", "merge", "try", "--yes", "--reason", "ticket 7")
    assert (again.code, data_of(running, "merged")) == (0, {"colour": "blue"})
    assert chronicle("log", "configmap/merged", "-o", "json").json()["items"][0]["reason"] == "ticket 7"
    nothing = chronicle("branch", "merge", "try", "--yes")
    assert (nothing.code, "Nothing to merge: every object is as in the branch." in nothing.out) == (0, True)
    running.ask("DELETE", f"{SPACE}/configmaps/merged")


def test_a_merge_of_a_definition_brings_its_objects(running: Running, chronicle: Any) -> None:
    chronicle("branch", "create", "try")
    spec = {"group": "example.com", "names": {"plural": "things", "kind": "Thing"}, "scope": "Namespaced"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    definition = {"metadata": {"name": "things.example.com"}, "spec": {**spec, "versions": [version]}}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    running.ask("POST", f"/branch/try{path}", definition)
    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "one"}, "size": 3}
    running.run(partial(until, running.server, "things.example.com", "Established", "True", below="/branch/try"))
    running.ask("POST", "/branch/try/apis/example.com/v1/namespaces/default/things", thing)
    done = chronicle("branch", "merge", "try", "--yes")
    assert done.code == 0, done.out + done.err
    assert running.ask("GET", "/apis/example.com/v1/namespaces/default/things/one")["size"] == 3
    running.ask("DELETE", f"{path}/things.example.com")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("merge",), "which branch?"),
        (("diff", "try", "--yes"), "--yes belongs to merge"),
        (("merge", "try", "--against", "now"), "--against belongs to diff"),
        (("create", "try", "--reason", "x"), "--reason belongs to merge"),
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
