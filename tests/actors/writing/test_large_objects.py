"""Requests that look at one large object: no pass of the event loop is long, whatever they need of it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from in_process import PODS, Answer, InProcess, open_server
from stalls.longest_pass import passes_below

NAMESPACE = "/api/v1/namespaces/default"
LONGEST = 0.045
"""Seconds of CPU of a pass. To decode the pod once takes longer."""

Ask = Callable[[InProcess], Awaitable[Answer]]


def large_pod(name: str, **spec: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": "1m"}, "limits": {"cpu": "1m"}}
    containers = [{"name": f"c{number}", "image": "i", "resources": resources} for number in range(15_000)]
    return {"metadata": {"name": name, "labels": {"a": "b"}}, "spec": {"containers": containers, **spec}}


async def patch(server: InProcess, path: str, body: Any, kind: str = "merge-patch") -> Answer:
    return await server.ask("PATCH", f"{PODS}/{path}", body, headers={"content-type": f"application/{kind}+json"})


async def label(server: InProcess, name: str, value: str) -> Answer:
    return await patch(server, name, {"metadata": {"labels": {"x": value}}})


def resize(amount: str) -> dict[str, Any]:
    amounts = {"requests": {"cpu": amount}, "limits": {"cpu": amount}}
    return {"spec": {"containers": [{"name": "c1", "resources": amounts}]}}


async def token(server: InProcess) -> Answer:
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
    asked = {"spec": {"audiences": ["a"], "expirationSeconds": 3600, "boundObjectRef": reference}}
    return await server.ask("POST", f"{NAMESPACE}/serviceaccounts/default/token", asked)


async def transaction(server: InProcess) -> Answer:
    patch = {"metadata": {"labels": {"y": "1"}}}
    named = {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "p"}
    changes = [{"verb": "patch", "patchType": "merge", "patch": patch, **named}]
    return await server.ask("POST", "/apis/history.kubechronicle.dev/v1/transactions", {"spec": {"changes": changes}})


async def evict(server: InProcess) -> Answer:
    return await server.ask("POST", f"{PODS}/p/eviction", {"metadata": {"name": "p"}})


async def test_no_request_for_a_large_pod_holds_the_event_loop() -> None:
    """Each answer is that for a small pod; the code is part of the table."""
    body = json.dumps(large_pod("p", nodeName="n", serviceAccountName="default")).encode()
    requests: list[tuple[str, int, Ask]] = [
        ("create", 201, lambda server: server.ask("POST", PODS, body)),
        ("create again", 409, lambda server: server.ask("POST", PODS, body)),
        ("label", 200, lambda server: label(server, "p", "1")),
        ("unchanged", 200, lambda server: label(server, "p", "1")),
        ("transaction", 201, transaction),
        ("status", 200, lambda server: patch(server, "p/status", {"status": {"phase": "Running"}})),
        ("resize", 200, lambda server: patch(server, "p/resize", resize("2m"), "strategic-merge-patch")),
        ("log", 500, lambda server: server.ask("GET", f"{PODS}/p/log?container=c14999")),
        ("log of nothing", 400, lambda server: server.ask("GET", f"{PODS}/p/log?container=d")),
        ("exec", 500, lambda server: server.ask("POST", f"{PODS}/p/exec?container=c14999&command=a&stdout=1")),
        ("port-forward", 500, lambda server: server.ask("POST", f"{PODS}/p/portforward?ports=80")),
        ("proxy", 400, lambda server: server.ask("GET", f"{PODS}/p/proxy/")),
        ("token", 201, token),
        ("level", 200, lambda server: raise_level(server, "restricted")),
        ("evict", 201, evict),
        ("evict again", 201, evict),
        ("forced", 200, lambda server: server.ask("DELETE", f"{PODS}/p?gracePeriodSeconds=0")),
    ]
    async with open_server() as server:
        await server.post(f"{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})
        await server.post("/api/v1/nodes", {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "100"}}})
        await server.ask("POST", f"{PODS}/absent/exec?command=a&stdout=1")  # the first one imports modules
        for name, code, ask in requests:
            with passes_below(LONGEST):
                answer = await ask(server)
            assert answer.status == code, (name, answer.body[:300])


async def raise_level(server: InProcess, level: str) -> Answer:
    body = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}}
    headers = {"content-type": "application/merge-patch+json"}
    answer = await server.ask("PATCH", NAMESPACE, body, headers=headers)
    assert answer.header_all("warning"), "the pod violates the level"
    return answer


@pytest.mark.parametrize("kind", ["Pod", "Deployment"])
async def test_security_standards_judge_a_large_pod_in_steps(kind: str) -> None:
    levels = {"enforce": "baseline", "audit": "restricted", "warn": "restricted", "warn-version": "v1.25"}
    labels = {f"pod-security.kubernetes.io/{mode}": level for mode, level in levels.items()}
    async with open_server() as server:
        await server.post("/api/v1/namespaces", {"metadata": {"name": "strict", "labels": labels}})
        path, obj = "/api/v1/namespaces/strict/pods", large_pod("p")
        if kind == "Deployment":
            path = "/apis/apps/v1/namespaces/strict/deployments"
            obj["spec"] = {"selector": {"matchLabels": {"a": "b"}}, "template": large_pod("")}
        body = json.dumps(obj).encode()
        with passes_below(LONGEST):
            answer = await server.ask("POST", path, body)
        assert answer.status == 201
        assert "allowPrivilegeEscalation != false" in answer.header_all("warning")[0]
