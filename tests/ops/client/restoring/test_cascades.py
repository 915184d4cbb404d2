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


# -- causes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("victim", ["owner", "namespace", "definition"])
def test_each_deletion_of_a_cascade_has_its_cause(looping: Running, seed: int, victim: str) -> None:
    """The model knows which deletion must follow from which: that of the owner, the namespace or the definition."""
    world = World(looping, 7000 + seed * 10 + len(victim), ends=victim == "definition")
    if victim == "owner":
        first = {next(place for place, each in enumerate(world.made) if each.owner is None)}
        made = world.made[min(first)]
        target, root = f"{made.path}/{made.name}", None
    elif victim == "namespace":
        first = {place for place, each in enumerate(world.made) if f"/{world.spaces[0]}/" in each.path}
        target = root = f"/api/v1/namespaces/{world.spaces[0]}"
    else:
        first = {place for place, each in enumerate(world.made) if "/papers" in each.path}
        target = root = f"{DEFINITIONS}/{world.definition}"
    before = int(looping.ask("GET", "/api/v1/namespaces?limit=1")["metadata"]["resourceVersion"])
    as_user(looping, "mallory", "DELETE", target, {"propagationPolicy": "Background"})
    gone = world.below(first)
    until(looping, lambda: ask_if(looping, target) is None and not gone & world.present().keys())
    changes = changes_since(looping, before)
    began = min(changes, key=int)
    assert changes[began]["who"]["username"] == "mallory"
    for place in gone:
        end, chain = deletion_of(changes, world.made[place]), list[str]()
        while end != began:
            chain.append(end)
            end = changes[end]["cause"]
        owner = world.made[place].owner
        if root is None and owner is not None:  # the collector deletes it after its owner, and tells that owner
            assert names(changes[changes[chain[0]]["cause"]]) == world.made[owner].name
        assert len(chain) <= len(gone) + 2


def as_user(running: Running, user: str, method: str, path: str, body: Any = None) -> Any:
    headers = (("Impersonate-User", user), ("Impersonate-Group", "system:masters"))
    kind = "merge-patch+json" if method == "PATCH" else "json"
    data = None if body is None else json.dumps(body).encode()
    reply = InThread(running, ADMIN, headers).send(method, path, {"Content-Type": f"application/{kind}"}, data)
    assert reply.status < 300, reply
    return json.loads(reply.body)


def changes_since(running: Running, revision: int) -> dict[str, Any]:
    """Return all changes after a revision, by their revisions."""
    found: dict[str, Any] = {}
    for scope in ("revisions", "clusterrevisions"):
        more = ""
        while True:
            path = f"/apis/history.kubechronicle.dev/v1/{scope}?limit=500&fieldSelector=revision.from={revision + 1}"
            page = running.ask("GET", path + (f"&continue={more}" if more else ""))
            found |= {each["metadata"]["name"]: each for each in page["items"]}
            more = page["metadata"].get("continue", "")
            if not more:
                break
    return found


def names(change: Any) -> str:
    return str(change["object"]["name"])


def deletion_of(changes: dict[str, Any], made: Made) -> str:
    """Return the revision that deleted an object of the model."""
    space, plural = made.path.split("/")[-2:]
    (found,) = (
        number
        for number, each in changes.items()
        if each["operation"] == "Delete"
        and (each["object"].get("namespace"), names(each)) == (space, made.name)
        and each["object"]["resource"] == plural
    )
    return found


# -- reverts -----------------------------------------------------------------------------------------------------------

OTHERS = ("vic", "wes")
REVERTED = "uma"
FIELDS = "xyz"
Data = dict[str, str]


class Event(NamedTuple):
    """One change of a name in the model. ``before``, ``after``: the data, None for an absent object."""

    user: str
    before: Data | None
    after: Data | None


class Names:
    """ConfigMaps that several users create, change, delete and make again, with a list of what each did."""

    def __init__(self, running: Running, seed: int) -> None:
        self.running, self.draw, self.serial = running, random.Random(seed), 0
        self.space = f"reverts-{seed}-{self.draw.randrange(10**6)}"
        self.path = f"/api/v1/namespaces/{self.space}/configmaps"
        running.ask("POST", "/api/v1/namespaces", {"metadata": {"name": self.space}})
        self.events: dict[str, list[Event]] = {f"m{number}": [] for number in range(OBJECTS)}
        self.now: dict[str, Data] = {}

    def change(self, name: str) -> None:
        """Let a user make one change of a name."""
        user, present = self.draw.choice((REVERTED, *OTHERS)), self.now.get(name)
        if present is None:
            last = self.events[name][-1] if self.events[name] else None
            if last is not None and last.user == REVERTED and user != REVERTED:
                return  # whose object it is then, nobody can say
            self._write(name, user, "POST", self._drawn(FIELDS))
        elif self.draw.random() < 0.2:
            self._write(name, user, "DELETE", None)
        else:
            field = self.draw.choice(FIELDS)
            value = self._drawn(field) if self.draw.random() < 0.8 else {}
            after = {each: text for each, text in present.items() if each != field} | value
            if after != present:
                self._write(name, user, "PATCH", after, patch={field: value.get(field)})

    def _drawn(self, fields: str) -> Data:
        """Return values that no change before had."""
        self.serial += 1
        return {field: f"{field}{self.serial}" for field in fields}

    def _write(self, name: str, user: str, method: str, after: Data | None, patch: Any = None) -> None:
        body = {"metadata": {"name": name}, "data": after} if method == "POST" else {"data": patch} if patch else None
        as_user(self.running, user, method, self.path + ("" if method == "POST" else f"/{name}"), body)
        self.events[name].append(Event(user, self.now.pop(name, None), after))
        if after is not None:
            self.now[name] = after

    def present(self) -> dict[str, Data]:
        items = self.running.ask("GET", self.path)["items"]
        return {each["metadata"]["name"]: each.get("data") or {} for each in items}


def without(events: list[Event], now: Data | None) -> Data | None:
    """Return the data of a name as if one user had changed nothing, as far as nobody else has built on that."""
    kept, rest = set[str](), list(events)
    while rest:
        event = rest.pop()
        if event.user != REVERTED:
            if event.before is None or event.after is None:
                return now  # another's creation or deletion: what was before is a former object
            kept |= changed(event.before, event.after)
            continue
        if event.after is None:
            now, kept = event.before, set()
            continue
        before = event.before
        if before is None:
            if not (rest and rest[-1].user == REVERTED):
                return now if now != event.after else None
            before = rest.pop().before  # deleted and made again by the same user: replaced
        assert before is not None
        assert now is not None
        for field in changed(before, event.after) - kept:
            now = {each: text for each, text in now.items() if each != field}
            now |= {field: before[field]} if field in before else {}
    return now


def changed(one: Data, other: Data) -> set[str]:
    return {field for field in FIELDS if one.get(field) != other.get(field)}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_users_changes_are_undone_and_those_of_others_stay(
    transported: Chronicle, looping: Running, seed: int
) -> None:
    world = Names(looping, seed)
    before = int(looping.ask("GET", "/api/v1/namespaces?limit=1")["metadata"]["resourceVersion"])
    for _ in range(KINDS * OBJECTS):
        world.change(world.draw.choice(list(world.events)))
    wanted = {name: without(events, world.now.get(name)) for name, events in world.events.items()}
    arguments = ("revert", "--user", REVERTED, "--since", str(before), "-n", world.space, "--yes")
    done = transported(*arguments)
    assert done.code in (0, 3), done.out + done.err
    assert world.present() == {name: data for name, data in wanted.items() if data is not None}, done.out
    newest = max(map(int, changes_since(looping, before)))
    transported(*arguments)
    assert max(map(int, changes_since(looping, before))) == newest
