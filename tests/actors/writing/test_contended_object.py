"""Many writes of one object at the same time: those without a resourceVersion all succeed, as in kube-apiserver."""

from __future__ import annotations

import pytest
import trio
from in_process import open_server

SECRETS = "/api/v1/namespaces/default/secrets"
WRITERS = 100


@pytest.mark.parametrize("kind", ["merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"])
async def test_patches_of_one_object_queue_and_merge(kind: str) -> None:
    async with open_server() as server:
        await server.post(SECRETS, {"metadata": {"name": "s"}})

        async def patch(number: int) -> None:
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "labels": {f"l{number}": "x"}}}
            headers = {"content-type": f"application/{kind}"}
            (await server.ask("PATCH", f"{SECRETS}/s?fieldManager=m{number}", body, headers=headers)).ok()

        async with trio.open_nursery() as nursery:
            for number in range(WRITERS):
                nursery.start_soon(patch, number)
        found = await server.get(f"{SECRETS}/s")
        assert set(found["metadata"]["labels"]) == {f"l{number}" for number in range(WRITERS)}


async def test_a_stale_resource_version_is_still_a_conflict() -> None:
    async with open_server() as server:
        made = await server.post(SECRETS, {"metadata": {"name": "s"}})
        codes: list[int] = []

        async def put(number: int) -> None:
            body = {**made, "metadata": {**made["metadata"], "labels": {"l": str(number)}}}
            codes.append((await server.ask("PUT", f"{SECRETS}/s", body)).status)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(put, number)
        assert sorted(codes) == [200] + [409] * 19
