"""A sole appender whose embedded Postgres is killed, and then the server: no read misses a write that was acknowledged
before the read was sent."""

from __future__ import annotations

import http.client
import itertools
import os
import random
import signal
import threading
import time
from dataclasses import dataclass, field

from harness import Api, Server, configmap, eventually, postgres_of

KILLS = int(os.environ.get("KUBECHRONICLE_TEST_KILLS", "2"))
WRITERS, READERS = 3, 3
LONGEST = 0.4  # seconds of load before a kill
PATH = "/api/v1/namespaces/default/configmaps"


def is_sole(api: Api) -> bool:
    answer = api.request("GET", "/metrics")
    return answer.status == 200 and b"\nkubechronicle_sole_appender 1\n" in answer.body


@dataclass
class Load:
    """Writers and readers. ``acknowledged``: the last acknowledged value of each writer's object; values only grow."""

    server: Server
    acknowledged: dict[str, int] = field(default_factory=lambda: {f"w{number}": 0 for number in range(WRITERS)})
    writes: int = 0
    reads: int = 0
    problem: str = ""

    def start(self) -> list[threading.Thread]:
        works = [(self._write, name) for name in self.acknowledged] + [(self._read, "")] * READERS
        threads = [threading.Thread(target=self._run, args=work, daemon=True) for work in works]
        for thread in threads:
            thread.start()
        return threads

    def _run(self, work: object, name: str) -> None:
        api = self.server.api()
        try:
            while not self.problem:
                self._write(api, name) if name else self._read(api)
        except (OSError, http.client.HTTPException):
            return  # the server has been killed
        finally:
            api.close()

    def _write(self, api: Api, name: str) -> None:
        for value in itertools.count(self.acknowledged[name] + 1):
            answer = api.request("PUT", f"{PATH}/{name}", configmap(name, v=str(value)))
            if answer.status == 200:
                self.acknowledged[name] = value
                self.writes += 1
            elif answer.status < 500:
                self.problem = f"{name}: {answer.status} {answer.body[:300]!r}"
            if self.problem:
                return

    def _read(self, api: Api) -> None:
        before = dict(self.acknowledged)
        if random.random() < 0.2:
            answer = api.request("GET", PATH)
            items = answer.json()["items"] if answer.status == 200 else []
            objects = {each["metadata"]["name"]: each for each in items}
        else:
            name = random.choice(list(before))
            before = {name: before[name]}
            answer = api.request("GET", f"{PATH}/{name}")
            objects = {name: answer.json()}
        if answer.status >= 500:
            return
        self.reads += 1
        for name, value in before.items():
            seen = int(objects[name]["data"]["v"]) if name in objects and "data" in objects[name] else -1
            if seen < value:
                self.problem = f"{name} was {seen} after {value} had been acknowledged ({answer.status})"


def kill_postgres(server: Server, load: Load) -> None:
    """Kill Postgres. Return when the server is the sole appender of the restarted one, and the load continues."""
    api = server.api()
    os.kill(postgres_of(server), signal.SIGKILL)
    written, read = load.writes, load.reads
    eventually(lambda: load.problem or (load.writes > written + 20 and load.reads > read + 20), "the load to continue")
    eventually(lambda: is_sole(api), "the server to be the sole appender of the restarted Postgres")
    api.close()


def test_no_read_misses_what_was_acknowledged(own_server: Server) -> None:
    own_server.start()
    api = own_server.api()
    eventually(lambda: is_sole(api), "the server to be the sole appender")
    for number in range(WRITERS):
        api.create(PATH, configmap(f"w{number}", v="0"))
    load = Load(own_server)
    for _ in range(KILLS):
        threads = load.start()
        time.sleep(random.uniform(0, LONGEST))  # the test is about the moment of the kill
        kill_postgres(own_server, load)
        own_server.kill9()
        for thread in threads:
            thread.join(30)
        assert load.problem == ""
        own_server.start()
        api = own_server.api()
        for name, value in load.acknowledged.items():
            assert int(api.get(f"{PATH}/{name}")["data"]["v"]) >= value
    own_server.verify()
