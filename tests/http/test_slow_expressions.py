"""Requests whose expressions or patterns take long leave the event loop to others.

A probe in the same loop notes the longest time of the main thread's CPU between two of its turns.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import thread_time
from typing import Any
from urllib.parse import quote

import pytest
import trio
from in_process import InProcess, configmap, open_server
from msgspec import structs

from kubechronicle.actors.large_work import LargeWork

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
LONGEST = 0.1


class Gap:
    longest = 0.0


@asynccontextmanager
async def probed() -> AsyncIterator[Gap]:
    gap = Gap()
    async with trio.open_nursery() as nursery:

        async def probe() -> None:
            last = thread_time()
            while True:
                await trio.lowlevel.checkpoint()
                now = thread_time()
                gap.longest = max(gap.longest, now - last)
                last = now

        nursery.start_soon(probe)
        yield gap
        nursery.cancel_scope.cancel()


def nested(expression: str, depth: int) -> str:
    for level in range(depth):
        expression = f"[1,2,3,4,5,6,7,8,9,10].all(x{level}, {expression})"
    return expression


def definition(plural: str, rules: list[str], spec: dict[str, Any] | None = None) -> dict[str, Any]:
    text = {"type": "object", "properties": {"text": {"type": "string", "maxLength": 60}}}
    schema = {
        "type": "object",
        "properties": {"spec": spec or text},
        "x-kubernetes-validations": [{"rule": rule} for rule in rules],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"plural": plural, "kind": plural.capitalize()},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}},
            ],
        },
    }


async def defined(server: InProcess, plural: str, rules: list[str], spec: dict[str, Any] | None = None) -> None:
    await server.post(DEFINITIONS, definition(plural, rules, spec))
    with trio.fail_after(30):
        while (await server.ask("GET", f"/apis/example.com/v1/{plural}")).status != 200:
            await trio.lowlevel.checkpoint()


def custom(plural: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": plural.capitalize(),
        "metadata": {"name": "x"},
        "spec": spec,
    }


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("cidr(self.spec.text).containsIP('10.0.0.1')", "10.0.0.0/8"),
        ("timestamp(self.spec.text) < timestamp('2040-01-01T00:00:00Z')", "2021-01-01T00:00:00Z"),
        ("isURL(self.spec.text)", "https://u:p@example.com:80/a?b=1"),
    ],
    ids=["cidr", "timestamp", "url"],
)
async def test_rules_of_a_definition(expression: str, text: str) -> None:
    async with open_server(loops=True) as server:
        await defined(server, "slows", [f"{nested(expression, 4)} && '{index}' != ''" for index in range(4)])
        async with probed() as gap:
            await server.post("/apis/example.com/v1/slows?dryRun=All", custom("slows", {"text": text}))
        assert gap.longest < LONGEST


async def test_rules_that_take_too_long_fail_as_those_that_cost_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    made = LargeWork.turn
    monkeypatch.setattr(LargeWork, "turn", lambda work, user: structs.replace(made(work, user), seconds=0.05))
    async with open_server(loops=True) as server:
        await defined(server, "slows", [nested("isURL(self.spec.text)", 5)])
        answer = await server.ask(
            "POST", "/apis/example.com/v1/slows?dryRun=All", custom("slows", {"text": "http://a/b"})
        )
    cause = answer.refused(422)["details"]["causes"][0]["message"]
    assert "no further validation rules will be run due to call cost exceeds limit for rule" in cause


def policy(name: str, kind: str, **spec: Any) -> dict[str, Any]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"matchConstraints": {"resourceRules": [rule]}, **spec},
    }


async def bound(server: InProcess, kind: str, made: dict[str, Any], **spec: Any) -> None:
    plural, name = kind.lower().replace("policy", "polic"), made["metadata"]["name"]
    await server.post(f"{ADMISSION}/{plural}ies", made)
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}Binding",
        "metadata": {"name": name},
        "spec": {"policyName": name, **spec},
    }
    await server.post(f"{ADMISSION}/{plural}ybindings", binding)


async def test_validating_policies_with_messages_and_variables() -> None:
    slow = nested("!isURL(object.metadata.name)", 3)
    kind = "ValidatingAdmissionPolicy"
    async with open_server(loops=True) as server:
        for index in range(12):
            validation = {
                "expression": f"variables.slow && {slow}",
                "messageExpression": "'no ' + object.metadata.name",
            }
            spec = {"variables": [{"name": "slow", "expression": slow}], "validations": [validation]}
            await bound(server, kind, policy(f"p{index}", kind, **spec), validationActions=["Deny"])
        async with probed() as gap:
            await server.post(f"{CONFIGMAPS}?dryRun=All", configmap("x"))
        assert gap.longest < LONGEST
        last = {"validations": [{"expression": f"!({slow})", "messageExpression": "'no ' + object.metadata.name"}]}
        await bound(server, kind, policy("last", kind, **last), validationActions=["Deny"])
        answer = await server.ask("POST", CONFIGMAPS, configmap("x"))
        assert answer.refused(422)["message"].endswith("denied request: no x")


async def test_mutating_policies_are_applied_once() -> None:
    kind = "MutatingAdmissionPolicy"
    slow = nested("!isURL(object.metadata.name)", 4)
    patch = "[JSONPatch{op: 'add', path: '/data', value: {'a': string(size(object.?data.orValue({})) + 1)}}]"
    mutations = [{"patchType": "JSONPatch", "jsonPatch": {"expression": f"{slow} ? {patch} : []"}}]
    spec = {"reinvocationPolicy": "Never", "failurePolicy": "Fail", "mutations": mutations}
    spec["matchConditions"] = [{"name": "slow", "expression": slow}]
    async with open_server(loops=True) as server:
        await bound(server, kind, policy("m", kind, **spec))
        async with probed() as gap:
            made = await server.post(CONFIGMAPS, configmap("x"))
        assert gap.longest < LONGEST
        assert made["data"] == {"a": "1"}


async def test_rights_are_asked_on_the_event_loop() -> None:
    kind = "ValidatingAdmissionPolicy"
    check = "authorizer.group('').resource('secrets').namespace('default').check('get').allowed()"
    async with open_server(loops=True) as server:
        spec = {"validations": [{"expression": f"{nested('!isURL(object.metadata.name)', 4)} && {check}"}]}
        await bound(server, kind, policy("p", kind, **spec), validationActions=["Deny"])
        await server.post(CONFIGMAPS, configmap("x"))


async def test_large_expressions_are_compiled_apart() -> None:
    large = "self.spec.text.startsWith('abcdefgh') && " * 1100 + "true"
    async with open_server(loops=True) as server:
        async with probed() as gap:
            await server.post(f"{DEFINITIONS}?dryRun=All", definition("larges", [large]))
            kind = "ValidatingAdmissionPolicy"
            spec = {"validations": [{"expression": large.replace("self.spec.text", "object.metadata.name")}]}
            await server.post(f"{ADMISSION}/validatingadmissionpolicies?dryRun=All", policy("p", kind, **spec))
            expression = quote("self.metadata.name.startsWith('abcdefgh') && " * 600 + "true")
            history = "/apis/history.kubechronicle.dev/v1/namespaces/default/revisions?summary=bisect"
            await server.respond("GET", f"{history}&expression={expression}")
        assert gap.longest < LONGEST


async def test_patterns_of_definitions_and_claims() -> None:
    def alternatives(count: int, most: int) -> str:
        return "(" + "|".join([f"(a?){{0,{most}}}"] * count) + ")"

    patterns = {f"p{index}": {"type": "string", "pattern": alternatives(2, 900 - index)} for index in range(20)}
    async with open_server(loops=True) as server:
        async with probed() as gap:
            await defined(server, "pats", [], {"type": "object", "properties": patterns})
            await server.post(
                "/apis/example.com/v1/pats?dryRun=All", custom("pats", dict.fromkeys(patterns, "a" * 200))
            )
            expression = f"device.driver.matches('{alternatives(800, 900)}')"
            exactly = {"deviceClassName": "c", "selectors": [{"cel": {"expression": expression}}]}
            claim = {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": "claim"},
                "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
            }
            answer = await server.ask("POST", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", claim)
        assert "invalid matches argument" in answer.refused(422)["message"]
        assert gap.longest < LONGEST
