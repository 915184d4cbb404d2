"""TokenReview: the user and audiences of a token."""

from __future__ import annotations

import time
from typing import Any

from in_process import ADMIN, ISSUER_NAME, InProcess, open_server
from service_account_tokens import ACCOUNTS, REVIEWS, robot, signed, token_of
from trio.testing import MockClock


async def reviewed(server: InProcess, token: str, *audiences: str) -> Any:
    spec = {"token": token, **({"audiences": list(audiences)} if audiences else {})}
    return (await server.post(REVIEWS, {"spec": spec}))["status"]


async def test_a_review_has_the_audiences_of_a_token(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        uid = await robot(server)
        ours, theirs = await token_of(server), await token_of(server, {"audiences": ["vault", "x", "y"]})
        status = await reviewed(server, ours)
        assert status["audiences"] == [ISSUER_NAME]
        assert (status["authenticated"], status["user"]["uid"]) == (True, uid)
        assert (await reviewed(server, theirs, "z", "y", "vault"))["audiences"] == ["y", "vault"]
        assert await reviewed(server, theirs) == {
            "user": {},
            "error": '[invalid bearer token, token audiences ["vault" "x" "y"] is invalid for the target audiences '
            f'["{ISSUER_NAME}"]]',
        }
        (await server.ask("GET", "/api", token=theirs)).refused(401)


async def test_a_review_of_a_token_without_audiences(autojump_clock: MockClock) -> None:
    """It is valid for this server's audiences only."""
    async with open_server() as server:
        for audiences in ((), (ISSUER_NAME,), ("x", ISSUER_NAME)):
            status = await reviewed(server, ADMIN, *audiences)
            assert (status["user"]["username"], status["audiences"]) == ("admin", [ISSUER_NAME])
        assert await reviewed(server, ADMIN, "x") == {"user": {}, "error": "invalid bearer token"}


async def test_a_review_has_the_reason_of_an_invalidated_token(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await robot(server)
        token = await token_of(server)
        old = signed({"exp": int(time.time()) - 120}, token)
        assert (await reviewed(server, old))["error"] == "[invalid bearer token, service account token has expired]"
        await server.delete(f"{ACCOUNTS}/robot")
        status = await reviewed(server, token)
        assert status == {"user": {}, "error": '[invalid bearer token, serviceaccounts "robot" not found]'}


async def test_a_token_is_read_as_a_header_field_would_be(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        assert (await reviewed(server, f"{ADMIN} rest"))["user"]["username"] == "admin"
        for nothing in (" ", "  x"):
            answer = await server.ask("POST", REVIEWS, {"spec": {"token": nothing, "audiences": ["a"]}})
            assert answer.ok()["status"] == {
                "authenticated": True,
                "user": {"username": "system:anonymous", "groups": ["system:unauthenticated"]},
                "audiences": ["a"],
            }


async def test_a_rejected_token_leaves_the_status_as_sent(autojump_clock: MockClock) -> None:
    sent = {"user": {"uid": "a"}, "authenticated": True, "audiences": ["q"]}
    async with open_server() as server:
        found = (await server.ask("POST", REVIEWS, {"spec": {"token": "x"}, "status": sent})).ok()
        assert found["status"] == {"user": {"uid": "a"}, "audiences": ["q"], "error": "invalid bearer token"}
        (entry,) = found["metadata"]["managedFields"]
        assert entry["fieldsV1"]["f:status"]["f:user"] == {"f:uid": {}}
        found = (await server.ask("POST", REVIEWS, {"spec": {"token": ADMIN}, "status": sent})).ok()
        assert found["status"]["user"]["username"] == "admin"
        assert found["status"]["audiences"] == [ISSUER_NAME]
