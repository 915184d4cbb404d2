"""TokenRequest through the whole application: valid requests, and the claims of the token."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import replace
from typing import Any

import pytest
from in_process import ADMISSION, ISSUER, ISSUER_NAME, PODS, PROTOBUF, SERVICE_ACCOUNT_KEY, open_server, pod
from service_account_tokens import (
    ACCOUNTS,
    KIND,
    NAME,
    REVIEWS,
    SELF,
    bound_to,
    claims_of,
    is_authenticated,
    pod_of_robot,
    request_token,
    robot,
    token_of,
)
from trio.testing import MockClock

from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.subresources.token_request import EXTENDED_SECONDS
from kubechronicle.http.authentication import jws

# -- asking for one -------------------------------------------------------------------------------------------------


async def test_the_claims_of_a_token(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        uid = await robot(server)
        before = time.time()
        made = (await request_token(server)).ok()
        assert made["spec"] == {"audiences": [ISSUER_NAME], "expirationSeconds": 3600, "boundObjectRef": None}
        assert (made["metadata"]["name"], made["metadata"]["namespace"]) == ("robot", "default")
        assert made["metadata"]["uid"] == uid
        (entry,) = made["metadata"]["managedFields"]
        assert (entry["subresource"], entry["fieldsV1"]) == ("token", {"f:spec": {"f:expirationSeconds": {}}})
        claims = claims_of(made["status"]["token"])
        assert claims["sub"] == NAME
        assert claims["kubernetes.io"] == {"namespace": "default", "serviceaccount": {"name": "robot", "uid": uid}}
        assert (claims["iss"], claims["aud"]) == (ISSUER_NAME, [ISSUER_NAME])
        assert claims["exp"] - 3600 == claims["iat"] == claims["nbf"] >= int(before)
        assert len(claims["jti"]) == 36
        header = json.loads(jws.decode(made["status"]["token"].partition(".")[0]))
        assert header == {"alg": "ES256", "kid": SERVICE_ACCOUNT_KEY.verifying.key_id}


async def test_the_owner_of_a_token_is_its_service_account(autojump_clock: MockClock) -> None:
    async with open_server(loops=True) as server:
        uid = await robot(server)
        token = await token_of(server)
        found = (await server.post(SELF, {}, token=token))["status"]["userInfo"]
        assert found == {
            "username": NAME,
            "uid": uid,
            "groups": ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"],
            "extra": {"authentication.kubernetes.io/credential-id": [f"JTI={claims_of(token)['jti']}"]},
        }


async def test_two_tokens_are_never_the_same(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await robot(server)
        assert await token_of(server) != await token_of(server)


async def test_a_token_is_not_stored(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with open_server() as server:
        await robot(server)
        before = server.log.store.head().revision
        token = await token_of(server)
        assert server.log.store.head().revision == before
        assert await is_authenticated(server, token)
        assert not await is_authenticated(server, token + "x")
        await server.ask("POST", REVIEWS, {"spec": {"token": token, "audiences": ["x"]}})
    assert token.rpartition(".")[2] not in caplog.text


async def test_a_dry_run_is_answered_as_ever(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await robot(server)
        assert (await request_token(server, query="?dryRun=All")).ok()["status"]["token"]
        (await request_token(server, query="?dryRun=Some")).refused(422)


async def test_tokens_in_protobuf(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await robot(server)
        body = {**KIND, "spec": {}}
        answer = await server.ask("POST", f"{ACCOUNTS}/robot/token", body, headers={"accept": PROTOBUF})
        assert answer.status == 201
        assert answer.header("content-type") == PROTOBUF
        start = answer.body.index(b"eyJ")
        assert await is_authenticated(server, answer.body[start:].split(b"\x12")[0].decode("ascii", "ignore"))


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"expirationSeconds": 599}, "Invalid value: 599: may not specify a duration less than 10 minutes"),
        ({"expirationSeconds": 0}, "Invalid value: 0: may not specify a duration less than 10 minutes"),
        ({"expirationSeconds": -1}, "Invalid value: -1: may not specify a duration less than 10 minutes"),
        (
            {"expirationSeconds": 2**32 + 1},
            "Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
        ),
    ],
)
async def test_invalid_lifetimes(autojump_clock: MockClock, spec: Any, why: str) -> None:
    async with open_server() as server:
        await robot(server)
        found = (await request_token(server, spec)).refused(422)
        assert found["message"] == f'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: {why}'
        assert found["details"]["causes"][0]["field"] == "spec.expirationSeconds"
        assert (await request_token(server, {"expirationSeconds": 600})).status == 201
        assert (await request_token(server, {"expirationSeconds": 2**32})).status == 201


async def test_requests_that_contradict_themselves(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        uid = await robot(server)
        found = (await request_token(server, metadata={"name": "other"})).refused(422)
        assert found["details"]["causes"][0]["message"] == (
            'Invalid value: "other": must match the service account name if specified'
        )
        (await request_token(server, metadata={"namespace": "other"})).refused(400)
        found = (await request_token(server, metadata={"uid": "x"})).refused(409)
        assert found["message"] == (
            'Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "robot": the UID in the token request '
            f"(x) does not match the UID of the service account ({uid})"
        )
        assert (
            await request_token(server, metadata={"name": "robot", "namespace": "default", "uid": uid})
        ).status == 201
        (await request_token(server, account="ghost")).refused(404)
        (await server.ask("GET", f"{ACCOUNTS}/robot/token")).refused(405)
        (await server.ask("POST", f"{ACCOUNTS}/robot/token", {**KIND, "kind": "TokenReview"})).refused(400)


async def test_another_uid_is_a_warning_if_a_gate_says_so(autojump_clock: MockClock) -> None:
    gates = FeatureGates(given={"TokenRequestServiceAccountUIDValidation": False})
    async with open_server(features=gates) as server:
        uid = await robot(server)
        answer = await request_token(server, metadata={"uid": "x"})
        assert claims_of(answer.ok()["status"]["token"])["kubernetes.io"]["serviceaccount"]["uid"] == uid
        assert answer.header("warning") == (
            f'299 - "the UID in the token request (x) does not match the UID of the service account ({uid}) but '
            'TokenRequestServiceAccountUIDValidation is not enabled. In the future, this will return a conflict error"'
        )


async def test_no_tokens_in_a_namespace_that_ends(autojump_clock: MockClock) -> None:
    async with open_server(namespaces=("default", "doomed")) as server:
        (await server.ask("POST", "/api/v1/namespaces/nowhere/serviceaccounts/a/token", KIND)).refused(404)
        await server.post("/api/v1/namespaces/doomed/serviceaccounts", {"metadata": {"name": "robot"}})
        await server.delete("/api/v1/namespaces/doomed")
        target = "/api/v1/namespaces/doomed/serviceaccounts/robot/token"
        found = (await server.ask("POST", target, {**KIND, "spec": {}})).refused(403)
        assert "because it is being terminated" in found["message"]


async def test_a_limit_shortens_the_lifetime_with_a_warning(autojump_clock: MockClock) -> None:
    async with open_server(issuer=replace(ISSUER, max_expiration=7200)) as server:
        await robot(server)
        answer = await request_token(server, {"expirationSeconds": 10_000})
        warning = '299 - "requested expiration of 10000 seconds shortened to 7200 seconds"'
        assert answer.header_all("warning") == [warning]
        made = answer.ok()
        claims = claims_of(made["status"]["token"])
        assert made["spec"]["expirationSeconds"] == claims["exp"] - claims["iat"] == 7200


async def test_a_pod_s_token_of_no_particular_lifetime_lasts_a_year(autojump_clock: MockClock) -> None:
    for extend, lasts in ((True, EXTENDED_SECONDS), (False, 3607)):
        async with open_server(issuer=replace(ISSUER, extend_expiration=extend)) as server:
            await robot(server)
            await server.post(PODS, pod_of_robot())
            made = (await request_token(server, {"expirationSeconds": 3607, **bound_to("Pod", "p")})).ok()
            claims = claims_of(made["status"]["token"])
            assert claims["exp"] - claims["iat"] == lasts
            assert claims["kubernetes.io"].get("warnafter") == (claims["iat"] + 3607 if extend else None)
            expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(claims["iat"] + 3607))
            assert made["status"]["expirationTimestamp"] == expires
            for other in (
                {"expirationSeconds": 3607},
                {"expirationSeconds": 3606, **bound_to("Pod", "p")},
                {"expirationSeconds": 3607, "audiences": ["vault"], **bound_to("Pod", "p")},
            ):
                claims = claims_of(await token_of(server, other))
                assert claims["exp"] - claims["iat"] == other["expirationSeconds"]


# -- bound to objects -----------------------------------------------------------------------------------------------


async def test_a_pods_token_names_the_pod_and_its_node(autojump_clock: MockClock) -> None:
    async with open_server(loops=True) as server:
        await robot(server)
        made = await server.post(PODS, pod_of_robot(node="n"))
        token = await token_of(server, bound_to("Pod", "p"))
        assert claims_of(token)["kubernetes.io"]["node"] == {"name": "n"}  # it does not exist yet
        node = await server.post("/api/v1/nodes", {"metadata": {"name": "n"}})
        token = await token_of(server, bound_to("Pod", "p", uid=made["metadata"]["uid"]))
        assert claims_of(token)["kubernetes.io"]["node"] == {"name": "n", "uid": node["metadata"]["uid"]}
        extra = (await server.post(SELF, {}, token=token))["status"]["userInfo"]["extra"]
        assert extra == {
            "authentication.kubernetes.io/credential-id": [f"JTI={claims_of(token)['jti']}"],
            "authentication.kubernetes.io/node-name": ["n"],
            "authentication.kubernetes.io/node-uid": [node["metadata"]["uid"]],
            "authentication.kubernetes.io/pod-name": ["p"],
            "authentication.kubernetes.io/pod-uid": [made["metadata"]["uid"]],
        }
        await server.delete("/api/v1/nodes/n")
        assert (await server.ask("POST", SELF, {}, token=token)).status == 201  # the pod counts, not its node


@pytest.mark.parametrize(
    ("reference", "code", "message"),
    [
        ({"kind": "Pod", "apiVersion": "v1", "name": "none"}, 404, 'pods "none" not found'),
        ({"kind": "Secret", "apiVersion": "v1", "name": "none"}, 404, 'secrets "none" not found'),
        ({"kind": "Node", "apiVersion": "v1", "name": "none"}, 404, 'nodes "none" not found'),
        ({"kind": "Pod", "apiVersion": "v1"}, 400, "Name parameter required."),
        (
            {"kind": "Pod", "apiVersion": "v1", "name": "a/b"},
            400,
            "Name parameter invalid: \"a/b\": may not contain '/'",
        ),
        (
            {"kind": "ConfigMap", "apiVersion": "v1", "name": "x"},
            400,
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
        (
            {"kind": "Pod", "apiVersion": "apps/v1", "name": "x"},
            400,
            "cannot bind token to object of type apps/v1, Kind=Pod",
        ),
        ({}, 400, "cannot bind token to object of type /, Kind="),
        (
            {"kind": "Pod", "apiVersion": "v1", "name": "q"},
            400,
            'cannot bind token for serviceaccount "robot" to pod running with different serviceaccount name.',
        ),
        (
            {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "x"},
            409,
            'Operation cannot be fulfilled on Pod "p": the UID in the bound object reference (x) does not match the '
            "UID in record. The object might have been deleted and then recreated",
        ),
    ],
)
async def test_invalid_bound_objects(autojump_clock: MockClock, reference: Any, code: int, message: str) -> None:
    async with open_server() as server:
        await robot(server)
        await server.post(PODS, pod_of_robot())
        await server.post(PODS, pod("q"))
        assert (await request_token(server, {"boundObjectRef": reference})).refused(code)["message"] == message


# -- kubelets -------------------------------------------------------------------------------------------------------


async def test_a_node_gets_tokens_for_its_own_pods_alone(autojump_clock: MockClock) -> None:
    node = {"impersonate-user": "system:node:n", "impersonate-group": "system:nodes"}
    async with open_server(admission=ADMISSION | {"NodeRestriction"}) as server:
        await robot(server)
        pods = {}
        for name, place in (("mine", "n"), ("theirs", "m")):
            body = pod_of_robot(node=place)
            body["metadata"]["name"] = name
            sources = [{"serviceAccountToken": {"path": "token"}}]
            body["spec"]["volumes"] = [{"name": "token", "projected": {"sources": sources}}]
            pods[name] = (await server.post(PODS, body))["metadata"]["uid"]

        async def ask(spec: Any) -> Any:
            target = f"{ACCOUNTS}/robot/token"
            return await server.ask("POST", target, {**KIND, "spec": spec}, headers=node)

        answer = await ask(bound_to("Pod", "mine", uid=pods["mine"]))
        assert answer.status == 201, answer.body
        for spec in ({}, bound_to("Pod", "mine"), bound_to("Pod", "theirs", uid=pods["theirs"])):
            (await ask(spec)).refused(403)


async def test_a_token_is_charged_to_no_quota(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await robot(server)
        quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/serviceaccounts": "1"}}}
        await server.post("/api/v1/namespaces/default/resourcequotas", quota)
        status = {"status": {"hard": {"count/serviceaccounts": "1"}, "used": {"count/serviceaccounts": "1"}}}
        await server.patch("/api/v1/namespaces/default/resourcequotas/q/status", status)
        (await server.ask("POST", ACCOUNTS, {"metadata": {"name": "another"}})).refused(403)
        assert await is_authenticated(server, await token_of(server))


# -- tokens for webhooks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attestations", "code", "message"),
    [
        ({"admissionReviewAPIGroups": ["apps"]}, 400, "feature gate APIServerWebhookAuthenticationToken is disabled"),
        ({"admissionReviewAPIGroups": []}, 422, "must specify a single value"),
        ({"other": ["apps"]}, 422, "Unsupported value"),
        (None, 422, "require exactly one"),
    ],
)
async def test_attestations_are_checked_before_the_gate(
    attestations: Any, code: int, message: str, autojump_clock: MockClock
) -> None:
    async with open_server() as server:
        await robot(server)
        hook = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "name": "w"}
        spec = {"audiences": ["a"], "boundObjectRef": hook, "attestations": attestations}
        answer = await server.ask("POST", f"{ACCOUNTS}/robot/token", {**KIND, "spec": spec})
        assert message in answer.refused(code)["message"]
