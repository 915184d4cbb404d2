"""Clients of the robustness test: threads that use registers, and watchers that follow them.

A register is a ConfigMap with one value. Every value is unique. Each operation is noted with its times and its outcome:

    done      answered with success
    refused   409: the register had another value than the expected one
    unknown   the connection broke, or the server says that it does not know

Operations that certainly did nothing (503, 429, connection refused) are left out.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from harness import Api, Server

NAMESPACE = "robustness"
MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
BROKEN = (OSError, http.client.HTTPException, ValueError)
PAUSE = 0.02  # seconds between operations of a client: short histories are checked in seconds
ATTEMPT = 20.0  # seconds for one request


@dataclass(slots=True)
class Operation:
    client: int
    key: str
    kind: str
    start: int
    old: str = ""
    new: str = ""
    end: int = 0
    outcome: str = ""
    value: str = ""

    def line(self) -> str:
        return json.dumps(asdict(self))


def register(name: str, value: str, revision: str = "") -> dict[str, Any]:
    metadata = {"name": name} | ({"resourceVersion": revision} if revision else {})
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"v": value}}


@dataclass(eq=False)
class Client:
    """Reads, writes and swaps values of the registers ``keys`` until ``stop``."""

    number: int
    servers: list[Server]
    keys: list[str]
    chance: random.Random
    stop: threading.Event
    history: list[Operation] = field(default_factory=list)
    known: dict[str, tuple[str, str]] = field(default_factory=dict)  # by key: value and resourceVersion

    def run(self) -> None:
        count = 0
        while not self.stop.is_set():
            server = self.chance.choice(self.servers)
            with closing(Api(server, timeout=ATTEMPT)) as api, suppress(*BROKEN):
                for _ in range(20):
                    if self.stop.is_set():
                        return
                    count += 1
                    self._act(api, self.chance.choice(self.keys), f"{self.number}.{count}")
                    time.sleep(PAUSE)
            time.sleep(PAUSE)

    def _act(self, api: Api, key: str, value: str) -> None:
        kind = self.chance.choice(("read", "read", "write", "swap"))
        if kind == "swap" and key not in self.known:
            kind = "read"
        old, revision = self.known.get(key, ("", ""))
        op = Operation(self.number, key, kind, time.monotonic_ns(), old=old if kind == "swap" else "", new=value)
        if kind == "read":
            op.new = ""
            self._finish(op, lambda: api.request("GET", f"{MAPS}/{key}"))
        else:
            body = register(key, value, revision if kind == "swap" else "")
            self._finish(op, lambda: api.request("PUT", f"{MAPS}/{key}", body))

    def _finish(self, op: Operation, ask: Callable[[], Any]) -> None:
        try:
            answer = ask()
        except BROKEN as error:
            if not isinstance(error, ConnectionRefusedError) and op.kind != "read":
                op.outcome = "unknown"
                self.history.append(op)
            raise
        op.end = time.monotonic_ns()
        if answer.status == 200:
            obj = answer.json()
            op.outcome, op.value = "done", obj["data"]["v"]
            self.known[op.key] = op.value, obj["metadata"]["resourceVersion"]
        elif answer.status == 409 and op.kind == "swap":
            op.outcome = "refused"
            del self.known[op.key]
        elif answer.status in (429, 503, 409) or op.kind == "read":
            return
        elif answer.status in (500, 504):
            op.outcome = "unknown"
        else:
            raise AssertionError(f"{op}: {answer.status} {answer.body[:300]!r}")
        self.history.append(op)


@dataclass(eq=False)
class Watcher:
    """Follows all registers on one server, from revision to revision over lost connections."""

    server: Server
    revision: str
    stop: threading.Event
    seen: list[tuple[int, str, str]] = field(default_factory=list)
    expired: list[str] = field(default_factory=list)

    def run(self) -> None:
        while not self.stop.is_set():
            with closing(Api(self.server, timeout=ATTEMPT)) as api, suppress(*BROKEN):
                path = f"{MAPS}?watch=1&resourceVersion={self.revision}&timeoutSeconds=5"
                response = api.open("GET", path)
                while response.status == 200 and (line := response.readline()):
                    self._take(json.loads(line))
            time.sleep(PAUSE)

    def _take(self, event: dict[str, Any]) -> None:
        obj = event["object"]
        if event["type"] == "ERROR":
            if obj.get("code") == 410:
                self.expired.append(json.dumps(obj))
            return
        self.revision = obj["metadata"]["resourceVersion"]
        self.seen.append((int(self.revision), obj["metadata"]["name"], obj["data"]["v"]))
