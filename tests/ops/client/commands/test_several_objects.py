"""Several objects in one command, label selectors, impersonated users, evictions, and groups that the server counts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from in_process import ADMIN
from server_in_thread import InThread

from kubechronicle.api.history.reasons import HEADER

Chronicle = Callable[..., Any]


def headings(text: str) -> list[str]:
    return re.findall(r"^revision \d+  .*\)  (.*?) -n ", text, re.MULTILINE)


@pytest.fixture
def pods(running: Any, shop: tuple[str, int]) -> str:
    """Return a namespace with two Pods. Jane, as the administrator calls herself, evicts the first one."""
    name, _ = shop
    path = f"/api/v1/namespaces/{name}/pods"
    for pod, app in (("a", "web"), ("b", "db")):
        spec = {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0}
        running.ask("POST", path, {"metadata": {"name": pod, "labels": {"app": app}}, "spec": spec})
    jane = InThread(running, ADMIN, (("Impersonate-User", "jane"), ("Impersonate-Group", "system:masters")))
    body = b'{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"a"}}'
    reply = jane.send("POST", f"{path}/a/eviction", {"Content-Type": "application/json"}, body)
    assert reply.status < 300, reply
    return name


def test_log_of_several_objects_is_in_one_order(chronicle: Chronicle, pods: str) -> None:
    output = chronicle("log", "pod/a", "deployment/web", "pod/b", "-n", pods)
    numbers = [int(number) for number in re.findall(r"^revision (\d+)", output.out, re.MULTILINE)]
    assert numbers == sorted(numbers, reverse=True)
    assert len(headings(output.out)) >= 6
    assert chronicle("log", "pods", "a", "b", "-n", pods).out.count("create pods/") == 2


def test_labels_select_objects(chronicle: Chronicle, pods: str) -> None:
    log = headings(chronicle("log", "pods", "-l", "app=web", "-n", pods).out)
    assert set(log) == {"create pods/a", "evict pods/a"}
    answers = chronicle("who", "created", "pods", "-l", "app in (web, db)", "-n", pods).out.splitlines()
    assert {line.split(" in ")[0] for line in answers} == {"admin created pod/a", "admin created pod/b"}
    nothing = chronicle("who", "created", "pods", "-l", "app=none", "-n", pods)
    assert "had the labels app=none" in nothing.err
    assert nothing.code == 2


def test_who_answers_for_each_object(chronicle: Chronicle, pods: str) -> None:
    output = chronicle("who", "deleted", "pod/a", "pod/b", "-n", pods)
    assert "jane (impersonated by admin) evicted pod/a" in output.out
    assert "Nobody deleted pod/b" in output.out
    assert output.code == 0
    document = chronicle("who", "deleted", "pod/a", "pod/b", "-n", pods, "-o", "json").json()
    assert (len(document["answers"]), len(document["nobody"])) == (1, 1)


def test_a_user_is_found_in_another_name(chronicle: Chronicle, pods: str) -> None:
    for user in ("jane", "admin"):
        assert "evict pods/a" in headings(chronicle("log", "pod/a", "-n", pods, "--user", user).out)
    assert set(headings(chronicle("log", "-n", pods, "--user", "jane").out)) == {"evict pods/a"}
    groups = chronicle("between", "1", "now", "-n", pods, "--user", "admin").out
    assert "jane (impersonated by admin)" in groups


def test_between_selects_kinds_statuses_and_noise(chronicle: Chronicle, running: Any, pods: str) -> None:
    status = {"status": {"phase": "Running"}}
    running.ask("PATCH", f"/api/v1/namespaces/{pods}/pods/b/status", status)
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{pods}/leases"
    running.ask("POST", lease, {"metadata": {"name": "holder"}})
    whole = chronicle("between", "1", "now", "-n", pods, "--by", "kind").out
    assert "leases" not in whole
    assert "leases.coordination.k8s.io" in chronicle("between", "1", "now", "-n", pods, "--by", "kind", "--noise").out
    only = chronicle("between", "1", "now", "-n", pods, "--by", "kind", "--kind", "po", "-o", "json").json()
    assert [group["kind"] for group in only["groups"]] == ["pods"]
    without = chronicle("between", "1", "now", "-n", pods, "--kind", "pods", "--no-status", "-o", "json").json()
    assert without["changes"] == only["changes"] - 1
    limited = chronicle("between", "1", "now", "-n", pods, "--by", "object", "-v", "--limit", "2")
    assert len(re.findall(r"^  \d+  ", limited.out, re.MULTILINE)) <= 2
    assert "more groups; --limit 0 prints all" in limited.out
    everything = chronicle("between", "1", "now", "-n", pods, "-v", "--limit", "0", "-o", "json").json()
    listed = sum(len(group["revisions"]) for group in everything["groups"])
    assert listed == everything["changes"] > 10


def test_export_and_blame_of_several_objects(chronicle: Chronicle, pods: str) -> None:
    exported = chronicle("export", "deployment/web", "pod/b", "-n", pods, "--at", "now").out
    assert exported.count("kind: Pod\n") == exported.count("kind: Deployment\n") == 1
    labelled = chronicle("export", "pods", "-l", "app=db", "-n", pods, "--at", "now", "-o", "json").json()
    assert [each["metadata"]["name"] for each in labelled["items"]] == ["b"]
    for arguments, message in (
        (("pods", "-l", "app=none"), "there were no pods in namespace"),
        (("-l", "app=db"), "--selector needs a kind"),
        (("pod/b", "-l", "app=db"), "a name and --selector exclude each other"),
    ):
        output = chronicle("export", *arguments, "-n", pods, "--at", "now")
        assert (output.code, message in output.err) == (2, True), output
    blamed = chronicle("blame", "pod/b", "deployment/web", "-n", pods)
    assert f"# pod/b in namespace {pods}\n" in blamed.out
    assert f"\n# deployment.apps/web in namespace {pods}\n" in blamed.out
    assert len(chronicle("blame", "pod/b", "deploy/web", "-n", pods, "-o", "json").json()["objects"]) == 2


def test_log_of_several_kinds_is_in_one_order(chronicle: Chronicle, pods: str) -> None:
    output = chronicle("log", "pods,configmaps,namespaces", "-n", pods, "--since", "1d")
    kinds = {heading.split()[1].partition("/")[0] for heading in re.findall(r"\)  (\S+ \S+)", output.out)}
    assert {"pods", "configmaps", "namespaces"} <= kinds
    assert "deployments.apps" not in kinds


def test_log_without_reason_leaves_out_changes_that_somebody_explained(
    chronicle: Chronicle, running: Any, shop: tuple[str, int]
) -> None:
    name, _ = shop
    path = f"/api/v1/namespaces/{name}/configmaps"
    for number, reason in enumerate(("", "ticket 7", "")):
        headers = {"Content-Type": "application/json"} | ({HEADER: reason} if reason else {})
        reply = InThread(running, ADMIN).send("POST", path, headers, b'{"metadata":{"name":"m%d"}}' % number)
        assert reply.status == 201
    found = chronicle("log", "configmaps", "-n", name, "--without-reason", "--limit", "2")
    assert [each.partition(" ")[2] for each in headings(found.out)] == ["configmaps/m2", "configmaps/m0"]
    refused = chronicle("log", "--without-reason", "--reason", "x")
    assert (refused.code, "goes neither with --reason" in refused.err) == (2, True)
