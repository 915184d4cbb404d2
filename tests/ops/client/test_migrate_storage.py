"""`migrate-storage` against a server with a definition whose storage version has changed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from custom.definitions import definition, version
from custom.serving import CRDS

from kubechronicle.ops.client.commands import migrate_storage

Chronicle = Callable[..., Any]
_plurals = (f"gadget{letter}s" for letter in map(chr, itertools.count(ord("a"))))


class Gadgets:
    """A definition with two versions, and its objects. Storage version: v1 at first."""

    def __init__(self, running: Any, plural: str) -> None:
        self.running = running
        self.plural = plural
        self.name = f"{plural}.example.com"
        self.kind = plural.removesuffix("s").capitalize()
        wait_until_established(running, definition(*versions("v1"), plural=plural))

    def path(self, name: str = "", in_version: str = "v1") -> str:
        return f"/apis/example.com/{in_version}/namespaces/default/{self.plural}" + (f"/{name}" if name else "")

    def create(self, name: str, **spec: Any) -> None:
        body = {"apiVersion": "example.com/v1", "kind": self.kind, "metadata": {"name": name}, "spec": spec}
        self.running.ask("POST", self.path(), body)

    def change(self, found: list[dict[str, Any]]) -> None:
        self.running.ask("PATCH", f"{CRDS}/{self.name}", {"spec": {"versions": found}})

    def stored(self) -> dict[str, str]:
        entries = self.running.server.store.reads.entries(self.name, "")
        return {entry.key.name: entry.object()["apiVersion"].rpartition("/")[2] for entry in entries}

    def stored_versions(self) -> list[str]:
        found: list[str] = self.running.ask("GET", f"{CRDS}/{self.name}")["status"]["storedVersions"]
        return found


def versions(storage: str, **properties: Any) -> list[dict[str, Any]]:
    spec = {"type": "object", "properties": {"n": {"type": "integer"}, **properties}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return [version(name, schema=schema) | {"storage": name == storage} for name in ("v1", "v2")]


def wait_until_established(running: Any, obj: dict[str, Any]) -> None:
    running.ask("POST", CRDS, obj)
    path = f"{CRDS}/{obj['metadata']['name']}"
    for _ in range(1000):
        conditions = running.ask("GET", path).get("status", {}).get("conditions") or ()
        if any(one["type"] == "Established" and one["status"] == "True" for one in conditions):
            return
        reads = running.server.store.reads
        running.run(reads.wait_newer, reads.applied)
    raise AssertionError("never established")


@pytest.fixture
def gadgets(running: Any) -> Gadgets:
    return Gadgets(running, next(_plurals))


def test_objects_are_rewritten_once(chronicle: Chronicle, gadgets: Gadgets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate_storage, "OBJECTS_READ", 2)
    for name in "abcde":
        gadgets.create(name, n=1)
    gadgets.change(versions("v2"))
    gadgets.create("f", n=1)
    assert gadgets.stored() == dict.fromkeys("abcde", "v1") | {"f": "v2"}
    planned = chronicle("migrate-storage", "--dry-run")
    assert (planned.code, planned.out) == (0, f"{gadgets.name}: stored in v1, v2; now v2\n")
    before = gadgets.running.ask("GET", gadgets.path("a"))
    done = chronicle("migrate-storage")
    assert (done.code, done.out) == (0, f"{gadgets.name}: 6 objects, 5 rewritten, all stored in v2\n")
    assert gadgets.stored() == dict.fromkeys("abcdef", "v2")
    assert gadgets.stored_versions() == ["v2"]
    after = gadgets.running.ask("GET", gadgets.path("a"))
    assert before["metadata"].pop("resourceVersion") != after["metadata"].pop("resourceVersion")
    assert before == after
    again = chronicle("migrate-storage")
    assert (again.code, again.out.startswith("nothing to do")) == (0, True)
    named = chronicle("migrate-storage", gadgets.name, "-o", "json").json()["resources"]
    assert [(one["objects"], one["rewritten"], one["failed"]) for one in named] == [(6, 0, 0)]
    who = chronicle("who", "changed", f"{gadgets.name}/a", "-o", "json").json()["answers"][0]["revision"]["who"]
    assert who["fieldManager"] == migrate_storage.MANAGER
    gadgets.change(versions("v2")[1:])


def test_an_interrupted_command_is_repeated(
    chronicle: Chronicle, gadgets: Gadgets, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        gadgets.create(name, n=1)
    gadgets.change(versions("v2"))
    rewrite = migrate_storage._rewrite

    def interrupted(client: Any, kind: Any, metadata: Any) -> bool:
        if metadata["name"] == "b":
            raise KeyboardInterrupt
        return rewrite(client, kind, metadata)

    with monkeypatch.context() as patch:
        patch.setattr(migrate_storage, "_rewrite", interrupted)
        assert chronicle("migrate-storage", gadgets.name).code == 1
    assert (gadgets.stored(), gadgets.stored_versions()) == ({"a": "v2", "b": "v1", "c": "v1"}, ["v1", "v2"])
    done = chronicle("migrate-storage", gadgets.name)
    assert (done.code, done.out) == (0, f"{gadgets.name}: 3 objects, 2 rewritten, all stored in v2\n")


def test_stored_versions_stay_if_the_definition_changes_meanwhile(
    chronicle: Chronicle, gadgets: Gadgets, monkeypatch: pytest.MonkeyPatch
) -> None:
    gadgets.create("a", n=1)
    gadgets.change(versions("v2"))
    rewrite = migrate_storage._rewrite

    def changed(client: Any, kind: Any, metadata: Any) -> bool:
        gadgets.change(versions("v1"))
        return rewrite(client, kind, metadata)

    monkeypatch.setattr(migrate_storage, "_rewrite", changed)
    done = chronicle("migrate-storage", gadgets.name)
    assert (done.code, "its definition was changed meanwhile" in done.out) == (1, True)
    assert gadgets.stored_versions() == ["v1", "v2"]
    gadgets.running.ask("DELETE", f"{CRDS}/{gadgets.name}")


def test_objects_that_the_server_refuses_are_reported(chronicle: Chronicle, gadgets: Gadgets) -> None:
    for name in "abcde":
        gadgets.create(name, n=5)
    rule = {"x-kubernetes-validations": [{"rule": "oldSelf.n == 7 || self.n == 7"}]}
    found = versions("v2")
    for one in found:
        one["schema"]["openAPIV3Schema"]["properties"]["spec"] |= rule
    gadgets.change(found)
    done = chronicle("migrate-storage", gadgets.name)
    assert done.code == 1
    assert done.out.startswith(f"{gadgets.name}: 5 objects, 0 rewritten, 5 failed: default/a: ")
    assert done.out.count("\n") == 1
    assert gadgets.stored_versions() == ["v1", "v2"]
    gadgets.running.ask("DELETE", f"{CRDS}/{gadgets.name}")


def test_builtin_resources_are_stored_as_they_should_be(chronicle: Chronicle, shop: tuple[str, int]) -> None:
    chronicle("migrate-storage", "configmaps")  # those that other tests have left in the server that they share
    done = chronicle("migrate-storage", "configmaps", "deployments")
    first, second = done.out.splitlines()
    assert (done.code, first.endswith(" 0 rewritten, all stored in the server's version")) == (0, True)
    assert second.startswith("deployments.apps: ")
    unknown = chronicle("migrate-storage", "nonsense")
    assert (unknown.code, unknown.err.startswith("kubechronicle: the server has no kind")) == (2, True)


def test_managed_fields_that_do_not_fit_the_schema_do_no_harm(chronicle: Chronicle, gadgets: Gadgets) -> None:
    """The versions have different fields, and nothing converts them. An apply fails after the first one."""
    gadgets.create("a", n=1)
    gadgets.change([versions("v2")[0], versions("v2", two={"type": "integer", "default": 2})[1]])
    done = [chronicle("migrate-storage", gadgets.name, "-o", "json").json()["resources"][0] for _ in range(4)]
    assert [(one["objects"], one["failed"], one["problem"]) for one in done] == [(1, 0, "")] * 4
    assert [one["rewritten"] for one in (done[0], done[-1])] == [1, 0]
    assert gadgets.running.ask("GET", gadgets.path("a", "v2"))["spec"] == {"n": 1, "two": 2}
    gadgets.running.ask("DELETE", f"{CRDS}/{gadgets.name}")
