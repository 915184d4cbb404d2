"""Admission whose work depends on the number of other objects: no pass of the event loop is long, and the answers are
those of an admission without pauses."""

from __future__ import annotations

from typing import Any

import pytest
from in_process import ADMISSION, MAPS, PODS, InProcess, configmap, open_server, pod
from stalls.longest_pass import passes_below

from kubechronicle.actors.admission import chain

POLICIES = "/apis/admissionregistration.k8s.io/v1"
NAMESPACE = "/api/v1/namespaces/default"
LONGEST = 0.06
"""Seconds of CPU of a pass. Each test took 0.13 s or more."""
CPU = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}


def containers(count: int, resources: Any = CPU) -> Any:
    return {"containers": [{"name": f"c{number}", "image": "i", "resources": resources} for number in range(count)]}


async def with_quotas(server: InProcess, count: int, hard: str = "1000") -> None:
    for number in range(count):
        path = f"{NAMESPACE}/resourcequotas"
        quota = {"metadata": {"name": f"q{number}"}, "spec": {"hard": {"count/configmaps": hard}}}
        made = await server.post(path, quota)
        status = {"hard": quota["spec"]["hard"], "used": {"count/configmaps": "0"}}  # type: ignore[index]
        await server.put(f"{path}/q{number}/status", {**made, "status": status})


async def with_limit_ranges(server: InProcess, count: int) -> None:
    for number in range(count):
        limits = [
            {"type": "Container", "max": {"cpu": "5"}, "default": {"cpu": "2", f"a.io/x{number % 3}": "1"}},
            {"type": "Pod", "max": {"cpu": str(1000 + number)}},
        ]
        await server.post(
            f"{NAMESPACE}/limitranges", {"metadata": {"name": f"l{number:03}"}, "spec": {"limits": limits}}
        )


async def with_policies(server: InProcess, params: int) -> None:
    for number in range(params):
        await server.post(MAPS, configmap(f"p{number}", labels={"param": "yes"}, avoided=f"n{number}"))
    policy = {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
            ]
        },
        "validations": [{"expression": "object.metadata.name != params.data.avoided"}],
        "auditAnnotations": [{"key": "seen", "valueExpression": "'by ' + params.metadata.name.substring(0, 1)"}],
    }
    binding = {
        "policyName": "p",
        "validationActions": ["Deny"],
        "paramRef": {"selector": {"matchLabels": {"param": "yes"}}, "parameterNotFoundAction": "Allow"},
    }
    await server.post(f"{POLICIES}/validatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": policy})
    await server.post(f"{POLICIES}/validatingadmissionpolicybindings", {"metadata": {"name": "p"}, "spec": binding})


async def with_webhooks(server: InProcess, count: int) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    for number in range(count):
        webhooks = [
            {
                "name": f"w{each}.a.io",
                "clientConfig": {"url": "https://127.0.0.1:1/"},
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "rules": [rule],
                "objectSelector": {"matchLabels": {"asked": "yes"}},
                "matchConditions": [{"name": "c", "expression": f"object.metadata.name == 'n{number}-{each}'"}],
            }
            for each in range(20)
        ]
        made = {"metadata": {"name": f"w{number}"}, "webhooks": webhooks}
        await server.post(f"{POLICIES}/validatingwebhookconfigurations", made)


async def test_many_rules_of_webhooks() -> None:
    async with open_server() as server:
        for number in range(20):
            rules = [
                {"apiGroups": [f"g{each}.io"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["maps"]}
                for each in range(4_000)
            ]
            webhook = {
                "name": "w.a.io",
                "clientConfig": {"url": "https://127.0.0.1:1/"},
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "rules": rules,
            }
            made = {"metadata": {"name": f"w{number}"}, "webhooks": [webhook]}
            await server.post(f"{POLICIES}/validatingwebhookconfigurations", made)
        with passes_below(LONGEST):
            await server.post(MAPS, configmap("a"))  # it reads all configurations
            await server.post(PODS, pod("a"))  # it looks at all rules


async def test_many_quotas() -> None:
    async with open_server() as server:
        await with_quotas(server, 400)
        with passes_below(LONGEST):
            await server.post(MAPS, configmap("a"))
        for number in (0, 399):
            quota = await server.get(f"{NAMESPACE}/resourcequotas/q{number}")
            assert quota["status"]["used"] == {"count/configmaps": "1"}


async def test_large_quotas() -> None:
    hard = {f"requests.a.io/x{number}": "1000" for number in range(15_000)}
    path = f"{NAMESPACE}/resourcequotas"
    async with open_server() as server:
        for name in ("a", "b"):
            made = await server.post(path, {"metadata": {"name": name}, "spec": {"hard": hard}})
            status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
            await server.put(f"{path}/{name}/status", {**made, "status": status})
        amounts = {f"a.io/x{number}": "1" for number in range(50)}
        wanted = {"metadata": {"name": "p"}, "spec": containers(1, {"requests": amounts, "limits": amounts})}
        with passes_below(LONGEST):
            await server.post(PODS, wanted)
        used = (await server.get(f"{path}/b"))["status"]["used"]
        assert (used["requests.a.io/x49"], used["requests.a.io/x50"]) == ("1", "0")


async def test_many_limit_ranges() -> None:
    async with open_server() as server:
        await with_limit_ranges(server, 100)
        with passes_below(LONGEST):
            made = await server.post(PODS, {"metadata": {"name": "a"}, "spec": containers(60)})
            refused = await server.ask("POST", PODS, {"metadata": {"name": "b"}, "spec": containers(60, {})})
        assert made["spec"]["containers"][59]["resources"]["limits"]["a.io/x2"] == "1"
        assert refused.status == 201


async def test_many_pods_of_a_namespace_whose_level_rises() -> None:
    async with open_server() as server:
        for number in range(1_000):
            await server.post(PODS, pod(f"p{number}"))
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        with passes_below(LONGEST):
            answer = await server.ask(
                "PATCH",
                NAMESPACE,
                {"metadata": {"labels": labels}},
                headers={"content-type": "application/merge-patch+json"},
            )
        assert answer.status == 200
        assert any("p0 (and 999 other pods)" in text for text in answer.header_all("warning"))


async def test_many_parameters_of_a_policy() -> None:
    async with open_server() as server:
        await with_policies(server, 2_500)
        with passes_below(LONGEST):
            await server.post(MAPS, configmap("a"))
            answer = await server.ask("POST", MAPS, configmap("n2499"))
        assert "object.metadata.name != params.data.avoided" in answer.refused(422)["message"]


async def test_many_webhooks() -> None:
    async with open_server() as server:
        await with_webhooks(server, 200)
        with passes_below(LONGEST):
            await server.post(MAPS, configmap("a"))
            await server.post(MAPS, configmap("b", labels={"asked": "yes"}))
        answer = await server.ask("POST", MAPS, configmap("n199-19", labels={"asked": "yes"}))
        assert "failed calling webhook" in answer.refused(500)["message"]


@pytest.mark.parametrize("at_once", [0.0, 60.0])
async def test_pauses_change_no_answer(at_once: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "TURN", at_once)
    async with open_server(admission=ADMISSION) as server:
        await with_quotas(server, 3, hard="12")
        await with_limit_ranges(server, 3)
        await with_policies(server, 5)
        await with_webhooks(server, 1)
        await server.post(MAPS, configmap("a"))
        assert (await server.ask("POST", MAPS, configmap("n3"))).refused(422)["message"] == (
            "configmaps \"n3\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: "
            "failed expression: object.metadata.name != params.data.avoided"
        )
        answer = await server.ask("POST", MAPS, configmap("n0-1", labels={"asked": "yes"}))
        assert "failed calling webhook" in answer.refused(500)["message"]
        used = [(await server.get(f"{NAMESPACE}/resourcequotas/q{n}"))["status"]["used"] for n in range(3)]
        assert used == [{"count/configmaps": "6"}] * 3
        for number in range(6):
            await server.post(MAPS, configmap(f"b{number}"))
        assert (
            "exceeded quota: q0, requested: count/configmaps=1, used: count/configmaps=12"
            in ((await server.ask("POST", MAPS, configmap("one-more"))).refused(403)["message"])
        )
        made = await server.post(PODS, {"metadata": {"name": "a"}, "spec": containers(1, {})})
        assert made["spec"]["containers"][0]["resources"]["limits"] == {
            "cpu": "2", "a.io/x0": "1", "a.io/x1": "1", "a.io/x2": "1"
        }  # fmt: skip
        assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
            "LimitRanger plugin set: a.io/x2 request for container c0; a.io/x2 limit for container c0"
        )
        refused = await server.ask(
            "POST", PODS, {"metadata": {"name": "b"}, "spec": containers(2, {"limits": {"cpu": "6"}})}
        )
        assert "maximum cpu usage per Container is 5, but limit is 6" in refused.refused(403)["message"]


async def test_a_dry_run_of_the_deletion_of_many() -> None:
    async with open_server() as server:
        for number in range(4_000):
            await server.post(MAPS, configmap(f"m{number}"))
        with passes_below(LONGEST):
            answer = await server.ask("DELETE", f"{MAPS}?dryRun=All")
        assert len(answer.ok()["items"]) == 4_000
