"""kill -9 of the server at random moments under write load: no acknowledged write is lost.

Each writer owns its objects. For each object it knows the last acknowledged state, and the one write without an answer,
if the server was killed before answering. After each restart the object must be in one of these two states.
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

KILLS = int(os.environ.get("KUBECHRONICLE_TEST_KILLS", "25"))
WRITERS = 4
OBJECTS = 25  # per writer; created, updated and deleted in turn
LONGEST = 0.6  # seconds of load before a kill, from none
NAMESPACE = "crash"
ABSENT = ""


@dataclass
class Known:
    """One object: the values of its data, and the revision of the acknowledged value."""

    acknowledged: str = ABSENT
    revision: str = ""
    open: str | None = None  # a write without an answer


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
            return  # the server was killed; the outcome of the write stays open
        finally:
            api.close()

    def _write(self, api: Api, name: str) -> None:
        known = self.known.setdefault(name, Known())
        if known.open is not None:
            return  # answered with an error; its outcome shows after the next restart
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
            return  # the server reports that the outcome is unknown
        if answer.status not in (200, 201):
            self.problem = f"{name}: {answer.status} {answer.body[:300]!r}, known: {known}"
            raise OSError(self.problem)
        known.acknowledged, known.open = value, None
        known.revision = answer.json()["metadata"]["resourceVersion"] if value != ABSENT else ""

    def compare(self, there: dict[str, Any]) -> None:
        """Compare the objects with the known states, and note the outcome of open writes."""
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
    for number in range(1, KILLS + 1):
        threads = [threading.Thread(target=writer.run, daemon=True) for writer in writers]
        for thread in threads:
            thread.start()
        time.sleep(chance.uniform(0, LONGEST))  # the test is about the moment of the kill
        own_server.kill9()
        for thread in threads:
            thread.join(30)
        assert [writer.problem for writer in writers if writer.problem] == []
        own_server.start()
        highest = compare_all(own_server, writers, highest)
        print(f"{number} kills, revision {highest}", flush=True)  # a long run that is stopped has a result, too
    own_server.verify()
    writes = sum(writer.writes for writer in writers)
    print(f"{writes} writes, and the log is proved")
    assert writes > KILLS * WRITERS, "too little load for a meaningful test"


def compare_all(server: Server, writers: list[Writer], highest: int) -> int:
    """Compare all objects. Return the revision of the list, which never falls."""
    api = server.api()
    listed = api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps")
    api.close()
    there = {item["metadata"]["name"]: item for item in listed["items"]}
    for writer in writers:
        writer.compare(there)
    assert there == {}, "objects that no writer wrote"
    revision = int(listed["metadata"]["resourceVersion"])
    assert revision >= highest
    return revision
