"""Test the order in which the handlers check a request: of two errors, the client sees the one kube-apiserver shows."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.codecs.negotiate import YAML
from tests.support.in_process import configmap, open_server, pod

MAPS = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
YAML_TABLE = "application/yaml;as=Table;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize(
    ("query", "accept", "code"),
    [
        ("limit=x", "text/html", 406),
        ("sendInitialEvents=true", "text/html", 406),
        ("watch=1&sendInitialEvents=true", "text/html", 406),
        ("limit=x&labelSelector=a+in+(b", "*/*", 400),
        ("sendInitialEvents=true&labelSelector=a+in+(b", "*/*", 400),
        ("sendInitialEvents=true&fieldSelector=a", "*/*", 400),
        ("sendInitialEvents=true&fieldSelector=a%3Db", "*/*", 422),
        ("watch=1&sendInitialEvents=true", YAML, 422),
        ("watch=1&resourceVersion=x", YAML, 500),
        ("watch=1", YAML, 406),
        ("watch=1&resourceVersion=x&includeObject=x", TABLE, 500),
        ("watch=1&includeObject=x", TABLE, 400),
    ],
)
async def test_lists_and_watches(query: str, accept: str, code: int) -> None:
    async with open_server() as server:
        assert (await server.ask("GET", f"{MAPS}?{query}", headers={"accept": accept})).status == code


async def test_the_first_malformed_number_is_reported() -> None:
    async with open_server() as server:
        for query in ("limit=x&timeoutSeconds=y", "timeoutSeconds=y&limit=x"):
            refusal = (await server.ask("GET", f"{MAPS}?{query}")).refused(400)
            assert refusal["message"] == 'strconv.ParseInt: parsing "y": invalid syntax'


@pytest.mark.parametrize("revision", ["x", "99", "9223372036854775808"])
async def test_a_name_that_none_can_have_is_refused_before_the_revision(revision: str) -> None:
    async with open_server() as server:
        refusal = (await server.ask("GET", f"{MAPS}/..?resourceVersion={revision}")).refused(400)
        assert refusal["message"] == "Name parameter invalid: \"..\": may not be '..'"


async def test_bodies() -> None:
    async with open_server() as server:
        unknown = {"content-type": "text/x"}
        for method, path, code in (("POST", MAPS, 415), ("PUT", f"{MAPS}/a", 422), ("PATCH", f"{MAPS}/a", 415)):
            answer = await server.ask(method, f"{path}?dryRun=x", b"{}", headers=unknown)
            assert answer.status == code, method
        answer = await server.ask("PATCH", f"{MAPS}/a", b"{}", headers={**unknown, "accept": "text/html"})
        assert answer.status == 415


@pytest.mark.parametrize("below", ["", "/status", "/scale"])
@pytest.mark.parametrize(
    ("kind", "body", "code"),
    [
        ("merge-patch+json", b"{", 400),
        ("strategic-merge-patch+json", b"", 400),
        ("json-patch+json", b"[}", 400),
        ("json-patch+json", b"{}", 404),
        ("merge-patch+json", b"[]", 404),
        ("apply-patch+yaml", b"a: b: c", 400),
    ],
)
async def test_a_patch_for_an_absent_object_is_read_first(kind: str, body: bytes, code: int, below: str) -> None:
    path = f"/apis/apps/v1/namespaces/default/deployments/d{below}?fieldManager=m&fieldValidation=Ignore"
    async with open_server() as server:
        headers = {"content-type": f"application/{kind}"}
        message = (await server.ask("PATCH", path, body, headers=headers)).refused(code)["message"]
        malformed = "error encoding patch: yaml: " if "yaml" in kind else "invalid JSON patch"
        assert message.startswith(malformed if code == 400 else "deployments.apps")


async def test_the_policy_of_rows_is_checked_after_the_write() -> None:
    async with open_server() as server:
        headers = {"accept": TABLE}
        answer = await server.ask("POST", f"{MAPS}?includeObject=x", configmap("a"), headers=headers)
        assert answer.status == 400
        assert await server.get(f"{MAPS}/a")
        assert (await server.ask("GET", f"{MAPS}/absent?includeObject=x", headers=headers)).status == 404
        assert (await server.ask("GET", f"{MAPS}?includeObject=x", headers=headers)).status == 400


async def test_errors_have_no_table() -> None:
    async with open_server() as server:
        answer = await server.ask("GET", f"{MAPS}/absent", headers={"accept": YAML_TABLE})
        assert (answer.status, answer.header("content-type")) == (404, "application/json")
        answer = await server.ask("GET", f"{MAPS}/absent", headers={"accept": f"{YAML_TABLE}, {YAML}"})
        assert answer.header("content-type") == YAML


async def test_a_namespace_without_a_name() -> None:
    async with open_server() as server:
        await server.post(MAPS, configmap("a"))
        nowhere = "/api/v1/namespaces//configmaps"
        assert "a" in await server.names(nowhere)
        for method, path, code in (
            ("PUT", nowhere, 405),
            ("OPTIONS", f"{nowhere}/a", 405),
            ("DELETE", nowhere, 400),
            ("GET", f"{nowhere}/a", 400),
            ("POST", nowhere, 400),
            ("GET", "/api/v1/namespaces///configmaps", 404),
            ("GET", "/api/v1/namespaces//nodes", 404),
            ("GET", "/api/v1/namespaces/default//configmaps", 404),
            ("GET", "/api/v1/namespaces/default/configmaps/%2f", 200),
            ("PATCH", "/api/v1/namespaces/default/configmaps//", 405),
            ("POST", "/api/v1/namespaces//pods/p/eviction", 400),
        ):
            assert (await server.ask(method, path)).status == code, (method, path)


@pytest.mark.parametrize(
    ("plural", "body", "code", "message"),
    [
        ("configmaps", configmap("b"), 422, 'ConfigMap "b" is invalid: metadata.namespace: Required value'),
        ("configmaps", {"metadata": {"name": "b", "namespace": "default"}}, 422, "metadata.namespace: Required value"),
        ("pods", pod("b"), 422, "metadata.namespace: Required value"),
        ("bindings", {"metadata": {"name": "p"}}, 500, "target.name: Required value"),
        ("bindings", {"metadata": {"name": "p"}, "target": {"name": "n"}}, 400, "Namespace parameter required."),
        ("configmaps", b"", 400, "the object provided is unrecognized"),
    ],
)
async def test_a_creation_in_a_namespace_without_a_name_is_refused_by_its_rules(
    plural: str, body: Any, code: int, message: str
) -> None:
    async with open_server() as server:
        for query in ("", "?dryRun=All"):
            answer = await server.ask("POST", f"/api/v1/namespaces//{plural}{query}", body)
            assert answer.status == code
            assert message in answer.json()["message"]
        assert "b" not in await server.names("/api/v1/configmaps")


async def test_a_namespace_without_a_name_has_nothing_to_delete() -> None:
    async with open_server() as server:
        await server.post(MAPS, configmap("a"))
        nowhere = "/api/v1/namespaces//configmaps"
        for query in ("", "?dryRun=All", "?fieldSelector=metadata.name%3Da"):
            (await server.ask("DELETE", nowhere + query)).refused(400)
        deleted = (await server.ask("DELETE", f"{nowhere}?fieldSelector=metadata.name%3Db")).ok()
        assert (deleted["kind"], deleted["items"]) == ("ConfigMapList", [])
        assert "a" in await server.names(MAPS)


async def test_a_list_of_one_name_has_no_pages() -> None:
    async with open_server() as server:
        for name in ("a", "b"):
            await server.post(MAPS, configmap(name))
        first = await server.get(f"{MAPS}?limit=1")
        one = await server.get(f"{MAPS}?limit=1&fieldSelector=metadata.name%3Da")
        assert "continue" not in one["metadata"]
        token = first["metadata"]["continue"]
        assert await server.names(f"{MAPS}?continue={token}&fieldSelector=metadata.name%3Da") == []  # it was before
        (await server.ask("GET", f"{MAPS}?continue=e30&fieldSelector=metadata.name%3Da")).refused(400)


async def test_a_deletion_that_is_over_at_once_is_no_accepted_one() -> None:
    async with open_server() as server:
        pods = "/api/v1/namespaces/default/pods"
        await server.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        for query in ("?orphanDependents=false&dryRun=All", "?orphanDependents=false"):
            if "dryRun" in query:
                await server.post(pods, pod("a"))
            assert (await server.ask("DELETE", f"{pods}/a{query}")).status == 200, query


async def test_subresources_without_tables() -> None:
    async with open_server() as server:
        headers = {"accept": TABLE}
        body = {"metadata": {"name": "a"}}
        for place in ("bindings", "pods/a/binding", "pods/a/eviction"):
            answer = await server.ask("POST", f"/api/v1/namespaces/default/{place}", body, headers=headers)
            assert answer.status == 406, place
        patch = {"accept": "text/html", "content-type": "application/json-patch+json"}
        scale = "/apis/apps/v1/namespaces/default/deployments/a/scale"
        assert (await server.ask("PATCH", scale, b"[{", headers=patch)).status == 406


UNSAFE = "ignoreStoreReadErrorWithClusterBreakingPotential"


@pytest.mark.parametrize(
    ("path", "code", "fields"),
    [
        ("/c?{}=true&dryRun=All", 409, []),
        ("/absent?{}=true", 404, []),
        ("/c?{}=true&gracePeriodSeconds=0&propagationPolicy=Foreground", 422, [UNSAFE, UNSAFE]),
        ("?{}=true", 422, [UNSAFE]),
        ("/c?{}=false&dryRun=All", 200, []),
    ],
)
async def test_a_deletion_that_demands_a_corrupt_object(path: str, code: int, fields: list[str]) -> None:
    """Every object of the log can be decoded, so that none is deleted like this (KEP-3926)."""
    async with open_server() as server:
        await server.post(MAPS, configmap("c"))
        answer = await server.ask("DELETE", MAPS + path.format(UNSAFE))
    assert answer.status == code
    causes = (answer.json().get("details") or {}).get("causes") or []
    assert [cause["field"] for cause in causes] == fields
