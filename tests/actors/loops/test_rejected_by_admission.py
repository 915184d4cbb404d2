"""The server's own writes rejected by cluster admission: by a webhook whose service is gone, by a policy, by a quota.
The server serves, its loops go on trying, and everything comes into being once the rejection ends.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from in_process import AUTHORIZATION, InProcess, configmap, open_server
from trio.testing import MockClock

from kubechronicle.actors.admission import plugins
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.ops.server.controllers import CONTROLLERS

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
HOOK: dict[str, Any] = {
    "metadata": {"name": "broken"},
    "webhooks": [
        {
            "name": "broken.example.com",
            "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}],
            "clientConfig": {"service": {"namespace": "default", "name": "gone"}},
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
    ],
}
POLICY: dict[str, Any] = {
    "metadata": {"name": "nothing"},
    "spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]},
            ]
        },
        "validations": [{"expression": "false", "message": "nothing may change"}],
    },
}
BINDING: dict[str, Any] = {
    "metadata": {"name": "nothing"},
    "spec": {"policyName": "nothing", "validationActions": ["Deny"]},
}
# Objects that every cluster has, deleted to be made again: one of each writer.
OWN = {
    "bootstrap": "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical",
    "endpoints": "/api/v1/namespaces/default/endpoints/kubernetes",
    "service": "/api/v1/namespaces/default/services/kubernetes",
    "api-services": "/apis/apiregistration.k8s.io/v1/apiservices/v1.apps",
    "rbac-bootstrap": "/apis/rbac.authorization.k8s.io/v1/clusterroles/view",
    "rbac-bindings": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/cluster-admin",
    "flow-control": "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/catch-all",
    "levels": "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations/workload-low",
    "trust": "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication",
    "legacy tokens": "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking",
    "serviceaccount": "/api/v1/namespaces/default/serviceaccounts/default",
    "root-ca": "/api/v1/namespaces/default/configmaps/kube-root-ca.crt",
}
OPTIONS: dict[str, Any] = {
    "loops": True,
    "address": "10.1.0.1",
    "controllers": frozenset(CONTROLLERS),
    "root_ca": b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n",
    "admission": plugins.DEFAULT,
    "authorization": AUTHORIZATION,
}


@asynccontextmanager
async def running(store: MemoryStore) -> AsyncIterator[InProcess]:
    async with open_server(store, **OPTIONS) as server:
        yield server


async def reject(server: InProcess, way: str) -> None:
    """Make cluster admission reject everything but changes of itself."""
    if way == "webhook":
        await server.post(f"{ADMISSION}/validatingwebhookconfigurations", HOOK)
    elif way == "mutating webhook":
        await server.post(f"{ADMISSION}/mutatingwebhookconfigurations", HOOK)
    else:
        await server.post(f"{ADMISSION}/validatingadmissionpolicies", POLICY)
        await server.post(f"{ADMISSION}/validatingadmissionpolicybindings", BINDING)


async def accept(server: InProcess, way: str) -> None:
    if way == "webhook":
        await server.delete(f"{ADMISSION}/validatingwebhookconfigurations/broken")
    elif way == "mutating webhook":
        await server.delete(f"{ADMISSION}/mutatingwebhookconfigurations/broken")
    else:
        await server.delete(f"{ADMISSION}/validatingadmissionpolicybindings/nothing")


async def lost(server: InProcess) -> set[str]:
    return {name for name, path in OWN.items() if (await server.ask("GET", path)).status == 404}


WAYS = ["webhook", "mutating webhook", "policy"]


@pytest.mark.parametrize("way", WAYS)
async def test_a_server_that_starts_among_rejections_serves_and_completes_itself_later(
    autojump_clock: MockClock, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    async with open_server(store, namespaces=("default", "kube-system"), authorization=AUTHORIZATION) as server:
        await reject(server, way)  # before any object of the bootstrap exists
    with caplog.at_level(logging.INFO):
        async with running(store) as server:
            assert trio.current_time() < 100, "the start waits for what is rejected"
            await server.get("/api/v1/namespaces/default")
            page = await server.ask("GET", "/readyz?verbose")
            assert page.status == 500
            for check in ("rbac/bootstrap-roles", "priority-and-fairness-config-producer"):
                assert f"[-]poststarthook/{check} failed".encode() in page.body
            assert b"[+]log ok" in page.body
            # The Lease of the server is renewed all the same.
            assert len(await server.names("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases")) == 1
            await trio.sleep(400)
            assert await lost(server)
            assert server.tree.restarts_total == 0
            lines = [record.message for record in caplog.records if "could not be reconciled" in record.message]
            assert len(lines) < 80, "each problem is said once in five minutes"
            await accept(server, way)
            await trio.sleep(120)
            assert not await lost(server)
            assert (await server.ask("GET", "/readyz")).status == 200
            assert server.tree.restarts_total == 0


@pytest.mark.parametrize("way", WAYS)
async def test_loops_go_on_after_rejections_while_the_server_runs(autojump_clock: MockClock, way: str) -> None:
    async with running(MemoryStore()) as server:
        await trio.sleep(30)
        assert not await lost(server)
        await server.post("/api/v1/namespaces", {"metadata": {"name": "ends"}})
        await server.post("/api/v1/namespaces/ends/configmaps", configmap("kept", namespace="ends"))
        await server.post(
            "/api/v1/namespaces/default/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}
        )
        for path in OWN.values():
            await server.ask("DELETE", path)
        await server.delete("/api/v1/namespaces/ends")
        await reject(server, way)
        await trio.sleep(400)
        await server.get("/api/v1/namespaces/default")
        assert server.tree.restarts_total == 0
        await accept(server, way)
        await trio.sleep(400)
        left = await lost(server) - {"api-services", "rbac-bootstrap", "rbac-bindings"}  # made at a start only
        assert not left
        assert (await server.ask("GET", "/api/v1/namespaces/ends")).status == 404
        assert (await server.ask("GET", "/readyz")).status == 200
        assert server.tree.restarts_total == 0


async def test_a_quota_in_one_namespace_does_not_keep_objects_from_others(autojump_clock: MockClock) -> None:
    async with running(MemoryStore()) as server:
        await trio.sleep(30)
        quota = {
            "metadata": {"name": "none"},
            "spec": {"hard": {"count/serviceaccounts": "0", "count/configmaps": "0"}},
        }
        await server.post("/api/v1/namespaces", {"metadata": {"name": "aaa"}})
        await server.post("/api/v1/namespaces/aaa/resourcequotas", quota)
        await trio.sleep(30)
        for path in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
            await server.delete(f"/api/v1/namespaces/aaa/{path}")
        await server.post("/api/v1/namespaces", {"metadata": {"name": "bbb"}})
        await trio.sleep(10)
        assert "default" in await server.names("/api/v1/namespaces/bbb/serviceaccounts")
        assert "kube-root-ca.crt" in await server.names("/api/v1/namespaces/bbb/configmaps")
        assert not await server.names("/api/v1/namespaces/aaa/serviceaccounts")
        await server.delete("/api/v1/namespaces/aaa/resourcequotas/none")
        await trio.sleep(400)
        assert "default" in await server.names("/api/v1/namespaces/aaa/serviceaccounts")
        assert "kube-root-ca.crt" in await server.names("/api/v1/namespaces/aaa/configmaps")
        assert server.tree.restarts_total == 0
