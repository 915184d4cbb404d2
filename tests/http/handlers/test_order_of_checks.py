"""Test the order in which the handlers check a request: of two errors, the client sees the one kube-apiserver shows."""

from __future__ import annotations

import pytest

from kubechronicle.api.codecs.negotiate import YAML
from tests.support.in_process import configmap, open_server

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


async def test_bodies() -> None:
    async with open_server() as server:
        unknown = {"content-type": "text/x"}
        for method, path, code in (("POST", MAPS, 415), ("PUT", f"{MAPS}/a", 422), ("PATCH", f"{MAPS}/a", 415)):
            answer = await server.ask(method, f"{path}?dryRun=x", b"{}", headers=unknown)
            assert answer.status == code, method
        answer = await server.ask("PATCH", f"{MAPS}/a", b"{}", headers={**unknown, "accept": "text/html"})
        assert answer.status == 415


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
        ):
            assert (await server.ask(method, path)).status == code, (method, path)
