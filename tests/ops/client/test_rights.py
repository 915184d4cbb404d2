"""`can-i` and `who can`: the sentence, the turning points, and the exit code."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from in_process import JOE
from server_in_thread import Running

Chronicle = Callable[..., Any]
GROUP = "rbac.authorization.k8s.io"
_names = (f"rights-{number}" for number in itertools.count(1))


@pytest.fixture
def rights(running: Running) -> tuple[str, int]:
    """Return a namespace in which uma was allowed to delete Pods, and the revision at which she was."""
    name = next(_names)
    rbac = f"/apis/{GROUP}/v1/namespaces/{name}"
    running.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]}]
    running.ask("POST", f"{rbac}/roles", {"metadata": {"name": "r"}, "rules": rules})
    subjects = [{"apiGroup": GROUP, "kind": "User", "name": "uma"}]
    reference = {"apiGroup": GROUP, "kind": "Role", "name": "r"}
    binding = {"metadata": {"name": "b"}, "roleRef": reference, "subjects": subjects}
    bound = running.ask("POST", f"{rbac}/rolebindings", binding)
    running.ask("DELETE", f"{rbac}/rolebindings/b")
    return name, int(bound["metadata"]["resourceVersion"])


def test_can_i(chronicle: Chronicle, rights: tuple[str, int]) -> None:
    name, revision = rights
    question = ("can-i", "delete", "po", "-n", name, "--as", "uma")
    output = chronicle(*question, "--at", str(revision))
    assert output.code == 0
    lines = output.out.splitlines()
    assert lines[0] == "yes"
    assert lines[1].startswith(f"uma was allowed to delete pods in namespace {name} at ")
    assert f"since      revision {revision}  " in output.out
    assert f"admin created rolebinding/b in namespace {name}" in output.out
    assert f"admin deleted rolebinding/b in namespace {name}" in output.out
    assert f"through    RoleBinding {name}/b of Role {name}/r" in output.out
    assert "decided by Node, RBAC (the present flags)" in output.out
    now = chronicle(*question)
    assert (now.code, now.out.splitlines()[0]) == (1, "no")
    assert "since      revision " in now.out
    assert "until      now" in now.out
    document = chronicle(*question, "--at", str(revision), "-o", "json").json()
    assert (document["kind"], document["allowed"], document["user"]) == ("RightsSummary", True, "uma")


def test_can_i_about_oneself_and_paths(chronicle: Chronicle) -> None:
    admin = chronicle("can-i", "get", "/metrics")
    assert (admin.code, admin.out.splitlines()[0]) == (0, "yes")
    assert "(of the present credential)" in admin.out
    joe = chronicle("can-i", "get", "/metrics", "--as", "joe")
    assert joe.code == 1
    assert chronicle("can-i", "delete", "pods", token=JOE).code == 2
    assert "did you mean" in chronicle("can-i", "delete", "pdos").err
    assert "name a verb and a resource" in chronicle("can-i", "delete").err
    assert chronicle("can-i", "impersonate", "users/uma", "-A", "--as", "joe").code == 1


def test_who_can(chronicle: Chronicle, rights: tuple[str, int]) -> None:
    name, revision = rights
    output = chronicle("who", "can", "delete", "pods", "-n", name, "--at", str(revision))
    assert output.code == 0
    assert output.out.startswith(f"Allowed to delete pods in namespace {name} at ")
    assert "\n  user uma\n" in output.out
    assert "are left out; --all lists them" in output.err
    assert "group system:masters" in chronicle("who", "can", "delete", "pods", "-n", name, "--all").out
    assert f"through  RoleBinding {name}/b of Role {name}/r" in output.out
    assert "system:masters" in output.err
    subjects = chronicle("who", "can", "delete", "pods", "-n", name, "--at", str(revision), "-o", "json").json()
    assert [each["name"] for each in subjects["subjects"] if each["since"].get("revision") == str(revision)] == ["uma"]
    nobody = chronicle("who", "can", "frobnicate", "lease", "-n", name, "--at", str(revision))
    if nobody.code:
        assert nobody.out.startswith("No binding let anybody frobnicate leases.coordination.k8s.io")
