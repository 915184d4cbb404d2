"""Mutating admission by many policies and webhooks, and of large objects: no pass of the event loop is long, and the
answers are those of an admission without pauses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from admission.prepared_webhooks import Hooks, adding, configure, webhook
from custom.definitions import definition, version
from custom.serving import WIDGETS, define, serving
from in_process import MAPS, PODS, InProcess, configmap, open_server, pod
from stalls.longest_pass import passes_below

from kubechronicle.actors.admission import chain, plugins

POLICIES = "/apis/admissionregistration.k8s.io/v1"
LONGEST = 0.06
"""Seconds of CPU of a pass. Each test took 0.13 s or more."""
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}


async def with_policy(server: InProcess, expression: str, *, params: int = 0, again: bool = False) -> None:
    """Create a policy of one mutation. ``params``: applied with so many ConfigMaps."""
    for number in range(params):
        await server.post(MAPS, configmap(f"p{number:04}", labels={"param": "yes"}, value=f"v{number}"))
    spec = {
        "matchConstraints": {"resourceRules": [RULE]},
        "reinvocationPolicy": "IfNeeded" if again else "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
    }
    binding: dict[str, Any] = {"policyName": "p"}
    if params:
        spec["paramKind"] = {"apiVersion": "v1", "kind": "ConfigMap"}
        binding["paramRef"] = {"selector": {"matchLabels": {"param": "yes"}}, "parameterNotFoundAction": "Allow"}
    await server.post(f"{POLICIES}/mutatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": spec})
    await server.post(f"{POLICIES}/mutatingadmissionpolicybindings", {"metadata": {"name": "p"}, "spec": binding})


async def with_webhooks(server: InProcess, count: int) -> None:
    for number in range(count):
        webhooks = [
            {
                "name": f"w{each}.a.io",
                "clientConfig": {"url": "https://127.0.0.1:1/"},
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "rules": [RULE],
                "failurePolicy": "Ignore" if each % 2 else "Fail",
                "matchConditions": [{"name": "c", "expression": f"object.metadata.name == 'n{number}-{each}'"}],
            }
            for each in range(20)
        ]
        made = {"metadata": {"name": f"w{number}"}, "webhooks": webhooks}
        await server.post(f"{POLICIES}/mutatingwebhookconfigurations", made)


async def patch(server: InProcess, name: str, **labels: str) -> None:
    headers = {"content-type": "application/merge-patch+json"}
    answer = await server.ask("PATCH", f"{MAPS}/{name}", {"metadata": {"labels": labels}}, headers=headers)
    assert answer.status == 200


BY_PARAM = "Object{metadata: Object.metadata{labels: {'seen': params.data.value}}}"


async def test_many_parameters_of_a_policy() -> None:
    async with open_server() as server:
        await with_policy(server, BY_PARAM, params=3_000)
        with passes_below(LONGEST):
            made = await server.post(MAPS, configmap("a"))
        assert made["metadata"]["labels"] == {"seen": "v2999"}


async def test_many_webhooks() -> None:
    async with open_server() as server:
        await with_webhooks(server, 200)
        await server.ask("POST", MAPS, configmap("n0-0"))  # its first use imports modules
        with passes_below(LONGEST):
            await server.post(MAPS, configmap("a"))
            answer = await server.ask("POST", MAPS, configmap("n199-18"))
            await server.post(MAPS, configmap("n199-19"))
        assert "failed calling webhook" in answer.refused(500)["message"]


async def test_a_large_object() -> None:
    async with open_server() as server:
        await with_policy(server, "Object{metadata: Object.metadata{labels: {'seen': 'yes'}}}", again=True)
        body = json.dumps(configmap("a", **{f"k{number}": "" for number in range(90_000)})).encode()
        with passes_below(LONGEST):
            answer = await server.ask("POST", MAPS, body)
        assert answer.ok()["metadata"]["labels"] == {"seen": "yes"}
        with passes_below(LONGEST):
            await patch(server, "a", more="1")
        for _ in range(2):  # the policy sees the object before
            with passes_below(LONGEST):
                await patch(server, "a", seen="no")


@pytest.mark.parametrize("at_once", [0, 60])
async def test_pauses_change_no_answer(at_once: int, hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "TURN", at_once)
    runs = "string(int(object.metadata.labels['runs']) + 1)"
    count = f"Object{{metadata: Object.metadata{{labels: {{'runs': {runs}}}}}}}"
    async with open_server() as server:
        await with_policy(server, count, params=3, again=True)
        hooks.replies["one"] = adding("/data/one", "1")
        hooks.replies["two"] = adding("/data/two", "2")
        await configure(server, "mutating", webhook("one", reinvocationPolicy="IfNeeded"), webhook("two"))
        made = await server.post(MAPS, configmap("a", labels={"runs": "0"}, x="0"))
        assert made["data"] == {"x": "0", "one": "1", "two": "2"}
        assert made["metadata"]["labels"] == {"runs": "6"}
        assert hooks.names == ["one", "two", "one"]
        hooks.replies["two"] = {"allowed": False}
        refused = await server.ask("POST", MAPS, configmap("b", labels={"runs": "0"}, x="0"))
        assert "denied the request" in refused.refused(400)["message"]
        hooks.replies["two"] = {}
        made = await server.post(MAPS, configmap("b", labels={"runs": "0"}, x="0"))
        assert made["data"] == {"x": "0", "one": "1"}


async def test_a_large_runtime_class() -> None:
    tolerations = [{"key": f"k{number}", "operator": "Exists", "effect": "NoExecute"} for number in range(30_000)]
    made = {
        "metadata": {"name": "r"},
        "handler": "h",
        "overhead": {"podFixed": {"cpu": "1"}},
        "scheduling": {"tolerations": tolerations},
    }
    async with open_server() as server:
        await server.post("/apis/node.k8s.io/v1/runtimeclasses", made)
        body = pod("p")
        body["spec"]["runtimeClassName"] = "r"
        with passes_below(LONGEST):
            answer = await server.ask("POST", PODS, body)
        spec = answer.ok()["spec"]
        assert spec["overhead"] == {"cpu": "1"}
        assert len(spec["tolerations"]) > 30_000


async def test_a_small_object_of_many_defaults() -> None:
    item = {"type": "object", "properties": {f"p{number}": {"type": "string", "default": "d"} for number in range(100)}}
    schema = {"type": "object", "properties": {"entries": {"type": "array", "items": item}}}
    async with serving() as server:
        await define(server, definition(version(schema={"openAPIV3Schema": schema})))
        widget = {"apiVersion": "example.com/v1", "kind": "Widget"}
        await server.post(WIDGETS, {**widget, "metadata": {"name": "a"}, "entries": [{}]})
        with passes_below(LONGEST / 2):
            answer = await server.ask("POST", WIDGETS, {**widget, "metadata": {"name": "b"}, "entries": [{}] * 1_990})
        assert answer.ok()["entries"][1_989]["p99"] == "d"


async def test_a_large_service_account() -> None:
    account = {"metadata": {"name": "large"}, "imagePullSecrets": [{"name": f"s{number}"} for number in range(60_000)]}
    async with open_server(admission=plugins.DEFAULT) as server:
        await server.post("/api/v1/namespaces/default/serviceaccounts", account)
        for name in ("a", "b"):
            body = pod(name)
            body["spec"]["serviceAccountName"] = "large"
            with passes_below(LONGEST):
                answer = await server.ask("POST", PODS, body)
            assert len(answer.ok()["spec"]["imagePullSecrets"]) == 60_000
