"""A server with a webhook authorizer: its effect on requests, reviews and writes."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from in_process import ADMIN, JOE, MAPS, InProcess, configmap, open_server
from webhooks import Webhook, kubeconfig

from kubechronicle.api.configuration.structuring import Duration
from kubechronicle.http.authorization.configuration import (
    DENY,
    WebhookConfiguration,
    WebhookConnectionInfo,
    load,
    of_modes,
)
from kubechronicle.http.authorization.current_authorizers import AuthorizationPlan
from kubechronicle.http.messages import Request, Response

GROUP = "rbac.authorization.k8s.io"
ROLES = f"/apis/{GROUP}/v1/namespaces/default/roles"
BINDINGS = f"/apis/{GROUP}/v1/namespaces/default/rolebindings"
REVIEWS = "/apis/authorization.k8s.io/v1"
PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
SECRETS = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
MERGE = {"content-type": "application/merge-patch+json"}
APPLY = {"content-type": "application/apply-patch+yaml"}
KEPT = 300 * 10**9


@asynccontextmanager
async def asking(
    wire: Any,
    folder: Path,
    app: Any,
    *,
    modes: tuple[str, ...] = ("RBAC", "Webhook"),
    kept: int = KEPT,
    policy: str = "",
    **options: Any,
) -> AsyncIterator[InProcess]:
    """Serve with ``app`` as the webhook after RBAC. ``kept``: nanoseconds for which answers are cached."""
    served = await wire(app)
    file = kubeconfig(folder, served.server.port, served.authority.file)
    webhook = WebhookConfiguration(
        connection_info=WebhookConnectionInfo(kube_config_file=str(file)),
        subject_access_review_version="v1",
        authorized_ttl=Duration(kept),
        unauthorized_ttl=Duration(kept),
        failure_policy=policy,
    )
    plan = AuthorizationPlan(configured=of_modes(modes, webhook))
    async with open_server(authorization=plan, **options) as server:
        yield server


def verbs(app: Webhook) -> list[tuple[str, str, str]]:
    """Return (user, verb, resource) of each review."""
    triples = []
    for spec in app.specs:
        attributes = spec.get("resourceAttributes") or spec["nonResourceAttributes"]
        triples.append((spec["user"], attributes["verb"], attributes.get("resource") or attributes["path"]))
    return triples


def except_verbs(*refused: str, reason: str = "") -> Callable[[dict[str, Any]], dict[str, Any]]:
    def answer(spec: dict[str, Any]) -> dict[str, Any]:
        return {"allowed": spec["resourceAttributes"]["verb"] not in refused, "reason": reason}

    return answer


async def test_the_webhook_decides_about_requests(wire: Any, tmp_path: Path) -> None:
    app = Webhook(except_verbs("delete", reason="nothing is deleted on a Saturday"))
    async with asking(wire, tmp_path, app) as server:
        for _ in range(3):
            await server.get(f"{MAPS}?fieldSelector=metadata.name%3Da&labelSelector=x", token=JOE)
        await server.post(MAPS, configmap("a"), token=JOE)
        refusal = (await server.ask("DELETE", f"{MAPS}/a", token=JOE)).refused(403)
        assert refusal["message"] == (
            'configmaps "a" is forbidden: User "joe" cannot delete resource "configmaps" in API group "" in the '
            'namespace "default": default: nothing is deleted on a Saturday'
        )
        async with server.watch(f"{MAPS}?watch=1&resourceVersion=0", token=JOE) as stream:
            assert (await stream.event())[:2] == ("ADDED", "a")
        assert verbs(app) == [("joe", verb, "configmaps") for verb in ("list", "create", "delete", "watch")]
        assert app.specs[0]["resourceAttributes"] == {
            "namespace": "default",
            "verb": "list",
            "version": "v1",
            "resource": "configmaps",
            "name": "a",
            "fieldSelector": {"requirements": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]},
            "labelSelector": {"requirements": [{"key": "x", "operator": "Exists"}]},
        }
        assert app.specs[0]["groups"] == ["developers", "system:authenticated"]
        decided = await server.metric(
            "apiserver_authorization_decisions_total", type="Webhook", name="default", decision="allowed"
        )
        assert decided == 5
        evaluations = await server.metric(
            "apiserver_authorization_webhook_evaluations_total", name="default", result="success"
        )
        assert evaluations == 4


@pytest.mark.parametrize("policy", ["NoOpinion", DENY])
async def test_without_an_answer_the_request_fails(wire: Any, tmp_path: Path, policy: str) -> None:
    app = Webhook(lambda spec: Response(503, [], b""))
    async with asking(wire, tmp_path, app, policy=policy) as server:
        answer = await server.ask("GET", f"{MAPS}?limit=5&x=<b>", token=JOE)
        assert (answer.status, answer.header("content-type")) == (500, "text/plain; charset=utf-8")
        assert answer.body == (
            b'Internal Server Error: "/api/v1/namespaces/default/configmaps?limit=5&amp;x=&lt;b&gt;": '
            b"the server is currently unable to handle the request\n"
        )
        await server.get(MAPS)  # an administrator is not affected
        await server.post(
            ROLES,
            {
                "metadata": {"name": "reader"},
                "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}],
            },
        )
        subject = {"apiGroup": GROUP, "kind": "User", "name": "joe"}
        reference = {"apiGroup": GROUP, "kind": "Role", "name": "reader"}
        await server.post(BINDINGS, {"metadata": {"name": "joe"}, "roleRef": reference, "subjects": [subject]})
        await server.get(MAPS, token=JOE)  # nor is a user that RBAC allows
        opened = await server.metric(
            "apiserver_authorization_webhook_evaluations_fail_open_total", name="default", result="error"
        )
        assert opened == (None if policy == DENY else 1)


async def test_reviews_ask_the_webhook(wire: Any, tmp_path: Path) -> None:
    def answer(spec: dict[str, Any]) -> dict[str, Any] | Response:
        verb = spec["resourceAttributes"]["verb"]
        if verb == "explode":
            return Response(418, [], b"boom")
        return {"allowed": verb == "get", "denied": verb == "delete", "reason": f"{verb}!"}

    app = Webhook(answer)
    async with asking(wire, tmp_path, app) as server:

        async def review(**attributes: Any) -> Any:
            body = {"spec": {"user": "jane", "groups": ["g"], "resourceAttributes": {"resource": "pods", **attributes}}}
            return (await server.post(f"{REVIEWS}/subjectaccessreviews", body))["status"]

        for _ in range(2):
            assert await review(verb="get") == {"allowed": True, "reason": "get!"}
            assert await review(verb="list") == {"allowed": False, "reason": "default: list!"}
            assert await review(verb="delete") == {"allowed": False, "denied": True, "reason": "delete!"}
        assert len(app.reviews) == 3
        assert app.specs[0]["resourceAttributes"] == {"verb": "get", "version": "*", "resource": "pods"}
        status = await review(verb="explode")
        assert status == {
            "allowed": False,
            "evaluationError": "the server responded with the status code 418 but did not return more information",
        }
        app.reviews.clear()
        selector = {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n"]}]}
        labels = {"requirements": [{"key": "a", "operator": "NotIn", "values": ["1", "2"]}]}
        await review(verb="list", fieldSelector=selector, labelSelector=labels)
        sent = app.specs[0]["resourceAttributes"]
        assert (sent["fieldSelector"], sent["labelSelector"]) == (selector, labels)
        status = await review(
            verb="get",
            namespace="x",
            fieldSelector={"rawSelector": "a"},
            labelSelector={"requirements": [*labels["requirements"], {"key": "b", "operator": "Near"}]},
        )
        assert status["evaluationError"] == (
            "spec.resourceAttributes.fieldSelector ignored due to parse error; "
            "spec.resourceAttributes.labelSelector partially ignored due to parse error"
        )
        own = {"spec": {"resourceAttributes": {"resource": "pods", "verb": "get"}}}
        app.answer = lambda spec: {"allowed": True}
        assert (await server.post(f"{REVIEWS}/selfsubjectaccessreviews", own, token=JOE))["status"]["allowed"]
        listed = await server.post(f"{REVIEWS}/selfsubjectrulesreviews", {"spec": {"namespace": "default"}}, token=JOE)
        assert listed["status"]["incomplete"] is True
        assert listed["status"]["evaluationError"] == "webhook authorizer does not support user rule resolution"


@pytest.mark.parametrize("kept", [0, KEPT])
async def test_impersonation_asks_for_each_part_of_the_identity(wire: Any, tmp_path: Path, kept: int) -> None:
    app = Webhook(lambda spec: {"allowed": not spec["resourceAttributes"]["verb"].startswith("impersonate-on:")})
    async with asking(wire, tmp_path, app, kept=kept) as server:
        headers = {"impersonate-user": "jane", "impersonate-group": "g"}
        await server.get(MAPS, token=JOE, headers=headers)
        reviewed = [
            (spec["user"], spec["resourceAttributes"]["verb"], spec["resourceAttributes"].get("name", ""))
            for spec in app.specs
        ]
        assert reviewed == [
            ("joe", "impersonate-on:user-info:list", ""),
            ("joe", "impersonate", "jane"),
            ("joe", "impersonate", "g"),
            ("jane", "list", ""),
        ]
        app.answer = lambda spec: Response(503, [], b"")
        secrets = "/api/v1/namespaces/default/secrets"
        refused = (await server.ask("GET", secrets, token=JOE, headers={"impersonate-user": "kim"})).refused(403)
        assert refused["message"].endswith(": the server is currently unable to handle the request")


# -- several, from a file ---------------------------------------------------------------------------------------------


def described(name: str, file: Path, *conditions: str, policy: str = "NoOpinion") -> dict[str, Any]:
    """Return a webhook of an AuthorizationConfiguration."""
    webhook = {
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": str(file)},
        "timeout": "5s",
        "subjectAccessReviewVersion": "v1",
        "failurePolicy": policy,
        "matchConditionSubjectAccessReviewVersion": "v1",
        "matchConditions": [{"expression": expression} for expression in conditions],
    }
    return {"type": "Webhook", "name": name, "webhook": webhook}


def configuration(*authorizers: dict[str, Any]) -> bytes:
    return json.dumps(
        {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration", "authorizers": authorizers}
    ).encode()


async def test_several_webhooks_each_with_its_conditions(wire: Any, tmp_path: Path) -> None:
    first, second = Webhook(lambda spec: {"denied": True, "reason": "not here"}), Webhook()
    files = {}
    for name, app in (("first", first), ("second", second)):
        served = await wire(app)
        files[name] = kubeconfig(tmp_path, served.server.port, served.authority.file, name)
    vault = "has(request.resourceAttributes) && request.resourceAttributes.namespace == 'vault'"
    guard = described("guard", files["first"], vault, policy=DENY)
    rest = described("rest", files["second"], "request.user == 'joe'")
    file = tmp_path / "authorization.json"
    file.write_bytes(configuration(guard, rest))
    plan = AuthorizationPlan(configured=load(file.read_bytes()), file=file, content=file.read_bytes())
    async with open_server(authorization=plan, namespaces=("default", "vault")) as server:
        maps = "/api/v1/namespaces/vault/configmaps"
        await server.get(MAPS, token=JOE)
        assert (verbs(first), verbs(second)) == ([], [("joe", "list", "configmaps")])
        refusal = (await server.ask("GET", maps, token=JOE)).refused(403)
        assert refusal["message"].endswith(": not here")
        assert (len(first.reviews), len(second.reviews)) == (1, 1)
        (await server.ask("GET", "/version", token="")).refused(403)  # no webhook is asked about anonymous
        assert (len(first.reviews), len(second.reviews)) == (1, 1)
        excluded = "apiserver_authorization_match_condition_exclusions_total"
        assert await server.metric(excluded, type="Webhook", name="rest") == 1
        assert (
            await server.metric(excluded, type="Webhook", name="guard") == 3
        )  # once more after the answer of the other
        # A condition that fails is decided by the failure policy.
        broken = described("guard", files["first"], "request.extra['none'][0] == 'x'", policy=DENY)
        file.write_bytes(configuration(broken, rest))
        assert server.assembly.authorization.file is not None
        await server.assembly.authorization.file.look()
        answer = await server.ask("GET", MAPS, token=JOE)
        assert answer.status == 500
        assert b"no such key" in answer.body
        file.write_bytes(
            configuration({**broken, "webhook": {**broken["webhook"], "failurePolicy": "NoOpinion"}}, rest)
        )
        await server.assembly.authorization.file.look()
        await server.get(MAPS, token=JOE)
        assert (len(first.reviews), len(second.reviews)) == (1, 2)  # a new authorizer has an empty cache


# -- writes -----------------------------------------------------------------------------------------------------------


def role(name: str, *rules: Any) -> Any:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Role", "metadata": {"name": name}, "rules": list(rules)}


def to(name: str) -> Any:
    return {"metadata": {"name": f"to-{name}"}, "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": name}}


@pytest.mark.parametrize("kept", [0, KEPT])
async def test_the_webhook_decides_about_escalation(wire: Any, tmp_path: Path, kept: int) -> None:
    app = Webhook()
    async with asking(wire, tmp_path, app, kept=kept) as server:
        await server.post(ROLES, role("made", PODS), token=JOE)
        await server.put(f"{ROLES}/made", role("made", PODS, SECRETS), token=JOE)
        answer = await server.ask("PATCH", f"{ROLES}/made", {"rules": [SECRETS]}, token=JOE, headers=MERGE)
        assert answer.ok()["rules"] == [SECRETS]
        applied = f"{ROLES}/applied?fieldManager=me"
        for rules in ([PODS], [SECRETS]):
            await server.ask("PATCH", applied, role("applied", *rules), token=JOE, headers=APPLY)
        await server.post(BINDINGS, to("made"), token=JOE)
        reviewed = verbs(app)
        assert reviewed.count(("joe", "bind", "roles")) == 1
        assert {("joe", verb, "roles") for verb in ("create", "update", "patch", "escalate")} <= set(reviewed)
        names = [
            spec["resourceAttributes"].get("name", "")
            for spec in app.specs
            if spec["resourceAttributes"]["verb"] == "escalate"
        ]
        assert set(names) == {"", "made", "applied"}
        assert app.specs[-1]["resourceAttributes"] == {
            "namespace": "default",
            "verb": "bind",
            "group": GROUP,
            "version": "*",
            "resource": "roles",
            "name": "made",
        }


async def test_without_the_escalate_verb_rbac_rights_limit_a_role(wire: Any, tmp_path: Path) -> None:
    app = Webhook(except_verbs("escalate", "bind"))
    async with asking(wire, tmp_path, app, modes=("Webhook",)) as server:
        await server.post(ROLES, role("reader", PODS))
        refused = (await server.ask("POST", ROLES, role("up", PODS), token=JOE)).refused(403)
        assert "is attempting to grant RBAC permissions not currently held" in refused["message"]
        (await server.ask("PUT", f"{ROLES}/reader", role("reader", SECRETS), token=JOE)).refused(403)
        (await server.ask("POST", BINDINGS, to("reader"), token=JOE)).refused(403)
        subject = {"apiGroup": GROUP, "kind": "User", "name": "joe"}
        await server.post(BINDINGS, {**to("reader"), "subjects": [subject]})
        await server.post(ROLES, role("same", PODS), token=JOE)
        assert (await server.get(f"{ROLES}/reader"))["rules"] == [PODS]


async def test_the_webhook_decides_about_approval_of_certificates(wire: Any, tmp_path: Path) -> None:
    requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

    def answer(spec: dict[str, Any]) -> dict[str, Any]:
        attributes = spec["resourceAttributes"]
        return {"allowed": attributes["verb"] != "approve" or attributes.get("name") == "example.com/*"}

    app = Webhook(answer)
    condition = {"type": "Approved", "status": "True", "reason": "Good"}
    async with asking(wire, tmp_path, app) as server:
        for name, signer in (("a", "example.com/a"), ("b", "example.org/b")):
            built = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
            signed = built.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
            text = base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()
            spec = {"request": text, "signerName": signer, "usages": ["client auth"]}
            await server.post(requests, {"metadata": {"name": name}, "spec": spec})
            body = {"status": {"conditions": [condition]}}
            approved = await server.ask("PATCH", f"{requests}/{name}/approval", body, token=JOE, headers=MERGE)
            assert approved.status == (200 if name == "a" else 403)
        reviewed = [spec["resourceAttributes"] for spec in app.specs if spec["resourceAttributes"]["verb"] == "approve"]
        assert [(one["resource"], one["name"]) for one in reviewed] == [
            ("signers", "example.com/a"),
            ("signers", "example.com/*"),
            ("signers", "example.org/b"),
            ("signers", "example.org/*"),
        ]


class Hesitant(Webhook):
    """Delays the answers to reviews of one verb until ``go`` is set."""

    def __init__(self, verb: str) -> None:
        super().__init__()
        self.verb = verb
        self.reached, self.go = trio.Event(), trio.Event()

    async def __call__(self, request: Request) -> Response:
        response = await super().__call__(request)
        if self.reviews[-1]["spec"]["resourceAttributes"]["verb"] == self.verb:
            self.reached.set()
            await self.go.wait()
        return response


async def test_a_slow_webhook_does_not_block_other_requests(wire: Any, tmp_path: Path) -> None:
    app = Hesitant("escalate")
    async with asking(wire, tmp_path, app) as server:
        await server.post(ROLES, role("shared", PODS))
        patched: list[Any] = []

        async def patch() -> None:
            body = {"metadata": {"labels": {"joe": "was-here"}}, "rules": [PODS, SECRETS]}
            patched.append((await server.ask("PATCH", f"{ROLES}/shared", body, token=JOE, headers=MERGE)).ok())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(patch)
            await app.reached.wait()
            before = server.assembly.views.applied
            changed = {"metadata": {"annotations": {"admin": "too"}}}
            await server.ask("PATCH", f"{ROLES}/shared", changed, token=ADMIN, headers=MERGE)
            await server.post(ROLES, role("other", PODS))
            assert server.assembly.views.applied == before + 2
            assert not patched
            app.go.set()
        stored = await server.get(f"{ROLES}/shared")
        assert stored["rules"] == [PODS, SECRETS]
        assert (stored["metadata"]["labels"], stored["metadata"]["annotations"]) == (
            {"joe": "was-here"},
            {"admin": "too"},
        )
        assert stored == patched[0]


async def test_a_write_that_times_out_has_no_effect(wire: Any, tmp_path: Path) -> None:
    app = Hesitant("escalate")
    async with asking(wire, tmp_path, app) as server:
        await server.post(ROLES, role("shared", PODS))
        before = server.assembly.views.applied
        timed = f"{ROLES}/shared?timeout=100ms"
        assert (await server.ask("PUT", timed, role("shared", SECRETS), token=JOE)).status == 504
        assert (await server.ask("POST", f"{ROLES}?timeout=100ms", role("new", SECRETS), token=JOE)).status == 504
        assert server.assembly.views.applied == before
        app.go.set()
        await server.put(f"{ROLES}/shared", role("shared", SECRETS), token=JOE)


async def test_a_hundred_concurrent_requests_share_one_review(wire: Any, tmp_path: Path) -> None:
    app = Hesitant("list")
    async with asking(wire, tmp_path, app) as server:
        answers: list[Any] = []

        async def one() -> None:
            answers.append(await server.get(MAPS, token=JOE))

        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(one)
            await app.reached.wait()
            app.go.set()
        assert len(answers) == 100
        assert len(app.reviews) == 1
