"""The AuthorizationConfiguration file: its records, its errors, and its changes while the server runs."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml
from documents.pages import ROOT, parts
from in_process import ADMIN, JOE, InProcess, open_server
from trio.testing import MockClock

from kubechronicle.api.configuration.structuring import Duration
from kubechronicle.http.authorization.abac import parse_policies
from kubechronicle.http.authorization.configuration import (
    AuthorizationConfigurationError,
    AuthorizerConfiguration,
    Configured,
    WebhookConfiguration,
    WebhookConnectionInfo,
    load,
    of_modes,
)
from kubechronicle.http.authorization.current_authorizers import Authorization, AuthorizationPlan, AuthorizerWebhooks
from kubechronicle.http.reloading import sha256_label
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.server.inputs import authorization_plan
from kubechronicle.ops.settings import settings

Object = dict[str, Any]
NODE, RBAC = {"type": "Node", "name": "node"}, {"type": "RBAC", "name": "rbac"}
ALLOW, DENY = {"type": "AlwaysAllow", "name": "alwaysallow"}, {"type": "AlwaysDeny", "name": "alwaysdeny"}
RELOADS = "apiserver_authorization_config_controller_automatic_reloads_total"


def text(*authorizers: Object, version: str = "v1") -> bytes:
    head = {"apiVersion": f"apiserver.config.k8s.io/{version}", "kind": "AuthorizationConfiguration"}
    return yaml.safe_dump({**head, "authorizers": list(authorizers)}, sort_keys=False).encode()


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    file = tmp_path / "webhook.kubeconfig"
    file.write_text("{}")
    return str(file)


def webhook(kubeconfig: str, **changes: Any) -> Object:
    """Return a webhook with all required fields and these changes; None removes a field."""
    fields = {
        "timeout": "3s",
        "subjectAccessReviewVersion": "v1",
        "failurePolicy": "Deny",
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig},
        **changes,
    }
    kept = {name: value for name, value in fields.items() if value is not None}
    return {"type": "Webhook", "name": "outside.example.com", "webhook": kept}


# -- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_every_version_is_equal(version: str, kubeconfig: str) -> None:
    configured = load(text(NODE, webhook(kubeconfig), RBAC, version=version))
    assert configured == (
        AuthorizerConfiguration(type="Node", name="node"),
        AuthorizerConfiguration(
            type="Webhook",
            name="outside.example.com",
            webhook=WebhookConfiguration(
                authorized_ttl=Duration(300 * 10**9),
                cache_authorized_requests=True,
                unauthorized_ttl=Duration(30 * 10**9),
                cache_unauthorized_requests=True,
                timeout=Duration(3 * 10**9),
                subject_access_review_version="v1",
                failure_policy="Deny",
                connection_info=WebhookConnectionInfo(type="KubeConfigFile", kube_config_file=kubeconfig),
            ),
        ),
        AuthorizerConfiguration(type="RBAC", name="rbac"),
    )


def test_modes_make_the_same_records() -> None:
    assert of_modes(("Node", "RBAC")) == load(text(NODE, RBAC))
    assert of_modes(("Webhook",), WebhookConfiguration(timeout=Duration(1)))[0].name == "default"


@pytest.mark.parametrize(
    ("authorizers", "why"),
    [
        ([], "authorizers: Required value: at least one authorization mode must be defined"),
        ([{"name": "node"}], "authorizers[0].type: Required value"),
        (
            [{"type": "Magic", "name": "magic"}],
            'authorizers[0].type: Unsupported value: "Magic": supported values: "ABAC", "AlwaysAllow", "AlwaysDeny", '
            '"Node", "RBAC", "Webhook"',
        ),
        ([NODE, RBAC, NODE], 'authorizers[2].type: Duplicate value: "Node"'),
        ([NODE, {"type": "RBAC", "name": "node"}], 'authorizers[1].name: Duplicate value: "node"'),
        ([{"type": "Node"}], "authorizers[0].name: Required value"),
        (
            [{"type": "Node", "name": "A_b"}],
            'authorizers[0].name: Invalid value: "A_b": authorizer name is invalid: a lowercase RFC 1123 subd',
        ),
        (
            [{**NODE, "webhook": {}}],
            'authorizers[0].webhook: Invalid value: "non-null": may only be specified when type=Webhook',
        ),
        ([{"type": "Webhook", "name": "w"}], "authorizers[0].webhook: Required value: required when type=Webhook"),
        ([{"type": "Node", "name": "kubelets"}], "expected name node for authorizer Node instead of kubelets"),
        (
            [{"type": "Node", "name": "a"}, {"type": "RBAC", "name": "b"}],
            "[expected name node for authorizer Node instead of a, expected name rbac for authorizer RBAC in",
        ),
    ],
)
def test_invalid_authorizers(authorizers: list[Object], why: str) -> None:
    with pytest.raises(AuthorizationConfigurationError) as refused:
        load(text(*authorizers))
    assert str(refused.value).startswith(why)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"timeout": None}, "timeout: Required value"),
        ({"timeout": "31s"}, 'timeout: Invalid value: "31s": must be > 0s and <= 30s'),
        ({"timeout": "-1s"}, 'timeout: Invalid value: "-1s": must be > 0s and <= 30s'),
        ({"authorizedTTL": "-1m"}, 'authorizedTTL: Invalid value: "-1m0s": must be > 0s'),
        ({"unauthorizedTTL": "-1ms"}, 'unauthorizedTTL: Invalid value: "-1ms": must be > 0s'),
        ({"subjectAccessReviewVersion": None}, "subjectAccessReviewVersion: Required value"),
        (
            {"subjectAccessReviewVersion": "v2"},
            'subjectAccessReviewVersion: Unsupported value: "v2": supported values: "v1", "v1beta1"',
        ),
        (
            {"matchConditionSubjectAccessReviewVersion": "v1beta1"},
            'matchConditionSubjectAccessReviewVersion: Unsupported value: "v1beta1": supported values: "v1"',
        ),
        ({"failurePolicy": None}, "failurePolicy: Required value"),
        ({"failurePolicy": "Fail"}, 'failurePolicy: Unsupported value: "Fail": supported values: "NoOpinion", "Deny"'),
        ({"connectionInfo": None}, "connectionInfo.type: Required value"),
        ({"connectionInfo": {"type": "KubeConfigFile"}}, "connectionInfo.kubeConfigFile: Required value"),
        (
            {"connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "a"}},
            'connectionInfo.kubeConfigFile: Invalid value: "a": must be an absolute path',
        ),
        (
            {"connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "/nowhere"}},
            'connectionInfo.kubeConfigFile: Invalid value: "/nowhere": error loading file: stat /nowhere: no such file',
        ),
        (
            {"connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "/"}},
            'connectionInfo.kubeConfigFile: Invalid value: "/": must be a regular file',
        ),
        (
            {"connectionInfo": {"type": "InClusterConfig"}},
            'connectionInfo.type: Invalid value: "InClusterConfig": an API server cannot ask itself; use Kube',
        ),
        (
            {"connectionInfo": {"type": "Magic"}},
            'connectionInfo.type: Unsupported value: {"Type":"Magic","KubeConfigFile":null}: supported values: '
            '"InClusterConfig", "KubeConfigFile"',
        ),
    ],
)
def test_invalid_webhooks(kubeconfig: str, changes: Object, why: str) -> None:
    with pytest.raises(AuthorizationConfigurationError) as refused:
        load(text(webhook(kubeconfig, **changes)))
    assert str(refused.value).startswith(f"authorizers[0].{why}")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"a: [", "yaml: line 1: did not find expected node content"),
        (b"{", "couldn't get version/kind; json parse error: unexpected end of JSON input"),
        (text(NODE).replace(b"name:", b"nmae:"), 'strict decoding error: unknown field "authorizers[0].nmae"'),
        (text(NODE) + b"kind: AuthorizationConfiguration\n", "strict decoding error: yaml: unmarshal errors: line 6: "),
        (text(NODE, version="v2"), 'no kind "AuthorizationConfiguration" is registered for version'),
        (text(NODE).replace(b"Authorization", b"Authentication"), "expected AuthorizationConfiguration, got"),
        (text({"type": 1, "name": "x"}), "json: cannot unmarshal number into Go struct field AuthorizerConfiguration"),
        (text({"type": "Webhook", "webhook": {"timeout": "3"}}), 'time: missing unit in duration "3"'),
    ],
)
def test_invalid_files(data: bytes, why: str) -> None:
    with pytest.raises(AuthorizationConfigurationError) as refused:
        load(data)
    assert str(refused.value).startswith(f"failed to load AuthorizationConfiguration from file: {why}")
    assert "\n" not in str(refused.value)


# -- flags ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"authorization-mode": "ABAC"}, "--authorization-policy-file: the mode ABAC needs it: a file of policies"),
        ({"authorization-policy-file": "FILE"}, "--authorization-policy-file: cannot be used without the mode ABAC"),
        (
            {"authorization-mode": "ABAC", "authorization-policy-file": "FILE"},
            "--authorization-policy-file: error readi",
        ),
        ({"authorization-mode": "RBAC,RBAC"}, "--authorization-mode: RBAC is listed twice"),
        (
            {"authorization-mode": "RBAC", "authorization-config": "FILE"},
            "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags",
        ),
        ({"authorization-config": "FILE"}, "--authorization-config: FILE: failed to load AuthorizationConfiguration"),
    ],
)
def test_errors_of_flags_are_one_line(tmp_path: Path, flags: dict[str, str], why: str) -> None:
    file = tmp_path / "file"
    file.write_text("nonsense\n")
    arguments = {flag: value.replace("FILE", str(file)) for flag, value in flags.items()}
    with pytest.raises(OperatorError) as refused:
        authorization_plan(settings.load(arguments, environment={}))
    assert str(refused.value).startswith(why.replace("FILE", str(file)))
    assert "\n" not in str(refused.value)


def test_flags_make_a_plan(tmp_path: Path) -> None:
    assert authorization_plan(settings.load({}, environment={})).configured == of_modes(("Node", "RBAC"))
    file, policies = tmp_path / "config", tmp_path / "policies"
    file.write_bytes(text({"type": "ABAC", "name": "abac"}, RBAC))
    policies.write_text('{"user": "bob"}\n')
    arguments = {"authorization-config": str(file), "authorization-policy-file": str(policies)}
    plan = authorization_plan(settings.load(arguments, environment={}))
    assert plan.policies is not None
    assert [policy.user for policy in plan.policies] == ["bob"]
    assert (plan.file, plan.content) == (file, file.read_bytes())


def test_the_examples_of_the_documentation(tmp_path: Path, kubeconfig: str) -> None:
    blocks = [part.text for part in parts(ROOT / "docs" / "authorization.md")]
    file = tmp_path / "file"
    file.write_text(re.sub(r"/etc/.*kubeconfig", kubeconfig, next(each for each in blocks if "authorizers:" in each)))
    configured = load(file.read_bytes())
    assert [each.type for each in configured] == ["Webhook", "Node", "RBAC", "Webhook"]
    assert [each.webhook is not None and len(each.webhook.match_conditions) for each in configured] == [
        3,
        False,
        False,
        0,
    ]
    policies = parse_policies(next(each for each in blocks if '"Policy"' in each).encode(), "policies")
    assert [policy.user or policy.group for policy in policies] == ["alice", "auditors", *["system:authenticated"] * 2]


# -- changes ----------------------------------------------------------------------------------------------------------


def plan_of(file: Path, *authorizers: Object) -> AuthorizationPlan:
    content = text(*authorizers)
    file.write_bytes(content)
    return AuthorizationPlan(configured=load(content), policies=(), file=file, content=content)


async def look(server: InProcess) -> None:
    assert server.assembly.authorization.file is not None
    await server.assembly.authorization.file.look()


async def joe_may(server: InProcess) -> bool:
    return (await server.ask("GET", "/api/v1/namespaces/default/pods", token=JOE)).status == 200


async def test_a_change_has_effect_from_the_next_request(autojump_clock: MockClock, tmp_path: Path) -> None:
    file = tmp_path / "authorization.yaml"
    async with open_server(authorization=plan_of(file, NODE, RBAC)) as server:

        async def reloads(status: str) -> float | None:
            return await server.metric(RELOADS, status=status, apiserver_id_hash="")

        assert not await joe_may(server)
        started = time.time()
        file.write_bytes(text(NODE, RBAC, ALLOW))
        await look(server)
        assert await joe_may(server)
        assert await reloads("success") == 1
        stamp = RELOADS.replace("reloads_total", "reload_last_timestamp_seconds")
        assert (await server.metric(stamp, status="success", apiserver_id_hash="") or 0) >= started
        info = RELOADS.replace("automatic_reloads_total", "last_config_info")
        assert await server.metric(info, apiserver_id_hash="", hash=sha256_label(file.read_bytes())) == 1
        file.write_bytes(text(NODE, RBAC, ALLOW) + b"# the same\n")
        await look(server)
        assert await reloads("success") == 1
        file.write_bytes(text(DENY, RBAC, NODE))
        await look(server)
        assert not await joe_may(server)
        assert await reloads("success") == 2
        assert await reloads("failure") is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "authorizers: Required value"),
        (text(RBAC, ALLOW), "missing required types: [Node]"),
        (text(DENY), "missing required types: [AlwaysAllow Node RBAC]"),
        (
            text(NODE, RBAC, ALLOW, {"type": "ABAC", "name": "abac"}),
            "authorizer type ABAC is not allowed if it was not enabled at initial server startup",
        ),
        (text(NODE, RBAC, ALLOW, {"type": "AlwaysDeny", "name": "no"}), "expected name alwaysdeny for authorizer Alw"),
    ],
)
async def test_a_bad_change_keeps_the_former_authorizers(
    autojump_clock: MockClock, tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, why: str
) -> None:
    file = tmp_path / "authorization.yaml"
    async with open_server(authorization=plan_of(file, NODE, RBAC, ALLOW)) as server:
        file.write_bytes(content)
        await look(server)
        assert await joe_may(server)
        assert await server.metric(RELOADS, status="failure", apiserver_id_hash="") == 1
        assert any(getattr(record, "err", "").startswith(why) for record in caplog.records)
        await look(server)  # the same content is not checked again
        assert await server.metric(RELOADS, status="failure", apiserver_id_hash="") == 1
        file.unlink()
        await look(server)
        assert await joe_may(server)


async def test_the_file_is_watched_while_the_server_runs(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "authorization.yaml"
    async with open_server(authorization=plan_of(file, NODE, RBAC), loops=True) as server:
        chain, replaced = server.assembly.authorization.chain, trio.Event()
        replace = chain.replace

        def noting(authorizers: Any) -> None:
            replace(authorizers)
            replaced.set()

        monkeypatch.setattr(chain, "replace", noting)
        assert not await joe_may(server)
        file.write_bytes(text(NODE, RBAC, ALLOW))
        await replaced.wait()
        assert await joe_may(server)


class FakeWebhooks:
    """A fake factory of webhook authorizers that records the made and the closed ones."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.ended: list[object] = []

    def make(self, name: str, configuration: WebhookConfiguration, metrics: object) -> Any:
        if configuration.failure_policy == "Deny":
            raise AuthorizationConfigurationError("its kubeconfig can't be used")
        self.made.append(name)
        from kubechronicle.http.authorization.decision import AlwaysDeny

        return AlwaysDeny()

    async def forget(self, authorizer: object) -> None:
        self.ended.append(authorizer)


async def test_webhook_authorizers_are_replaced_and_closed(autojump_clock: MockClock, kubeconfig: str) -> None:
    async with open_server() as server:
        outside = FakeWebhooks()
        good, bad = webhook(kubeconfig, failurePolicy="NoOpinion"), webhook(kubeconfig)
        configured: Configured = load(text(good))
        authorization = Authorization(
            AuthorizationPlan(configured=configured),
            server.assembly.views,
            AuthorizerWebhooks(outside.make, outside.forget),
        )
        assert not await authorization.reload(text(good))
        assert await authorization.reload(text(DENY, good))
        assert outside.made == ["outside.example.com"] * 2
        assert len(outside.ended) == 1
        with pytest.raises(ValueError, match="its kubeconfig can't be used"):
            await authorization.reload(text({**good, "name": "other"}, bad))
        assert len(outside.ended) == 2  # one of them was made for the failed change


async def test_decisions_are_counted_by_authorizer(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_server(authorization=plan_of(tmp_path / "file", DENY, RBAC, ALLOW)) as server:
        for _ in range(3):
            assert await joe_may(server)
        labels = {"type": "AlwaysAllow", "name": "alwaysallow", "decision": "allowed"}
        assert await server.metric("apiserver_authorization_decisions_total", **labels) == 3
        await server.ask("GET", "/api/v1/pods", token=ADMIN)
        assert (
            await server.metric("authorization_attempts_total", result="allowed") == 5
        )  # including that of the namespace
        for type_ in ("RBAC", "AlwaysDeny"):
            labels = {"type": type_, "name": type_.lower(), "decision": "denied"}
            assert await server.metric("apiserver_authorization_decisions_total", **labels) is None
