"""Rejected bodies: what was decoded of them is freed at once, without a garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from in_process import open_server

PARTS = 5_000
PODS, CONFIGMAPS = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/configmaps"


def pod(containers: bytes) -> bytes:
    return b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"containers":[' + containers + b"]}}"


# Path, body, code. Bodies from 64 KiB on are handled in a thread.
REJECTED = {
    "a wrong type": (PODS, pod(b"1," * PARTS + b"1"), 400),
    "a wrong type, in a thread": (PODS, pod(b"1," * 10 * PARTS + b"1"), 400),
    "a repeated key": (CONFIGMAPS, b'{"metadata":{"name":"X"},"data":{' + b'"a":"b",' * PARTS + b'"a":""}}', 422),
    "invalid values": (PODS, pod(b"{}," * PARTS + b"{}"), 422),
}


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("case", REJECTED)
async def test_a_rejected_body_is_freed_at_once(case: str) -> None:
    path, body, code = REJECTED[case]
    async with open_server() as server:
        before = {id(each) for each in gc.get_objects() if type(each) in (dict, list, tuple) and len(each) >= PARTS}
        for _ in range(3):
            (await server.ask("POST", path, body)).refused(code)
        kept = [each for each in gc.get_objects() if type(each) in (dict, list, tuple) and len(each) >= PARTS]
        assert [each[:1] if type(each) is not dict else "dict" for each in kept if id(each) not in before] == []
