"""Several webhooks from a file, over real TLS: their conditions, and changes of the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from in_process import JOE, InProcess, open_server
from webhooks import Webhook, kubeconfig

from kubechronicle.http.authorization.configuration import load
from kubechronicle.http.authorization.current_authorizers import AuthorizationPlan

NODE, RBAC = {"type": "Node", "name": "node"}, {"type": "RBAC", "name": "rbac"}
FREE, GUARDED = (f"/api/v1/namespaces/{name}/configmaps" for name in ("free", "guarded"))
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
IN_GUARDED = ("has(request.resourceAttributes)", "request.resourceAttributes.namespace == 'guarded'")


def webhook(name: str, file: Path, *conditions: str, **changes: Any) -> dict[str, Any]:
    section = {
        "timeout": "5s",
        "subjectAccessReviewVersion": "v1",
        "failurePolicy": "Deny",
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": str(file)},
        "matchConditionSubjectAccessReviewVersion": "v1",
        "matchConditions": [{"expression": each} for each in conditions],
        **changes,
    }
    return {"type": "Webhook", "name": name, "webhook": section}


class Setting:
    """A configuration file and two webhooks it may name: ``guard`` denies, ``rest`` allows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "authorization.yaml"
        self.guard = Webhook(lambda spec: {"denied": True, "reason": "not here"})
        self.rest = Webhook()

    async def start(self, wire: Any) -> None:
        apps = {"guard": await wire(self.guard), "rest": await wire(self.rest)}
        self.files = {
            name: kubeconfig(self.folder, served.server.port, served.authority.file, name)
            for name, served in apps.items()
        }

    def write(self, *authorizers: dict[str, Any]) -> bytes:
        head = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration"}
        content = json.dumps({**head, "authorizers": authorizers}).encode()
        self.file.write_bytes(content)
        return content

    def plan(self, *authorizers: dict[str, Any]) -> AuthorizationPlan:
        content = self.write(*authorizers)
        return AuthorizationPlan(configured=load(content), file=self.file, content=content)

    def new_reviews(self) -> tuple[int, int]:
        """Return the number of reviews of each webhook since the last call."""
        counts = len(self.guard.reviews), len(self.rest.reviews)
        self.guard.reviews.clear()
        self.rest.reviews.clear()
        return counts


async def status(server: InProcess, target: str, method: str = "GET") -> int:
    return (await server.ask(method, target, token=JOE)).status


async def test_conditions_select_the_requests_of_each_webhook(wire: Any, tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    await setting.start(wire)
    plan = setting.plan(
        webhook("guard", setting.files["guard"], *IN_GUARDED, "request.user != 'ann'"),
        NODE,
        RBAC,
        webhook("rest", setting.files["rest"], cacheAuthorizedRequests=False),
    )
    async with open_server(authorization=plan, namespaces=("free", "guarded")) as server:
        assert await status(server, FREE) == 200
        assert setting.new_reviews() == (0, 1)
        assert await status(server, FREE) == 200
        assert setting.new_reviews() == (0, 1)  # not cached
        refused = (await server.ask("GET", GUARDED, token=JOE)).refused(403)
        assert refused["message"].endswith('in the namespace "guarded": not here')
        assert await status(server, GUARDED) == 403
        assert setting.new_reviews() == (1, 0)  # cached
        assert await status(server, "/version") == 200
        assert setting.new_reviews() == (0, 1)
        review = {"spec": {"user": "ann", "resourceAttributes": {"namespace": "guarded", "verb": "x", "resource": "y"}}}
        assert (await server.post(REVIEWS, review))["status"]["allowed"] is True
        assert setting.new_reviews() == (0, 1)
        excluded = await server.metric(
            "apiserver_authorization_match_condition_exclusions_total", type="Webhook", name="guard"
        )
        assert excluded
        denied = await server.metric(
            "apiserver_authorization_decisions_total", type="Webhook", name="guard", decision="denied"
        )
        assert denied == 2


async def test_a_condition_that_fails(wire: Any, tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    await setting.start(wire)
    fails = IN_GUARDED[1]  # for a request that names no resource

    def plan(policy: str) -> AuthorizationPlan:
        guard = webhook("guard", setting.files["guard"], fails, failurePolicy=policy)
        return setting.plan(NODE, RBAC, guard, webhook("rest", setting.files["rest"]))

    async with open_server(authorization=plan("Deny"), namespaces=("free",)) as server:
        assert server.assembly.authorization.file is not None
        answer = await server.ask("GET", "/version", token=JOE)
        assert answer.status == 500
        assert b"no such key: resourceAttributes" in answer.body
        assert setting.new_reviews() == (0, 0)
        plan("NoOpinion")
        await server.assembly.authorization.file.look()
        assert await status(server, "/version") == 200
        assert setting.new_reviews() == (0, 1)


async def test_a_changed_file(wire: Any, tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    await setting.start(wire)
    rest = webhook("rest", setting.files["rest"])
    plan = setting.plan(webhook("guard", setting.files["guard"]), NODE, RBAC, rest)
    async with open_server(authorization=plan, namespaces=("guarded",)) as server:
        file = server.assembly.authorization.file
        assert file is not None
        assert await status(server, GUARDED) == 403
        setting.write(NODE, RBAC, rest)
        await file.look()
        assert await status(server, GUARDED) == 200
        assert await status(server, GUARDED) == 200
        assert setting.new_reviews() == (1, 1)
        setting.write(NODE, RBAC, rest, webhook("more", setting.files["guard"]))
        await file.look()
        assert await status(server, GUARDED) == 200
        assert setting.new_reviews() == (0, 1)  # the cache is new
        setting.write(NODE, RBAC, webhook("rest", tmp_path / "none.kubeconfig"))
        await file.look()
        setting.files["guard"].write_text("{}")
        setting.write(NODE, RBAC, webhook("guard", setting.files["guard"]))
        await file.look()
        assert await status(server, GUARDED) == 200
        failures = "apiserver_authorization_config_controller_automatic_reloads_total"
        assert await server.metric(failures, status="failure", apiserver_id_hash="") == 2
