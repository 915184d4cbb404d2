"""Flags of webhooks, and their errors in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from webhooks import kubeconfig

from kubechronicle.api.configuration.structuring import Duration
from kubechronicle.http.authentication.webhook import TokenWebhook
from kubechronicle.http.authorization.configuration import (
    AuthorizerConfiguration,
    WebhookConfiguration,
    WebhookConnectionInfo,
)
from kubechronicle.http.outgoing.remote_server import RemoteServer
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.server.authentication import token_webhook
from kubechronicle.ops.server.inputs import authorization_plan
from kubechronicle.ops.settings import settings

SECOND = 10**9
AUTHORIZER, TOKENS = "authorization-webhook", "authentication-token-webhook"


@pytest.fixture
def file(authority: Any, tmp_path: Path) -> str:
    return str(kubeconfig(tmp_path, 8443, authority.file))


def load(flags: dict[str, str]) -> settings.Settings:
    return settings.load(flags, environment={})


def test_flags_make_an_authorizer(file: str) -> None:
    flags = {"authorization-mode": "Node,Webhook,RBAC", f"{AUTHORIZER}-config-file": file}
    expected = WebhookConfiguration(
        authorized_ttl=Duration(300 * SECOND),
        unauthorized_ttl=Duration(30 * SECOND),
        timeout=Duration(30 * SECOND),
        subject_access_review_version="v1beta1",
        failure_policy="NoOpinion",
        connection_info=WebhookConnectionInfo(type="KubeConfigFile", kube_config_file=file),
    )
    assert authorization_plan(load(flags)).configured == (
        AuthorizerConfiguration(type="Node", name="node"),
        AuthorizerConfiguration(type="Webhook", name="default", webhook=expected),
        AuthorizerConfiguration(type="RBAC", name="rbac"),
    )
    flags |= {
        f"{AUTHORIZER}-version": "v1",
        f"{AUTHORIZER}-cache-authorized-ttl": "0s",
        f"{AUTHORIZER}-cache-unauthorized-ttl": "1m30s",
    }
    webhook = authorization_plan(load(flags)).configured[1].webhook
    assert webhook is not None
    assert webhook.subject_access_review_version == "v1"
    assert (webhook.authorized_ttl, webhook.unauthorized_ttl) == (0, 90 * SECOND)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"authorization-mode": "Webhook"}, "--authorization-webhook-config-file: the mode Webhook needs it"),
        ({f"{AUTHORIZER}-config-file": "FILE"}, "-config-file: cannot be used without the mode Webhook"),
        ({f"{AUTHORIZER}-version": "v1"}, "--authorization-webhook-version: cannot be used without the mode Webhook"),
        (
            {"authorization-mode": "Webhook", f"{AUTHORIZER}-config-file": "FILE", f"{AUTHORIZER}-version": "v2"},
            "--authorization-webhook-version: must be v1 or v1beta1, got 'v2'",
        ),
        (
            {"authorization-mode": "Webhook", f"{AUTHORIZER}-config-file": "BROKEN"},
            "--authorization-webhook-config-file: BROKEN: is not a kubeconfig: it is not YAML",
        ),
        ({"authorization-mode": "Webhook,Webhook"}, "Webhook is listed twice"),
    ],
)
def test_invalid_authorizer_flags(file: str, tmp_path: Path, flags: dict[str, str], why: str) -> None:
    broken = tmp_path / "broken"
    broken.write_text("a: [")
    flags = {name: {"FILE": file, "BROKEN": str(broken)}.get(value, value) for name, value in flags.items()}
    with pytest.raises(OperatorError) as caught:
        authorization_plan(load(flags))
    assert why.replace("BROKEN", str(broken)) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_flags_make_an_authenticator(file: str, authority: Any) -> None:
    assert token_webhook(load({})) is None
    peer = RemoteServer(url="https://localhost:8443/ask", ca=authority.file, http_allowed=True)
    flags = {f"{TOKENS}-config-file": file}
    assert token_webhook(load(flags)) == TokenWebhook(peer=peer, version="v1beta1", ttl=120.0)
    flags |= {f"{TOKENS}-version": "v1", f"{TOKENS}-cache-ttl": "0s"}
    assert token_webhook(load(flags)) == TokenWebhook(peer=peer, version="v1", ttl=0.0)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({f"{TOKENS}-version": "v2"}, "--authentication-token-webhook-version: must be v1 or v1beta1, got 'v2'"),
        (
            {f"{TOKENS}-config-file": "BROKEN"},
            "--authentication-token-webhook-config-file: BROKEN: is not a kubeconfig: it is not YAML",
        ),
        ({f"{TOKENS}-cache-ttl": "soon"}, "--authentication-token-webhook-cache-ttl: "),
    ],
)
def test_invalid_authenticator_flags(tmp_path: Path, flags: dict[str, str], why: str) -> None:
    broken = tmp_path / "broken"
    broken.write_text("a: [")
    with pytest.raises(OperatorError) as caught:
        token_webhook(load({name: str(broken) if value == "BROKEN" else value for name, value in flags.items()}))
    assert why.replace("BROKEN", str(broken)) in str(caught.value)
