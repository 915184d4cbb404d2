"""Tables of custom resources with many columns, or with columns that look at many values: no pass of the event loop is
long, and a row has an end."""

from __future__ import annotations

from typing import Any

from custom.definitions import definition, version
from custom.serving import WIDGETS, define, serving
from in_process import InProcess
from stalls.longest_pass import passes_below

TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
LONGEST = 0.045
"""Seconds of CPU of a pass; 64 rows of 3,000 cells take 0.2 s."""


async def define_columns(server: InProcess, paths: list[str]) -> None:
    columns = [{"name": f"c{index}", "type": "string", "jsonPath": path} for index, path in enumerate(paths)]
    await define(server, definition(version(additionalPrinterColumns=columns)))


async def create(server: InProcess, name: str, spec: Any) -> None:
    await server.post(
        WIDGETS, {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}
    )


async def test_rows_of_many_columns_are_made_in_the_thread() -> None:
    async with serving() as server:
        await define_columns(server, [f".spec.a[{number % 7}].b{number}" for number in range(3000)])
        for number in range(64):
            await create(server, f"w{number}", {"a": [{"b0": f"x{number}"}]})
        async with server.watch(f"{WIDGETS}?watch=1&resourceVersion=0", headers=TABLE) as stream:
            with passes_below(LONGEST):
                events = [await stream.next() for _ in range(64)]
            headers = {**TABLE, "content-type": "application/merge-patch+json"}
            with passes_below(LONGEST):
                listed = await server.ask("GET", WIDGETS, headers=TABLE)
                one = await server.ask("GET", f"{WIDGETS}/w1", headers=TABLE)
                patched = await server.ask("PATCH", f"{WIDGETS}/w1", {"spec": {"a": [{"b0": "y"}]}}, headers=headers)
                events.append(await stream.next())
        rows = listed.json()["rows"]
        assert [row["cells"][1] for row in rows] == sorted(f"x{number}" for number in range(64))
        assert all(len(row["cells"]) == 3001 for row in rows)
        assert one.json()["rows"][0]["cells"][:3] == ["w1", "x1", None]
        assert patched.json()["rows"][0]["cells"][:3] == ["w1", "y", None]
        assert [event["object"]["rows"][0]["cells"][1] for event in events if event] == [
            *(row["cells"][1] for row in rows),
            "y",
        ]


async def test_paths_that_look_at_values_again_and_again_end() -> None:
    """Each ``..a`` looks at everything below each result of the one before. 20 levels have 184,756 ways."""
    nested: dict[str, Any] = {}
    for _ in range(20):
        nested = {"a": nested}
    async with serving() as server:
        await define_columns(server, [".spec.n", "..a" * 10, ".spec.n"])
        await create(server, "w", {"n": "1", "nested": nested})
        with passes_below(LONGEST):
            row = (await server.ask("GET", f"{WIDGETS}/w", headers=TABLE)).json()["rows"][0]
        assert row["cells"] == ["w", "1", None, None]
