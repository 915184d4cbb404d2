"""Uses of discouraged tokens: recorded on their Secret, counted, answered with a warning, and rejected where marked."""

from __future__ import annotations

import base64
import logging
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trio
from in_process import ISSUER_NAME, SERVICE_ACCOUNT_KEY, InProcess, open_server
from trio.testing import MockClock

from kubechronicle.actors.loops import service_account_tokens as loop
from kubechronicle.api.access import account_tokens
from kubechronicle.http.authentication.legacy_tokens import AUTO_GENERATED, INVALID_SINCE

ACCOUNTS, SECRETS = "/api/v1/namespaces/default/serviceaccounts", "/api/v1/namespaces/default/secrets"
TRACKING = "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking"
REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
SELF_REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
NAME = "system:serviceaccount:default:robot"


async def kept(server: InProcess, **changes: Any) -> str:
    """Create an account with a token in a Secret; return the token."""
    account = await server.post(ACCOUNTS, {"metadata": {"name": "robot"}, **changes})
    claims = {
        "iss": account_tokens.ISSUER,
        "sub": NAME,
        "kubernetes.io/serviceaccount/namespace": "default",
        "kubernetes.io/serviceaccount/secret.name": "robot-token",
        "kubernetes.io/serviceaccount/service-account.name": "robot",
        "kubernetes.io/serviceaccount/service-account.uid": account["metadata"]["uid"],
    }
    token = SERVICE_ACCOUNT_KEY.sign(claims)
    annotations = {"kubernetes.io/service-account.name": "robot"}
    body = {
        "metadata": {"name": "robot-token", "annotations": annotations},
        "data": {"token": base64.b64encode(token.encode()).decode()},
        "type": "kubernetes.io/service-account-token",
    }
    await server.post(SECRETS, body)
    return token


async def label(server: InProcess) -> str | None:
    await trio.sleep(1)
    metadata = (await server.get(f"{SECRETS}/robot-token"))["metadata"]
    return (metadata.get("labels") or {}).get(loop.LAST_USED)


def today() -> str:
    return datetime.now(UTC).date().isoformat()


async def test_the_day_of_the_last_use_is_recorded_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with open_server(loops=True) as server:
        token = await kept(server)
        assert await label(server) is None
        answer = await server.ask("POST", REVIEW, SELF_REVIEW, token=token)
        assert answer.ok()["status"]["userInfo"]["username"] == NAME
        assert answer.header("warning") == ""
        assert await label(server) == today()
        quiet = server.log.store.revision
        for _ in range(3):
            await server.ask("POST", REVIEW, SELF_REVIEW, token=token)
        await trio.sleep(1)
        assert server.log.store.revision == quiet
        tomorrow = (datetime.now(UTC) + timedelta(days=1)).date().isoformat()
        await server.patch(f"{SECRETS}/robot-token", {"metadata": {"labels": {loop.LAST_USED: tomorrow}}})
        await server.ask("POST", REVIEW, SELF_REVIEW, token=token)
        assert await label(server) == tomorrow
        assert await server.metric("serviceaccount_legacy_tokens_total") == 5
        assert await server.metric("serviceaccount_legacy_manual_token_uses_total") == 5
        assert await server.metric("serviceaccount_legacy_auto_token_uses_total") == 0
    assert [record.__dict__["kind"] for record in caplog.records if "Secret is used" in record.message] == ["manual"]
    assert token not in caplog.text


async def test_an_old_day_is_replaced(autojump_clock: MockClock) -> None:
    async with open_server(loops=True) as server:
        token = await kept(server)
        await server.patch(f"{SECRETS}/robot-token", {"metadata": {"labels": {loop.LAST_USED: "2024-02-29"}}})
        await server.ask("POST", REVIEW, SELF_REVIEW, token=token)
        assert await label(server) == today()


async def test_the_use_of_a_generated_token_has_a_warning(autojump_clock: MockClock) -> None:
    async with open_server(loops=True) as server:
        token = await kept(server, secrets=[{"name": "robot-token"}])
        answer = await server.ask("POST", REVIEW, SELF_REVIEW, token=token)
        answer.ok()
        assert answer.header("warning") == f'299 - "{AUTO_GENERATED}"'
        assert await server.metric("serviceaccount_legacy_auto_token_uses_total") == 1
        await server.patch(f"{ACCOUNTS}/robot", {"secrets": None})
        assert (await server.ask("POST", REVIEW, SELF_REVIEW, token=token)).header("warning") == ""


async def test_a_token_marked_invalid_is_rejected_and_its_use_recorded(autojump_clock: MockClock) -> None:
    async with open_server(loops=True) as server:
        token = await kept(server)
        await server.patch(f"{SECRETS}/robot-token", {"metadata": {"labels": {INVALID_SINCE: "2026-01-01"}}})
        (await server.ask("POST", REVIEW, SELF_REVIEW, token=token)).refused(401)
        assert await label(server) == today()
        assert await server.metric("serviceaccount_invalid_legacy_auto_token_uses_total") == 1
        assert await server.metric("serviceaccount_legacy_tokens_total") == 0
        spec = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = (await server.post("/apis/authentication.k8s.io/v1/tokenreviews", spec))["status"]
        assert "default/robot-token for service account default/robot has been marked invalid" in status["error"]
        await server.patch(f"{SECRETS}/robot-token", {"metadata": {"labels": {INVALID_SINCE: None}}})
        (await server.ask("POST", REVIEW, SELF_REVIEW, token=token)).ok()


async def test_the_backlog_of_uses_is_bounded(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MAX_WAITING", 1)
    async with open_server() as server:  # without the loop that records them
        tracking = server.assembly.own.legacy_tokens
        token = await kept(server)
        for _ in range(3):
            (await server.ask("POST", REVIEW, SELF_REVIEW, token=token)).refused(403)  # authenticated, without rights
        assert not tracking.used("default", "other", "uid")
        assert tracking._uses.receive_nowait()[:2] == ("default", "robot-token")
        assert tracking.used("default", "other", "uid")


async def test_the_start_of_recording(autojump_clock: MockClock) -> None:
    async with open_server(loops=True) as server:
        await trio.sleep(1)
        assert (await server.get(TRACKING))["data"] == {"since": today()}
        for text, since in (("2024-02-29", "2024-02-29"), ("2024-02-30", today()), ("soon", today())):
            await server.patch(TRACKING, {"data": {"since": text}})
            await trio.sleep(1)
            assert (await server.get(TRACKING))["data"] == {"since": since}
        hook = "/readyz/poststarthook/start-legacy-token-tracking-controller"
        assert (await server.ask("GET", hook)).status == 200


async def test_a_stale_token_is_counted_and_logged_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with open_server(loops=True) as server:
        account = await server.post(ACCOUNTS, {"metadata": {"name": "robot"}})
        now = int(time.time())

        def token(**private: Any) -> str:
            reference = {"name": "robot", "uid": account["metadata"]["uid"]}
            bound = {"namespace": "default", "serviceaccount": reference, **private}
            times = {"iat": now - 5000, "nbf": now - 5000, "exp": now + 5000}
            claims = {"iss": ISSUER_NAME, "aud": [ISSUER_NAME], "sub": NAME, "kubernetes.io": bound}
            return SERVICE_ACCOUNT_KEY.sign({**claims, **times})

        stale = token(warnafter=now - 1000)
        for each in (stale, stale, token(warnafter=now + 1000), token()):
            (await server.ask("POST", REVIEW, SELF_REVIEW, token=each)).ok()
        assert await server.metric("serviceaccount_stale_tokens_total") == 2
        assert await server.metric("serviceaccount_valid_tokens_total") == 1
    lines = [record.getMessage() for record in caplog.records if "Stale token" in record.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith(f"Stale token: subject: {NAME}, seconds after warning threshold: 100")
    assert stale not in caplog.text
