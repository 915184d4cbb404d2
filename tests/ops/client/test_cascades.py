"""Cascades undone: random owners, dependents, namespaces and definitions, compared with a model of their contents."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import trio
from in_process import ADMIN
from server_in_thread import InThread, Running, server_in_thread

from kubechronicle.ops.client import session

Chronicle = Callable[..., Any]
PATIENCE = 30.0
CHANGES = int(os.environ.get("KUBECHRONICLE_TEST_CHANGES", "168"))
"""Objects of all cases together: `make fuzz` draws 5,000."""
KINDS = 3
OBJECTS = 14 if CHANGES < 1000 else 70
SEEDS = -(-CHANGES // (KINDS * OBJECTS))
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@pytest.fixture(scope="module")
def looping() -> Iterator[Running]:
    with server_in_thread(controllers=frozenset({"garbage-collector", "namespace"})) as running:
        yield running


@pytest.fixture
def transported(looping: Running, chronicle: Chronicle, monkeypatch: pytest.MonkeyPatch) -> Chronicle:
    """Run commands against the server with loops."""
    monkeypatch.setattr(session, "make_transport", lambda target: InThread(looping, ADMIN, target.headers))
    return chronicle


def until(running: Running, holds: Callable[[], bool]) -> None:
    """Wait for changes until a condition holds."""

    async def newer(revision: int) -> None:
        with trio.fail_after(PATIENCE):
            await running.server.store.reads.wait_newer(revision)

    while True:
        applied = running.server.store.reads.applied
        if holds():
            return
        running.run(newer, applied)


def ask_if(running: Running, path: str) -> Any:
    reply = InThread(running, ADMIN).send("GET", path, {}, None)
    return None if reply.status == 404 else json.loads(reply.body)


class Made(NamedTuple):
    """One object of the model. ``owner``: the place of its owner in the model, None for none."""

    path: str
    name: str
    data: str
    owner: int | None


class World:
    """Namespaces, a definition, and trees of owners and dependents in both, with a model of what was made.

    ``ends``: the definition will be deleted.
    """

    def __init__(self, running: Any, seed: int, *, ends: bool) -> None:
        self.ends = ends
        self.running, self.draw, self.made = running, random.Random(seed), list[Made]()
        self.group = f"g{seed}-{self.draw.randrange(10**6)}.example.com"
        self.spaces = [f"cascade-{seed}-{number}-{self.draw.randrange(10**6)}" for number in range(3)]
        for space in self.spaces:
            running.ask("POST", "/api/v1/namespaces", {"metadata": {"name": space}})
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}
        names = {"plural": "papers", "singular": "paper", "kind": "Paper"}
        spec = {"group": self.group, "scope": "Namespaced", "names": names, "versions": [version]}
        self.definition = f"papers.{self.group}"
        running.ask("POST", DEFINITIONS, {"metadata": {"name": self.definition}, "spec": spec})
        until(running, self._is_served)
        for number in range(OBJECTS):
            self._make(f"o{number}", self.draw.choice(self.spaces))

    def _is_served(self) -> bool:
        found = self.running.ask("GET", f"{DEFINITIONS}/{self.definition}")
        conditions = (found.get("status") or {}).get("conditions") or ()
        return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

    def _make(self, name: str, space: str) -> None:
        custom = self.draw.random() < 0.4
        root, plural = (f"/apis/{self.group}/v1", "papers") if custom else ("/api/v1", "configmaps")
        path = f"{root}/namespaces/{space}/{plural}"
        # A dependent of a kind that is not served any more stays: the collector cannot know its owner.
        usable = ("/papers", "/configmaps") if custom or not self.ends else ("/configmaps",)
        inside = f"/namespaces/{space}/"
        made = enumerate(self.made)
        here = [place for place, each in made if inside in each.path and each.path.endswith(usable)]
        owner = self.draw.choice(here) if here and self.draw.random() < 0.6 else None
        metadata: dict[str, Any] = {"name": name}
        if owner is not None:
            live = self.running.ask("GET", f"{self.made[owner].path}/{self.made[owner].name}")
            reference = {part: live[part] for part in ("apiVersion", "kind")}
            metadata["ownerReferences"] = [reference | {part: live["metadata"][part] for part in ("name", "uid")}]
        data, body = str(self.draw.randrange(1000)), {"metadata": metadata}
        if custom:
            body |= {"apiVersion": f"{self.group}/v1", "kind": "Paper"}
        self.running.ask("POST", path, body | {"data": {"a": data}})
        self.made.append(Made(path, name, data, owner))

    def present(self) -> dict[int, dict[str, Any]]:
        """Return the objects of the model that exist now, by their places."""
        found = {}
        for place, each in enumerate(self.made):
            live = ask_if(self.running, f"{each.path}/{each.name}")
            if live is not None and not live["metadata"].get("deletionTimestamp"):
                found[place] = live
        return found

    def below(self, places: set[int]) -> set[int]:
        """Return the objects that go with some: their dependents, theirs, and so on."""
        while more := {place for place, each in enumerate(self.made) if each.owner in places} - places:
            places = places | more
        return places

    def check(self) -> None:
        """Compare all objects with the model: contents, and owners by their present uids."""
        present = self.present()
        assert sorted(present) == list(range(len(self.made)))
        for place, live in present.items():
            owner = self.made[place].owner
            uids = [each["uid"] for each in live["metadata"].get("ownerReferences") or ()]
            assert uids == ([] if owner is None else [present[owner]["metadata"]["uid"]]), self.made[place]
            assert live["data"] == {"a": self.made[place].data}


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("victim", ["owner", "namespace", "definition"])
def test_a_cascade_is_undone_in_one_run(transported: Chronicle, looping: Running, seed: int, victim: str) -> None:
    world = World(looping, seed * 10 + ("owner", "namespace", "definition").index(victim), ends=victim == "definition")
    if victim == "owner":
        gone = {next(place for place, each in enumerate(world.made) if each.owner is None)}
        made = world.made[min(gone)]
        kind = f"papers.{world.group}" if "/papers" in made.path else "configmap"
        target = f"{made.path}/{made.name}"
        words = [f"{kind}/{made.name}", "-n", made.path.split("/namespaces/")[1].partition("/")[0]]
    elif victim == "namespace":
        gone = {place for place, each in enumerate(world.made) if f"/{world.spaces[0]}/" in each.path}
        target, words = f"/api/v1/namespaces/{world.spaces[0]}", [f"namespace/{world.spaces[0]}"]
    else:
        gone = {place for place, each in enumerate(world.made) if "/papers" in each.path}
        target, words = f"{DEFINITIONS}/{world.definition}", [f"crd/{world.definition}"]
    before = int(looping.ask("GET", "/api/v1/namespaces?limit=1")["metadata"]["resourceVersion"])
    looping.ask("DELETE", target, {"propagationPolicy": "Background"})
    until(looping, lambda: ask_if(looping, target) is None and not world.below(gone) & world.present().keys())
    bounds = ("--user", "admin", "--since", str(before), "--until", str(before + 1), "-A", "--yes")
    if seed % 2:
        done = transported("restore", *words, "--with-consequences", "--yes")
    else:
        done = transported("revert", *bounds, "--with-consequences")
    assert done.code == 0, done.out + done.err
    world.check()
    again = transported("revert", *bounds, "--with-consequences")
    assert "Nothing to undo" in again.out, again.out
    assert again.code == 0
    world.check()
