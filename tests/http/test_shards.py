"""Lists and watches of a share of the objects (ShardedListAndWatch)."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from in_process import configmap, open_server
from stalls.longest_pass import passes_below
from trio.testing import MockClock

from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.selectors.shard_selectors import ShardSelector, fnv

MAPS = "/api/v1/namespaces/default/configmaps"
HALF = 2**63
SHARE = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
QUERY = f"shardSelector={quote(SHARE)}"
ON = FeatureGates(given={"ShardedListAndWatch": True})


def in_share(obj: dict[str, Any]) -> bool:
    return fnv(obj["metadata"]["uid"]) < HALF


async def test_a_share_is_listed_and_watched(autojump_clock: MockClock) -> None:
    async with open_server(features=ON) as server:
        every = [await server.post(MAPS, configmap(f"m{number:02}")) for number in range(20)]
        shared = [each["metadata"]["name"] for each in every if in_share(each)]
        assert 0 < len(shared) < 20
        listed = await server.get(f"{MAPS}?{QUERY}")
        assert [each["metadata"]["name"] for each in listed["items"]] == shared
        assert listed["metadata"]["shardInfo"] == {"selector": SHARE}
        page = await server.get(f"{MAPS}?{QUERY}&limit=1")
        assert [each["metadata"]["name"] for each in page["items"]] == shared[:1]
        assert page["metadata"]["remainingItemCount"] == 19 - [each["metadata"]["name"] for each in every].index(
            shared[0]
        )
        async with server.watch(
            f"{MAPS}?{QUERY}&watch=1&resourceVersion={listed['metadata']['resourceVersion']}"
        ) as watch:
            later = [await server.post(MAPS, configmap(f"n{number:02}")) for number in range(10)]
            for each in filter(in_share, later):
                assert (await watch.event())[:2] == ("ADDED", each["metadata"]["name"])
            await server.delete(f"{MAPS}/{shared[0]}")
            assert (await watch.event())[:2] == ("DELETED", shared[0])


async def test_a_wrong_selector_is_refused_and_ignored_without_the_gate(autojump_clock: MockClock) -> None:
    async with open_server(features=ON) as server:
        for watch in ("", "&watch=1"):
            answer = await server.ask("GET", f"{MAPS}?shardSelector=x{watch}")
            assert answer.status == 500
            assert b"invalid shard selector: unexpected expression kind" in answer.body
    async with open_server() as server:
        listed = await server.get(f"{MAPS}?shardSelector=x")
        assert "shardInfo" not in listed["metadata"]


def test_many_ranges_are_one_search() -> None:
    ranges = tuple((start << 56, (start << 56) + (width << 55)) for start in range(0, 255, 5) for width in (1, 2))
    selector = ShardSelector("object.metadata.namespace", ranges[::-1])
    names = [f"n{number}" for number in range(2000)]
    expected = [any(start <= fnv(name) < end for start, end in ranges) for name in names]
    assert [selector.matches(name, "") for name in names] == expected
    assert True in expected
    assert False in expected


async def test_a_long_selector_is_parsed_in_the_thread() -> None:
    """60 KB of CEL took up to 190 ms."""
    text = "a" + "[0]" * 19_000
    async with open_server(features=ON) as server:
        with passes_below(0.1):
            answer = await server.ask("GET", f"{MAPS}?shardSelector={text}")
    assert answer.status == 500
    assert b"invalid shard selector" in answer.body
