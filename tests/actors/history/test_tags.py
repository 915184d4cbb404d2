"""Tags: their targets, which never change, and their use as moments."""

from __future__ import annotations

from typing import Any

import pytest
from in_process import MAPS, configmap, open_server
from trio.testing import MockClock

from kubechronicle.eventlog.memory.store import MemoryStore

API = "/apis/history.kubechronicle.dev/v1"
TAGS = f"{API}/tags"
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}


def tag(name: str, **spec: str) -> dict[str, Any]:
    return {"apiVersion": "history.kubechronicle.dev/v1", "kind": "Tag", "metadata": {"name": name}, "spec": spec}


async def test_a_tag_names_the_newest_revision_or_that_of_its_moment(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(MAPS, configmap("a"))
        before = server.store.reads.applied
        made = await server.post(TAGS, {"metadata": {"name": "now"}})
        assert (made["spec"]["revision"], made["spec"]["user"]) == (str(before), "admin")
        assert set(made["spec"]) == {"revision", "time", "user"}
        await server.delete(f"{MAPS}/a")
        exact = await server.post(TAGS, tag("exact", revision=str(before), user="mallory", time="never", reason="why"))
        assert exact["spec"] == made["spec"] | {"reason": "why"}
        aged = await server.post(TAGS, tag("aged", moment="0s"))
        assert int(aged["spec"]["revision"]) > before
        both = await server.post(TAGS, tag("both", moment="0s", revision=str(before)))  # as a deleted tag is restored
        assert both["spec"]["revision"] == str(before)
        table = await server.get(f"{TAGS}/exact", headers=TABLE)
        assert [column["name"] for column in table["columnDefinitions"]] == [
            "Name", "Revision", "Time", "User", "Reason", "Age",
        ]  # fmt: skip
        assert table["rows"][0]["cells"][:2] == ["exact", str(before)]
        changes = (await server.get(f"{API}/clusterrevisions?fieldSelector=object.kind%3DTag"))["items"]
        assert [change["object"]["name"] for change in changes] == ["both", "aged", "exact", "now"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"moment": "soon"}, "spec.moment: Invalid value: \"soon\": 'soon' is no moment"),
        ({"moment": "2999-01-01"}, "lies in the future"),
        ({"moment": "1990-01-01"}, "lies before the retained history"),
        ({"revision": "99999999"}, "lies in the future"),
        ({"revision": "2h"}, "must be a revision"),
        ({"revision": "1", "reason": "a\nb"}, "spec.reason: Invalid value"),
    ],
)
async def test_a_tag_of_no_moment_is_refused(autojump_clock: MockClock, spec: dict[str, str], message: str) -> None:
    async with open_server() as server:
        assert message in (await server.ask("POST", TAGS, tag("a", **spec))).refused(422)["message"]


async def test_the_target_of_a_tag_never_changes(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        made = await server.post(TAGS, tag("a", moment="0s"))
        for changed in ({"revision": "7"}, {"time": "2020-01-01T00:00:00Z"}, {"user": "eve"}, {"reason": "other"}):
            answer = await server.ask(
                "PATCH", f"{TAGS}/a", {"spec": changed}, headers={"content-type": "application/merge-patch+json"}
            )
            assert "spec: Invalid value" in answer.refused(422)["message"]
        again = await server.put(f"{TAGS}/a", tag("a", moment="0s"))  # fields that are left out stay
        assert again["spec"] == made["spec"]
        labelled = await server.patch(f"{TAGS}/a", {"metadata": {"labels": {"kind": "release"}}})
        assert labelled["spec"] == made["spec"]
        target = f"{TAGS}/b?fieldManager=m"
        kind = {"content-type": "application/apply-patch+yaml"}
        applied = (await server.ask("PATCH", target, tag("b", moment="0s"), headers=kind)).ok()
        same = (await server.ask("PATCH", target, tag("b", moment="0s"), headers=kind)).ok()
        assert same["spec"] == applied["spec"]


async def test_a_tag_stands_for_a_moment_in_paths_and_selectors(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(MAPS, configmap("a"))
        await server.post(TAGS, tag("one"))
        await server.post(MAPS, configmap("b"))
        await server.post(TAGS, tag("two"))
        await server.delete(f"{MAPS}/b")
        assert "a" in await server.names(f"/history/at/tag:one{MAPS}")
        assert "b" not in await server.names(f"/history/at/tag:one{MAPS}")
        assert "b" in await server.names(f"/history/at/tag:two{MAPS}")
        selector = "time.from%3Dtag:one,time.to%3Dtag:two"
        changes = (await server.get(f"{API}/namespaces/default/revisions?fieldSelector={selector}"))["items"]
        assert [change["object"]["name"] for change in changes] == ["b"]
        for unknown in (f"/history/at/tag:three{MAPS}", f"{API}/revisions?fieldSelector=time.from%3Dtag:three"):
            assert "there is no tag three" in (await server.ask("GET", unknown)).refused(400)["message"]
        assert "write tag:NAME" in (await server.ask("GET", f"/history/at/tag:{MAPS}")).refused(400)["message"]


async def test_a_tag_of_dropped_history_is_an_error(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with open_server(store) as server:
        await server.post(MAPS, configmap("a"))
        await server.post(TAGS, tag("old"))
        await server.post(MAPS, configmap("b"))
        newest = (await server.post(TAGS, tag("new")))["spec"]["revision"]
        await server.post(MAPS, configmap("c"))
        store.compact(int(newest) - 1)
        await server.store.reads.wait_consistent()
        assert (
            "tag:old lies before the retained history"
            in (await server.ask("GET", f"/history/at/tag:old{MAPS}")).refused(410)["message"]
        )
        assert "b" in await server.names(f"/history/at/tag:new{MAPS}")
