"""Reasons of changes: from a header, the URL and an annotation; shown, searched, and refused."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from in_process import AUTHORIZATION, JOE, MAPS, InProcess, configmap, open_server

from kubechronicle.api.history.reasons import CHANGE_CAUSE, MAX_REASON, reason_prefix

API = "/apis/history.kubechronicle.dev/v1"
REVISIONS = f"{API}/namespaces/default/revisions"


async def newest(server: InProcess, **query: str) -> dict[str, Any]:
    items = (await server.get(f"{REVISIONS}?limit=1&" + "&".join(f"{k}={quote(v)}" for k, v in query.items())))["items"]
    found: dict[str, Any] = items[0]
    return found


async def create(server: InProcess, name: str, prefix: str = "", **headers: str) -> Any:
    fields = {key.replace("_", "-"): value for key, value in headers.items()}
    return await server.ask("POST", f"{prefix}{MAPS}", configmap(name), headers=fields)


async def found(server: InProcess, text: str, *, equal: bool = True, token: str = "") -> list[str]:
    selector = quote(f"object.kind=ConfigMap,object.name!=kube-root-ca.crt,reason{'' if equal else '!'}={text}")
    answer = await server.get(f"{REVISIONS}?fieldSelector={selector}", **({"token": token} if token else {}))
    return [item["object"]["name"] for item in answer["items"]]


async def test_a_header_is_the_reason_of_all_changes_of_its_request(autojump_clock: Any) -> None:
    async with open_server() as server:
        (await create(server, "a", kubechronicle_reason=" Ticket 42: “née” ".encode().decode("latin-1"))).ok()
        assert (await newest(server))["reason"] == "Ticket 42: “née”"
        assert "reason" not in (await newest(server))["who"]
        (await create(server, "b")).ok()
        assert "reason" not in await newest(server)
        states = await server.get(f"{REVISIONS}?content=states&limit=2")
        assert [item.get("reason", "") for item in states["items"]] == ["", "Ticket 42: “née”"]


@pytest.mark.parametrize(
    "reason", ["a/b", "50% off", "100%25", "%2F", "why? #1 & more", "née", "..", "history/at/2h"], ids=repr
)
async def test_the_url_may_have_the_reason(autojump_clock: Any, reason: str) -> None:
    """Also as client-go sends it, which decodes the server's path once and encodes it again."""
    async with open_server() as server:
        prefix = reason_prefix(reason)
        (await create(server, "a", prefix)).ok()
        change = await newest(server)
        assert change["reason"] == reason
        assert change["request"]["uri"] == MAPS
        assert (await server.get(f"{prefix}{MAPS}/a"))["metadata"]["name"] == "a"


async def test_bad_reasons_are_refused_and_nothing_is_changed(autojump_clock: Any) -> None:
    async with open_server() as server:
        long, control = "x" * (MAX_REASON + 1), "a\x1b[2Jb"
        refused = (await create(server, "a", kubechronicle_reason=long)).refused(400)
        assert refused["message"] == "the header Kubechronicle-Reason must have at most 1,024 bytes, not 1,025"
        refused = (await create(server, "a", kubechronicle_reason=control)).refused(400)
        assert "printable text in UTF-8" in refused["message"]
        refused = (await create(server, "a", kubechronicle_reason="caf\xe9")).refused(400)
        assert "printable text in UTF-8" in refused["message"]
        refused = (await create(server, "a", reason_prefix(long))).refused(400)
        assert refused["message"].startswith("the reason in the URL must have")
        assert await server.names(MAPS) == ["kube-root-ca.crt"] or not await server.names(MAPS)
        assert (await server.ask("GET", MAPS, headers={"kubechronicle-reason": long})).status == 200  # changes nothing


async def test_the_change_that_sets_a_change_cause_shows_it(autojump_clock: Any) -> None:
    async with open_server() as server:
        cause = {"metadata": {"annotations": {CHANGE_CAUSE: "image 1.27"}}}
        (await create(server, "a")).ok()
        await server.patch(f"{MAPS}/a", cause)
        assert (await newest(server))["reason"] == "image 1.27"
        await server.patch(f"{MAPS}/a", {"data": {"b": "c"}})
        assert "reason" not in await newest(server)  # the annotation stays, and is no reason of this change
        header = {"content-type": "application/merge-patch+json", "kubechronicle-reason": "the header"}
        changed = {"metadata": {"annotations": {CHANGE_CAUSE: "image 1.28"}}}
        (await server.ask("PATCH", f"{MAPS}/a", changed, headers=header)).ok()
        assert (await newest(server))["reason"] == "the header"
        await server.delete(f"{MAPS}/a")
        assert "reason" not in await newest(server)
        assert await found(server, "IMAGE 1.27") == ["a"]


async def test_reasons_are_searched(autojump_clock: Any) -> None:
    async with open_server() as server:
        (await create(server, "a", kubechronicle_reason="Ticket 42")).ok()
        (await create(server, "b", kubechronicle_reason="ticket 420, again")).ok()
        (await create(server, "c")).ok()
        assert await found(server, "ticket 42") == ["b", "a"]
        assert await found(server, "AGAIN") == ["b"]
        assert await found(server, "nothing") == []
        assert await found(server, "42", equal=False) == ["c"]
        counted = await server.ask("GET", f"{REVISIONS}?summary=density&fieldSelector=reason%3D42")
        assert "reasons can't be counted" in counted.refused(400)["message"]


async def test_a_reader_without_the_right_to_the_object_sees_the_reason_of_the_request_alone(
    autojump_clock: Any,
) -> None:
    async with open_server(authorization=AUTHORIZATION) as server:
        rules = [{"apiGroups": ["history.kubechronicle.dev"], "resources": ["revisions"], "verbs": ["list"]}]
        roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
        await server.post(f"{roles}/roles", {"metadata": {"name": "r"}, "rules": rules})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
        subjects = [{"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"}]
        await server.post(
            f"{roles}/rolebindings", {"metadata": {"name": "r"}, "roleRef": reference, "subjects": subjects}
        )
        caused = configmap("a")
        caused["metadata"]["annotations"] = {CHANGE_CAUSE: "hidden"}
        await server.post(MAPS, caused)
        (await create(server, "b", kubechronicle_reason="shown")).ok()
        items = (await server.get(f"{REVISIONS}?limit=2", token=JOE))["items"]
        assert [(item["redacted"], item.get("reason")) for item in items] == [(True, "shown"), (True, None)]
