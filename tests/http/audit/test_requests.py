"""The audit filter on a whole server: which events a request has, with which contents."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from admission.prepared_webhooks import Hooks, adding, configure, webhook
from in_process import MAPS, PROTOBUF, SERVICE_ACCOUNT_KEY, InProcess, configmap, open_server, pod

from kubechronicle.api.access import account_tokens
from kubechronicle.api.audit import policy as policies
from kubechronicle.api.audit.events import AuditEvent, Offered
from kubechronicle.http.audit.audit import source_addresses
from kubechronicle.http.audit.backends import AuditBackend, Delivery, LogSettings
from kubechronicle.http.authentication.legacy_tokens import INVALID_SINCE
from kubechronicle.http.messages import BufferedExchange, Headers, Response
from kubechronicle.ops.server import composition
from kubechronicle.ops.server.audit import AuditPlan

EVERYTHING = "rules: [{level: RequestResponse}]"


class Recorder:
    """A backend that keeps events. ``fails``: stages whose events it does not take."""

    def __init__(self, mode: str = "blocking", fails: tuple[str, ...] = ()) -> None:
        self.mode = mode
        self.fails = fails
        self.events: list[dict[str, Any]] = []

    def offer(self, event: Offered) -> Delivery | None:
        found = json.loads(AuditEvent.of(event).encoded())
        if found["stage"] not in self.fails:
            self.events.append(found)
        if self.mode == "batch":
            return None
        delivery = Delivery(event)
        delivery.finish(ok=found["stage"] not in self.fails)
        return delivery

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await trio.sleep_forever()

    def of(self, uri: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["requestURI"].startswith(uri)]

    def last(self) -> dict[str, Any]:
        return self.events[-1]


@asynccontextmanager
async def recording(
    tmp_path: Path, text: str = EVERYTHING, backend: Recorder | None = None, **options: Any
) -> AsyncIterator[tuple[InProcess, Recorder]]:
    """Run a server whose events a Recorder gets instead of the file."""
    file = tmp_path / "policy.yaml"
    file.write_text(f"apiVersion: audit.k8s.io/v1\nkind: Policy\n{text}\n")
    policy, _ = policies.load(file.read_bytes())
    settings = LogSettings(path=str(tmp_path / "audit.log"))
    plan = AuditPlan(policy=policy, file=file, content=file.read_bytes(), log=settings)
    async with open_server(other={"audit": plan}, **options) as server:
        recorder = backend or Recorder()
        replace_backend(server, recorder)
        yield server, recorder


def replace_backend(server: InProcess, recorder: AuditBackend) -> None:
    audit = audit_of(server)
    audit.backends = [recorder]
    audit.__post_init__()


def audit_of(server: InProcess) -> Any:
    """Return the Audit in the closure of the application's filters."""
    pending: list[Any] = [server.assembly.application.application]
    seen: set[int] = set()
    while pending:
        function = pending.pop()
        for cell in getattr(function, "__closure__", None) or ():
            found = cell.cell_contents
            if type(found).__name__ == "Audit":
                return found
            if callable(found) and id(found) not in seen:
                seen.add(id(found))
                pending.append(found)
    raise AssertionError("audit is off")


async def test_a_create_has_the_object_as_sent_and_as_stored(tmp_path: Path) -> None:
    async with recording(tmp_path) as (server, recorder):
        await server.post(MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "nope": 1})
        received, complete = recorder.of(MAPS)
    assert received["stage"] == "RequestReceived"
    assert "annotations" not in received
    assert received["objectRef"] == {"resource": "configmaps", "namespace": "default", "apiVersion": "v1"}
    assert complete["stage"] == "ResponseComplete"
    assert complete["objectRef"]["name"] == "a"
    assert complete["requestObject"] == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    assert complete["responseObject"]["metadata"]["resourceVersion"]
    assert complete["responseStatus"] == {"metadata": {}, "code": 201}
    assert complete["user"] == {"username": "admin", "uid": "1", "groups": ["system:masters", "system:authenticated"]}
    assert complete["annotations"]["authorization.k8s.io/decision"] == "allow"
    assert complete["auditID"] == received["auditID"]


@pytest.mark.parametrize(("level", "request_shown", "response_shown"), [
    ("Metadata", False, False), ("Request", True, False), ("RequestResponse", True, True),
])  # fmt: skip
async def test_the_level_says_what_is_shown(
    level: str, request_shown: bool, response_shown: bool, tmp_path: Path
) -> None:
    text = f"omitStages: [RequestReceived]\nrules: [{{level: {level}}}]"
    async with recording(tmp_path, text) as (server, recorder):
        await server.post(MAPS, configmap("a"))
        event = recorder.last()
    assert event["objectRef"]["name"] == "a"
    assert ("requestObject" in event, "responseObject" in event) == (request_shown, response_shown)


async def test_the_reason_of_a_write_is_an_annotation(tmp_path: Path) -> None:
    async with recording(tmp_path) as (server, recorder):
        (await server.ask("POST", MAPS, configmap("a"), headers={"kubechronicle-reason": "ticket 42"})).ok()
        assert recorder.last()["annotations"]["history.kubechronicle.dev/reason"] == "ticket 42"
        (await server.ask("POST", f"/because/ticket%2043{MAPS}", configmap("b"))).ok()
        assert recorder.last()["requestURI"] == MAPS
        assert recorder.last()["annotations"]["history.kubechronicle.dev/reason"] == "ticket 43"


async def test_level_none_records_nothing_and_counts(tmp_path: Path) -> None:
    async with recording(tmp_path, "rules: [{level: None}]") as (server, recorder):
        await server.get(MAPS)
        assert recorder.events == []
        assert await server.metric("apiserver_audit_level_total", level="None")
        assert await server.metric("apiserver_audit_event_total") == 0


async def test_other_forms_of_answers_are_shown_as_json(tmp_path: Path) -> None:
    async with recording(tmp_path, "omitManagedFields: true\n" + EVERYTHING) as (server, recorder):
        await server.post(MAPS, configmap("a", x="1"))
        for headers in ({"accept": PROTOBUF}, {"accept": "application/yaml"}, {}):
            await server.ask("GET", f"{MAPS}/a?pretty=1", headers=headers)
            shown = recorder.last()["responseObject"]
            assert (shown["data"], "managedFields" in shown["metadata"]) == ({"x": "1"}, False)
        await server.ask("GET", MAPS, headers={"accept": PROTOBUF})
        assert recorder.last()["responseObject"]["items"][0]["data"] == {"x": "1"}


async def test_patches_and_deletions_show_what_was_sent(tmp_path: Path) -> None:
    async with recording(tmp_path) as (server, recorder):
        await server.post(MAPS, configmap("a"))
        await server.patch(f"{MAPS}/a", {"data": {"x": "1"}})
        assert recorder.last()["requestObject"] == {"data": {"x": "1"}}
        await server.ask("PATCH", f"{MAPS}/a", b'{"broken', headers={"content-type": "application/merge-patch+json"})
        assert recorder.last()["requestObject"] == '{"broken'
        assert recorder.last()["responseStatus"]["code"] == 400
        applied = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
        await server.ask(
            "PATCH", f"{MAPS}/a?fieldManager=m", applied, headers={"content-type": "application/apply-patch+yaml"}
        )
        assert recorder.last()["requestObject"]["metadata"] == {"name": "a"}
        await server.delete(f"{MAPS}/a", {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
        event = recorder.last()
    assert event["requestObject"] == {
        "apiVersion": "meta.k8s.io/__internal", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
    }  # fmt: skip
    assert (event["responseStatus"]["status"], event["responseStatus"]["code"]) == ("Success", 200)


async def test_an_error_is_in_the_status(tmp_path: Path) -> None:
    async with recording(tmp_path) as (server, recorder):
        (await server.ask("GET", f"{MAPS}/none")).refused(404)
        event = recorder.last()
    assert event["responseStatus"]["reason"] == event["responseObject"]["reason"] == "NotFound"
    assert event["objectRef"]["name"] == "none"


async def test_a_wrong_credential_has_one_event_without_a_user(tmp_path: Path) -> None:
    async with recording(tmp_path) as (server, recorder):
        (await server.ask("GET", MAPS, token="wrong")).refused(401)
        (event,) = recorder.of(MAPS)
    assert (event["stage"], event["user"], event["responseStatus"]["code"]) == ("ResponseStarted", {}, 401)


async def test_a_refused_legacy_token_is_named(tmp_path: Path) -> None:
    async with recording(tmp_path) as (server, recorder):
        account = await server.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
        claim = "kubernetes.io/serviceaccount/"
        claims = {"namespace": "default", "secret.name": "token", "service-account.name": "robot"}
        claims["service-account.uid"] = account["metadata"]["uid"]
        about = {"iss": account_tokens.ISSUER, "sub": "system:serviceaccount:default:robot"}
        token = SERVICE_ACCOUNT_KEY.sign({**about, **{f"{claim}{name}": value for name, value in claims.items()}})
        annotations = {"kubernetes.io/service-account.name": "robot"}
        secret = {
            "metadata": {"name": "token", "annotations": annotations, "labels": {INVALID_SINCE: "2026-01-01"}},
            "data": {"token": base64.b64encode(token.encode()).decode()},
            "type": "kubernetes.io/service-account-token",
        }
        await server.post("/api/v1/namespaces/default/secrets", secret)
        (await server.ask("GET", MAPS, token=token)).refused(401)
        assert recorder.last()["annotations"] == {"authentication.k8s.io/legacy-token-invalidated": "token/default"}


async def test_an_invalid_timeout_is_refused_and_recorded(tmp_path: Path) -> None:
    async with recording(tmp_path) as (server, recorder):
        (await server.ask("GET", f"{MAPS}?timeout=soon")).refused(400)
        (event,) = recorder.of(MAPS)
    assert (event["stage"], event["responseStatus"]["code"]) == ("ResponseStarted", 400)


async def test_rules_match_the_real_user_and_show_both(tmp_path: Path) -> None:
    text = "omitStages: [RequestReceived]\nrules: [{level: Metadata, users: [admin]}]"
    async with recording(tmp_path, text) as (server, recorder):
        (await server.ask("GET", MAPS, headers={"impersonate-user": "joe"})).refused(403)
        event = recorder.last()
    assert event["user"]["username"] == "admin"
    assert event["impersonatedUser"] == {"username": "joe", "groups": ["system:authenticated"]}
    assert event["authenticationMetadata"] == {"impersonationConstraint": "impersonate:user-info"}
    assert event["annotations"]["authorization.k8s.io/decision"] == "forbid"


async def test_a_watch_has_a_beginning_and_an_end(tmp_path: Path) -> None:
    async with recording(tmp_path, "rules: [{level: Metadata}]") as (server, recorder):
        path = "/api/v1/endpoints?watch=1&timeoutSeconds=100"
        response = await server.respond("GET", path)
        assert [event["stage"] for event in recorder.of(path)] == ["RequestReceived", "ResponseStarted"]
        assert not isinstance(response.body, bytes)
        async with aclosing(response.body):  # type: ignore[type-var]
            await response.body.__anext__()
        started, complete = recorder.of(path)[1:]
    assert "k8s.io/deprecated" not in started["annotations"]
    assert (complete["stage"], complete["responseStatus"]["code"]) == ("ResponseComplete", 200)
    assert complete["annotations"]["k8s.io/deprecated"] == "true"


async def test_the_enforced_pod_security_standard_is_annotated(tmp_path: Path) -> None:
    async with recording(tmp_path) as (server, recorder):
        labels = {"pod-security.kubernetes.io/audit": "restricted"}
        await server.patch("/api/v1/namespaces/default", {"metadata": {"labels": labels}})
        await server.post("/api/v1/namespaces/default/pods", pod("a"))
        annotations = recorder.last()["annotations"]
    assert annotations["pod-security.kubernetes.io/enforce-policy"] == "privileged:latest"
    assert 'would violate PodSecurity "restricted:latest"' in annotations["pod-security.kubernetes.io/audit-violations"]


async def test_a_strict_backend_that_fails_rejects_requests_at_their_first_event(tmp_path: Path) -> None:
    strict = Recorder("blocking-strict", fails=("RequestReceived",))
    async with recording(tmp_path, backend=strict) as (server, _):
        answer = await server.ask("GET", MAPS)
        assert (answer.status, answer.body) == (
            500, f'Internal Server Error: "{MAPS}": failed to store audit event\n'.encode(),
        )  # fmt: skip
        assert await server.metric("apiserver_audit_requests_rejected_total") == 1
        strict.fails = ("ResponseComplete",)
        await server.get(MAPS)  # the answer exists: it is sent


async def test_other_backends_that_fail_reject_nothing(tmp_path: Path) -> None:
    failing = Recorder("blocking", fails=("RequestReceived", "ResponseComplete"))
    async with recording(tmp_path, backend=failing) as (server, _):
        await server.get(MAPS)


async def test_a_bug_is_a_panic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubechronicle.http.handlers import reading

    async def broken(*_: object) -> Response:
        raise ZeroDivisionError("a bug")

    async with recording(tmp_path) as (server, recorder):
        monkeypatch.setitem(__import__("kubechronicle.http.router", fromlist=["HANDLERS"]).HANDLERS, "get", broken)
        assert reading.get is not broken
        (await server.ask("GET", f"{MAPS}/a")).refused(500)
        event = recorder.last()
    assert (event["stage"], event["responseStatus"]["code"]) == ("Panic", 500)
    assert "a bug" in event["responseStatus"]["message"]


async def test_a_request_that_is_cancelled_has_an_end(tmp_path: Path) -> None:
    class Silent(BufferedExchange):
        async def receive_body(self) -> bytes:
            await trio.sleep_forever()
            raise AssertionError

    async with recording(tmp_path) as (server, recorder):
        request = server.request("POST", f"{MAPS}?timeout=50ms", configmap("a"))
        request.exchange = Silent()
        assert (await server.assembly.application.application(request)).status == 504
        assert recorder.last()["responseStatus"]["code"] == 504
        request = server.request("POST", MAPS, configmap("a"))
        request.exchange = Silent()
        with trio.move_on_after(0.05):
            await server.assembly.application.application(request)
        assert recorder.last()["responseStatus"]["message"] == "Connection closed early"


async def test_the_policy_is_reloaded(tmp_path: Path) -> None:
    async with recording(tmp_path) as (server, recorder):
        from kubechronicle.http.audit.audit import AuditParts
        from kubechronicle.http.reloading import Unusable

        parts = AuditParts(audit_of(server), tmp_path / "policy.yaml", b"")
        none = b"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None}]"
        assert await parts.reload(none)
        assert await parts.reload(none) is False
        with pytest.raises(Unusable, match="0 rules"):
            await parts.reload(b"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: []")
        await server.get(MAPS)
        assert recorder.of(MAPS) == []


async def test_what_identifies_the_client_is_bounded(tmp_path: Path) -> None:
    async with recording(tmp_path) as (server, recorder):
        await server.ask("GET", MAPS, headers={"user-agent": "x" * 5000, "audit-id": "mine"})
        event = recorder.last()
    assert event["userAgent"] == "x" * 1024 + "...TRUNCATED"
    assert event["auditID"] == "mine"


@pytest.mark.parametrize(
    ("headers", "peer", "expected"),
    [
        ({}, "10.0.0.1", ["10.0.0.1"]),
        ({"x-forwarded-for": "10.9.8.7, 10.1.1.1"}, "10.0.0.1", ["10.9.8.7", "10.1.1.1", "10.0.0.1"]),
        ({"x-forwarded-for": "10.9.8.7, 10.0.0.1"}, "10.0.0.1", ["10.9.8.7", "10.0.0.1"]),
        ({"x-forwarded-for": "garbage, 010.1.1.1"}, "10.0.0.1", ["10.1.1.1", "10.0.0.1"]),
        ({"x-real-ip": "10.5.5.5"}, "10.0.0.1", ["10.5.5.5", "10.0.0.1"]),
        ({"x-forwarded-for": "10.5.5.5", "x-real-ip": "10.5.5.5"}, "::1", ["10.5.5.5", "::1"]),
        ({"x-real-ip": "::ffff:10.5.5.5"}, "", ["10.5.5.5"]),
        ({}, "", []),
    ],
)
def test_source_addresses(headers: dict[str, str], peer: str, expected: list[str]) -> None:
    assert source_addresses(Headers(headers.items()), peer) == expected


async def test_an_issued_token_is_named_by_its_id(tmp_path: Path) -> None:
    async with recording(tmp_path, "rules: [{level: Metadata}]") as (server, recorder):
        await server.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
        token = await server.post("/api/v1/namespaces/default/serviceaccounts/robot/token", {"spec": {}})
        annotations = recorder.last()["annotations"]
        assert annotations["authentication.kubernetes.io/issued-credential-id"].startswith("JTI=")
        await server.ask("GET", "/version", token=token["status"]["token"])
        extra = recorder.last()["user"]["extra"]["authentication.kubernetes.io/credential-id"]
        assert extra == [annotations["authentication.kubernetes.io/issued-credential-id"]]


async def test_a_body_that_contradicts_the_url_is_shown(tmp_path: Path) -> None:
    async with recording(tmp_path) as (server, recorder):
        body = {**configmap("e"), "metadata": {"name": "e", "namespace": "other"}}
        (await server.ask("POST", MAPS, body)).refused(400)
        event = recorder.last()
        assert event["objectRef"]["name"] == "e"
        assert event["requestObject"]["metadata"] == {"name": "e", "namespace": "other"}
        (await server.ask("PUT", f"{MAPS}/a", configmap("b"))).refused(400)
        assert recorder.last()["requestObject"]["metadata"]["name"] == "b"


async def test_the_scale_of_a_put_is_shown(tmp_path: Path) -> None:
    async with recording(tmp_path) as (server, recorder):
        path = "/apis/apps/v1/namespaces/default/deployments/none/scale"
        scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "none"}, "spec": {"replicas": 2}}
        (await server.ask("PUT", path, scale)).refused(404)
        assert recorder.last()["requestObject"] == {**scale, "status": {"replicas": 0}}


async def test_each_webhook_that_was_asked_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = Hooks()
    monkeypatch.setattr(composition, "Webhooks", lambda outgoing, find_service: hooks)
    hooks.replies = {"a": {"allowed": False}, "b": adding("/none/x", "1"), "c": {"allowed": False}}
    async with recording(tmp_path) as (server, recorder):
        connect = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"], "resources": ["pods/*"]}]
        selected = {"objectSelector": {"matchLabels": {"app": "a"}}}
        await configure(server, "mutating", webhook("a", **selected), webhook("b"), webhook("c", rules=connect))
        for body in (configmap("m", labels={"app": "a"}), configmap("m")):
            await server.ask("POST", MAPS, body)
            names = [key for key in recorder.last()["annotations"] if key.startswith("mutation.webhook")]
            assert len(names) == 1
        await server.ask("POST", "/api/v1/namespaces/default/pods/p/exec?command=x")
        assert "mutation.webhook.admission.k8s.io/round_0_index_2" in recorder.last()["annotations"]


async def test_the_reason_of_a_permission_is_annotated(tmp_path: Path) -> None:
    async with recording(tmp_path) as (server, recorder):
        rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
        rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
        await server.post(f"{rbac}/roles", {"metadata": {"name": "r"}, "rules": rules})
        reference = {"kind": "Role", "name": "r", "apiGroup": "rbac.authorization.k8s.io"}
        subject = {"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"}
        await server.post(
            f"{rbac}/rolebindings", {"metadata": {"name": "r"}, "roleRef": reference, "subjects": [subject]}
        )
        for _ in range(2):
            await server.ask("GET", MAPS, headers={"impersonate-user": "joe"})
            reason = recorder.last()["annotations"]["authorization.k8s.io/reason"]
            assert reason == 'RBAC: allowed by RoleBinding "r/default" of Role "r" to User "joe"'
