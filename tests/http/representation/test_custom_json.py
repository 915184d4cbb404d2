"""The JSON of custom objects in all answers: byte for byte what kube-apiserver writes, which sorts the keys."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from custom.definitions import definition, version
from custom.serving import WIDGETS, define, serving
from in_process import InProcess

ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
VERSIONS = [version(schema={"openAPIV3Schema": ANY}), version("v2", storage=False, schema={"openAPIV3Schema": ANY})]
V2 = WIDGETS.replace("/v1/", "/v2/")
METADATA = {
    "name": "a",
    "labels": {"b": "1", "a": "2"},
    "ownerReferences": [{"uid": "u", "name": "o", "kind": "ConfigMap", "apiVersion": "v1"}],
    "annotations": {"uid": "<", "resourceVersion": ""},
}
USUAL = {"spec": {"z": "<a>", "a": {"y": 1.0, "x": [{"d": 1, "c": 1e20}]}}, "zeta": 1}
UNUSUAL = {**USUAL, "Upper": {"metadata": {"uid": "x"}}, "data": 1}


def as_go_writes(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").encode()


def widget(members: dict[str, Any], api_version: str = "example.com/v1") -> dict[str, Any]:
    return {"kind": "Widget", "metadata": METADATA, **members, "apiVersion": api_version}


def table(version: str = "v1") -> dict[str, str]:
    return {"accept": f"application/json;as=Table;v={version};g=meta.k8s.io"}


async def body(server: InProcess, method: str, path: str, value: Any = None, **headers: str) -> bytes:
    answer = await server.ask(
        method, path, value, headers={name.replace("_", "-"): text for name, text in headers.items()}
    )
    assert answer.status in (200, 201), answer.body
    return bytes(answer.body)


def is_go(text: bytes) -> bool:
    assert text.endswith(b"\n")
    return text[:-1] == as_go_writes(json.loads(text))


@pytest.mark.parametrize("members", [USUAL, UNUSUAL], ids=["usual", "unusual"])
async def test_every_answer_sorts_the_keys(members: dict[str, Any]) -> None:
    async with serving() as server:
        await define(server, definition(*VERSIONS))
        assert is_go(await body(server, "POST", WIDGETS, widget(members)))
        assert is_go(
            await body(server, "POST", f"{WIDGETS}?dryRun=All", {**widget(members), "metadata": {"name": "dry"}})
        )
        for path in (f"{WIDGETS}/a", WIDGETS, f"{WIDGETS}?limit=1", f"{V2}/a", V2, f"{WIDGETS}?labelSelector=a=none"):
            assert is_go(await body(server, "GET", path)), path
        merge = {"content_type": "application/merge-patch+json"}
        assert is_go(await body(server, "PATCH", f"{WIDGETS}/a", {"spec": {"n": 1, "b": 2}}, **merge))
        assert is_go(await body(server, "PATCH", f"{V2}/a", {"spec": {"n": 2}}, **merge))
        apply = {"content_type": "application/apply-patch+yaml"}
        applied = {
            "apiVersion": "example.com/v1",
            "kind": "Widget",
            "metadata": {"name": "b"},
            "spec": {"f": 1, "e": 2},
        }
        assert is_go(await body(server, "PATCH", f"{WIDGETS}/b?fieldManager=m", applied, **apply))
        for path in (WIDGETS, V2):
            async with server.watch(
                f"{path}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
            ) as stream:
                for _ in range(2):
                    event = await stream.next()
                    assert event is not None
                    assert list(event["object"]) == sorted(event["object"])
                    assert list(event["object"]["metadata"]) == sorted(event["object"]["metadata"])
        assert is_go(await body(server, "DELETE", WIDGETS))


@pytest.mark.parametrize("members", [USUAL, UNUSUAL], ids=["usual", "unusual"])
async def test_metadata_has_the_order_of_go_and_objects_in_tables_are_sorted(members: dict[str, Any]) -> None:
    async with serving() as server:
        await define(server, definition(*VERSIONS))
        await server.post(WIDGETS, widget(members))
        whole = await server.get(f"{WIDGETS}/a")
        partial = {"accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
        shown = orjson.loads(await body(server, "GET", f"{WIDGETS}/a", **partial))
        meta = shown["metadata"]
        assert meta == whole["metadata"]
        assert list(meta) == [
            "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "labels", "annotations",
            "ownerReferences", "managedFields",
        ]  # fmt: skip
        assert list(meta["labels"]) == ["a", "b"]
        assert list(meta["ownerReferences"][0]) == ["apiVersion", "kind", "name", "uid"]
        assert list(meta["managedFields"][0]) == [
            "manager",
            "operation",
            "apiVersion",
            "time",
            "fieldsType",
            "fieldsV1",
        ]
        for path in (f"{WIDGETS}/a?includeObject=Object", f"{V2}?includeObject=Object&pretty=1"):
            (row,) = orjson.loads(await body(server, "GET", path, **table()))["rows"]
            assert (
                as_go_writes(row["object"])
                == json.dumps(row["object"], separators=(",", ":"), ensure_ascii=False)
                .replace("<", "\\u003c")
                .replace(">", "\\u003e")
                .encode()
            )


async def test_indented_answers_end_without_a_newline() -> None:
    async with serving() as server:
        await define(server, definition(*VERSIONS))
        text = await body(server, "POST", f"{WIDGETS}?pretty=1", widget(USUAL))
        assert text.startswith(
            b'{\n  "apiVersion": "example.com/v1",\n  "kind": "Widget",\n  "metadata": {\n    "annotations"'
        )
        assert text.endswith(b"\n}")
