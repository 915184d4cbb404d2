"""Random changes on a real server, and every kind of question about them, compared with a plain list of the changes.

The list is the truth: one client makes the changes one after the other, as several users, on built-in and on custom
objects. Meanwhile the server is restarted, a namespace is deleted and made again, and old history is dropped. The seed
is printed with a failure, and $KUBECHRONICLE_SEED repeats it; $KUBECHRONICLE_CHANGES makes the run longer.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from harness import Api, Server, eventually

from kubechronicle.ops import cli

CHANGES = int(os.environ.get("KUBECHRONICLE_CHANGES") or 240)
USERS = ("uma", "vic", "system:serviceaccount:ci:deployer")
NAMESPACES = ("red", "blue")
NAMES = ("a", "b", "c", "d")
FIELDS = ("x", "y", "z")
GROUP = "truth.example.com"
HISTORY = "/apis/history.kubechronicle.dev/v1"
CORE, CUSTOM = "api/v1", f"apis/{GROUP}/v1"
ROOTS = {"configmaps": CORE, f"records.{GROUP}": CUSTOM}


class Key(NamedTuple):
    resource: str
    namespace: str
    name: str

    @property
    def collection(self) -> str:
        return f"/{ROOTS[self.resource]}/namespaces/{self.namespace}/{self.resource.partition('.')[0]}"


class Done(NamedTuple):
    """One acknowledged change. ``revision``: 0 for a deletion, whose answer has none. ``whole``: all of the data came
    or went."""

    key: Key
    user: str
    operation: str
    revision: int
    changed: frozenset[str]
    whole: bool = False


@dataclass
class Truth:
    """``states``: the objects' data after the change with this index in ``changes``."""

    changes: list[Done] = field(default_factory=list)
    states: list[dict[Key, tuple[int, dict[str, str]]]] = field(default_factory=list)
    now: dict[Key, tuple[int, dict[str, str]]] = field(default_factory=dict)

    def add(self, done: Done, data: dict[str, str] | None) -> None:
        if data is None:
            del self.now[done.key]
        else:
            self.now[done.key] = (done.revision, data)
        self.changes.append(done)
        self.states.append(deepcopy(self.now))

    def setter(self, key: Key, name: str) -> Done:
        """Return the last change of an existing object that set a field."""
        of = [done for done in self.changes if done.key == key]
        created = max(place for place, done in enumerate(of) if done.operation == "Create")
        return next(
            done for done in reversed(of[created:]) if done.operation == "Create" or f"data.{name}" in done.changed
        )


class Writer:
    def __init__(self, api: Api, truth: Truth, random_: random.Random) -> None:
        self.api, self.truth, self.random = api, truth, random_

    def write(self, method: str, path: str, user: str, body: Any = None) -> Any:
        headers = {"Impersonate-User": user, "Impersonate-Group": "system:masters"}
        if method == "PATCH":
            headers["Content-Type"] = "application/merge-patch+json"
        return self.api.request(method, path, body, headers=headers).expect(200, 201)

    def change(self) -> None:
        """Create, change or delete a random object."""
        pick = self.random.choice
        key, user = Key(pick(list(ROOTS)), pick(NAMESPACES), pick(NAMES)), pick(USERS)
        present = self.truth.now.get(key)
        if present is None:
            data = {name: str(self.random.randrange(4)) for name in FIELDS if self.random.random() < 0.7}
            kind = "ConfigMap" if key.resource == "configmaps" else "Record"
            version = ROOTS[key.resource].partition("/")[2]
            obj = {"apiVersion": version, "kind": kind, "metadata": {"name": key.name}, "data": data}
            answer = self.write("POST", key.collection, user, obj)
            self.truth.add(Done(key, user, "Create", revision_of(answer), frozenset()), data)
        elif self.random.random() < 0.2:
            self.write("DELETE", f"{key.collection}/{key.name}", user)
            self.truth.add(Done(key, user, "Delete", 0, frozenset()), None)
        else:
            name, value = pick(FIELDS), pick((None, "0", "1", "2", "3"))
            before = present[1]
            answer = self.write("PATCH", f"{key.collection}/{key.name}", user, {"data": {name: value}})
            after = {each: text for each, text in (before | {name: value}).items() if text is not None}
            if after != before:
                done = Done(
                    key, user, "Update", revision_of(answer), frozenset((f"data.{name}",)), not (before and after)
                )
                self.truth.add(done, after)
            else:
                assert revision_of(answer) == present[0]  # nothing is written

    def make_namespace_again(self, name: str) -> None:
        """Delete a namespace with all that it contains, and create it again."""
        path = f"/api/v1/namespaces/{name}"
        self.api.request("DELETE", path).expect(200)
        eventually(lambda: self.api.request("GET", path).status == 404, f"namespace {name} to be gone")
        self.api.namespace(name)
        for key in [key for key in self.truth.now if key.namespace == name]:
            self.truth.add(Done(key, "", "Delete", 0, frozenset()), None)


def revision_of(answer: Mapping[str, Any]) -> int:
    return int(answer["metadata"]["resourceVersion"])


def define(api: Api) -> None:
    schema = {"type": "object", "properties": {"data": {"type": "object", "additionalProperties": {"type": "string"}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "records", "singular": "record", "kind": "Record", "listKind": "RecordList"}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"records.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    eventually(lambda: api.request("GET", f"/{CUSTOM}/records").status == 200, "the custom kind to be served")


@pytest.fixture(scope="module")
def seed() -> int:
    return int(os.environ.get("KUBECHRONICLE_SEED") or random.SystemRandom().randrange(2**32))


def test_every_answer_about_random_changes_is_true(
    own_server: Server, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"KUBECHRONICLE_SEED={seed}")
    server, random_, truth = own_server.start(), random.Random(seed), Truth()
    api = server.api()
    for name in NAMESPACES:
        api.namespace(name)
    define(api)
    writer = Writer(api, truth, random_)
    for number in range(CHANGES):
        if number == CHANGES // 3:
            writer.make_namespace_again("blue")
        if number == CHANGES // 2:
            api.close()
            server.stop()
            server.start()
        writer.change()
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    check_past(api, truth, random_.sample(range(CHANGES // 4, len(truth.changes)), 40))
    check_log(api, truth)
    check_filters(api, truth, random_)
    check_authors(truth, random_)
    # What is dropped is refused, and the rest stays as it was.
    mark = next(done.revision for done in truth.changes[len(truth.changes) // 2 :] if done.revision)
    command = [*server.command(), "compact", *server.where(), "--revision", str(mark), "--without-archive"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    refused = eventually(
        lambda: (answer := api.request("GET", f"/history/at/{mark - 1}/api/v1/configmaps")).status != 200 and answer,
        "history to be dropped",
    )
    assert refused.status == 410
    kept = [place for place, done in enumerate(truth.changes) if done.revision >= mark]
    check_past(api, truth, random_.sample(kept, min(20, len(kept))))
    check_authors(truth, random_, since=mark)
    api.close()
    server.verify()


def check_past(api: Api, truth: Truth, places: Iterable[int]) -> None:
    """Compare lists and objects at the revisions of changes."""
    for place in places:
        revision, state = truth.changes[place].revision, truth.states[place]
        if not revision:
            continue
        for resource, root in ROOTS.items():
            listed = api.get(f"/history/at/{revision}/{root}/{resource.partition('.')[0]}")
            found = {
                Key(resource, item["metadata"]["namespace"], item["metadata"]["name"]): (
                    revision_of(item),
                    item.get("data") or {},
                )
                for item in listed["items"]
                if item["metadata"]["namespace"] in NAMESPACES
            }
            assert found == {key: held for key, held in state.items() if key.resource == resource}, revision
        key = truth.changes[place].key
        answer = api.request("GET", f"/history/at/{revision}{key.collection}/{key.name}")
        assert (answer.status == 200) == (key in state), (revision, key)


def revisions_of(namespace: str) -> str:
    return f"{HISTORY}/namespaces/{namespace}/revisions"


def listed(api: Api, namespace: str, fields: str) -> list[dict[str, Any]]:
    """Return the revisions of a namespace that match a field selector, the oldest first."""
    items, token = [], ""
    while True:
        page = api.get(
            f"{revisions_of(namespace)}?limit=100&order=oldest&fieldSelector={quote(fields)}&continue={quote(token)}"
        )
        items += page["items"]
        token = page["metadata"].get("continue", "")
        if not token:
            return items


def key_of(item: Mapping[str, Any]) -> Key:
    of = item["object"]
    group = of["apiVersion"].rpartition("/")[0]
    return Key(f"{of['resource']}.{group}" if group else of["resource"], of["namespace"], of["name"])


def check_log(api: Api, truth: Truth) -> None:
    """Compare all changes of both kinds, in their order."""
    by_key: dict[Key, list[dict[str, Any]]] = {}
    for namespace in NAMESPACES:
        for resource in ROOTS:
            for item in listed(api, namespace, f"object.resource={resource}"):
                by_key.setdefault(key_of(item), []).append(item)
    for key in {done.key for done in truth.changes} | set(by_key):
        expected = [done for done in truth.changes if done.key == key]
        items = by_key.get(key, [])
        assert [item["operation"] for item in items] == [done.operation for done in expected], key
        for done, item in zip(expected, items, strict=True):
            if done.user:
                assert item["who"]["username"] == done.user
                assert item["who"]["impersonator"]
            if done.revision:
                assert int(item["metadata"]["name"]) == done.revision
            if done.operation == "Update":
                assert set(item["changed"]) == done.changed or (done.whole and item["changed"] == ["data"]), done


def check_filters(api: Api, truth: Truth, random_: random.Random) -> None:
    """Compare the numbers of changes that random selectors find: listed, counted over time, and grouped."""
    for _ in range(25):
        namespace, resource = random_.choice(NAMESPACES), random_.choice(list(ROOTS))
        terms = [f"object.resource={resource}"]
        left = [done for done in truth.changes if done.key[:2] == (resource, namespace)]
        if random_.random() < 0.6:
            user = random_.choice(USERS)
            terms.append(f"who.username={user}")
            left = [done for done in left if done.user == user]
        if random_.random() < 0.5:
            name = random_.choice(NAMES)
            terms.append(f"object.name={name}")
            left = [done for done in left if done.key.name == name]
        if random_.random() < 0.4:
            operation = random_.choice(("Create", "Update", "Delete"))
            terms.append(f"operation={operation}")
            left = [done for done in left if done.operation == operation]
        fields = ",".join(terms)
        assert len(listed(api, namespace, fields)) == len(left), fields
        revisions = revisions_of(namespace)
        groups = api.get(f"{revisions}?summary=groups&by=name,operation&fieldSelector={quote(fields)}")["groups"]
        expected = Counter((done.key.name, done.operation) for done in left)
        assert {(group["name"], group["operation"]): group["changes"] for group in groups} == expected, fields
        assert api.get(f"{revisions}?summary=density&fieldSelector={quote(fields)}")["total"] == len(left), fields


def check_authors(truth: Truth, random_: random.Random, *, since: int = 0) -> None:
    """Compare the last author of fields of existing objects. ``since``: older changes are not kept."""
    fields = [
        (key, name) for key, (_, data) in truth.now.items() for name in data if truth.setter(key, name).revision > since
    ]
    for key, name in random_.sample(fields, min(12, len(fields))):
        asked = ("who", "set", f"{key.resource}/{key.name}", f"data.{name}", "-n", key.namespace, "-o", "json")
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            assert cli.main(asked) == 0, asked
        (answer,) = json.loads(output.getvalue())["answers"]
        done = truth.setter(key, name)
        assert answer["revision"]["metadata"]["name"] == str(done.revision), (asked, answer["answer"])
        assert answer["user"].startswith(done.user), (asked, answer["answer"])
