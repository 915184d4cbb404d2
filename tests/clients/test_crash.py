"""kill -9 of the server at random moments under write load: every acknowledged write is there afterwards.

Each writer owns its objects and knows of each one the last acknowledged state and, if the server died before its
answer, the one write whose outcome is open. After each restart the object must be in the one state or the other: a
write without an answer may have happened or not, but nothing else may be there.
"""

from __future__ import annotations

import http.client
import os
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from harness import Api, Server, configmap

KILLS = int(os.environ.get("KUBECHRONICLE_TEST_KILLS", "50"))
WRITERS = 4
OBJECTS = 25  # per writer; they are created, updated and deleted round and round
LONGEST = 0.6  # seconds of load before a kill; the shortest is none
NAMESPACE = "crash"
ABSENT = ""


@dataclass
class Known:
    """One object. The values are what its data holds; revision is that of the acknowledged value."""

    acknowledged: str = ABSENT
    revision: str = ""
    open: str | None = None  # a write sent and never answered


@dataclass
class Writer:
    """A client that writes until the connection breaks."""

    server: Server
    number: int
    random: random.Random
    known: dict[str, Known] = field(default_factory=dict)
    writes: int = 0
    problem: str = ""

    def run(self) -> None:
        api = self.server.api()
        try:
            while True:
                self._write(api, f"w{self.number}-{self.random.randrange(OBJECTS)}")
        except (OSError, http.client.HTTPException):
            return  # the server is dead; what was in flight stays open
        finally:
            api.close()

    def _write(self, api: Api, name: str) -> None:
        known = self.known.setdefault(name, Known())
        if known.open is not None:
            return  # answered with an error; only the next restart tells what became of it
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
        self.writes += 1
        value = f"{self.number}.{self.writes}"
        if known.acknowledged == ABSENT:
            known.open = value
            answer = api.request("POST", path, configmap(name, v=value))
        elif self.random.random() < 0.2:
            known.open = value = ABSENT
            answer = api.request("DELETE", f"{path}/{name}")
        else:
            known.open = value
            body = configmap(name, v=value)
            body["metadata"]["resourceVersion"] = known.revision
            answer = api.request("PUT", f"{path}/{name}", body)
        if answer.status >= 500:
            return  # it says itself that it cannot answer for the outcome
        if answer.status not in (200, 201):
            self.problem = f"{name}: {answer.status} {answer.body[:300]!r}, known: {known}"
            raise OSError(self.problem)
        known.acknowledged, known.open = value, None
        known.revision = answer.json()["metadata"]["resourceVersion"] if value != ABSENT else ""

    def compare(self, there: dict[str, Any]) -> None:
        """Hold what is there against what is known, and take over how open writes turned out."""
        for name, known in self.known.items():
            obj = there.pop(name, None)
            value = obj["data"]["v"] if obj else ABSENT
            revision = obj["metadata"]["resourceVersion"] if obj else ""
            allowed = {known.acknowledged} | ({known.open} if known.open is not None else set())
            assert value in allowed, f"{name} is {value!r} at {revision}; known: {known}"
            if value == known.acknowledged:
                assert revision == known.revision, f"{name}: the same value at another revision than {known}"
            known.acknowledged, known.revision, known.open = value, revision, None


def test_acknowledged_writes_survive_kill_9(own_server: Server) -> None:
    seed = int(os.environ.get("KUBECHRONICLE_TEST_SEED", str(time.time_ns() % 1_000_000)))
    print(f"KUBECHRONICLE_TEST_SEED={seed} KUBECHRONICLE_TEST_KILLS={KILLS}")
    chance = random.Random(seed)
    own_server.start()
    own_server.api().namespace(NAMESPACE)
    writers = [Writer(own_server, number, random.Random(seed + number + 1)) for number in range(WRITERS)]
    highest = 0
    for _ in range(KILLS):
        threads = [threading.Thread(target=writer.run, daemon=True) for writer in writers]
        for thread in threads:
            thread.start()
        time.sleep(chance.uniform(0, LONGEST))  # the moment of the kill is the point
        own_server.kill9()
        for thread in threads:
            thread.join(30)
        assert [writer.problem for writer in writers if writer.problem] == []
        own_server.start()
        highest = compare_all(own_server, writers, highest)
    print(f"{sum(writer.writes for writer in writers)} writes")
    assert sum(writer.writes for writer in writers) > KILLS * 10, "hardly any load: the test says nothing"
    own_server.verify()


def compare_all(server: Server, writers: list[Writer], highest: int) -> int:
    """The list's revision, which never falls."""
    api = server.api()
    listed = api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps")
    api.close()
    there = {item["metadata"]["name"]: item for item in listed["items"]}
    for writer in writers:
        writer.compare(there)
    assert there == {}, "objects nobody wrote"
    revision = int(listed["metadata"]["resourceVersion"])
    assert revision >= highest
    return revision
