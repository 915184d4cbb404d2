"""The canary: while hostile clients send the worst requests that are known, another client's requests are not delayed.

The server is a real process on its embedded Postgres; the hostile clients are another process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import hostile_clients
import pytest
from harness import home

from kubechronicle.ops.development.hostile import requests
from kubechronicle.ops.development.server_process import ServerProcess, cpu_seconds, resident_mib

CLIENTS = 16
SECONDS = 20
QUIET_SECONDS = 2
MOST_DELAY = 0.1  # seconds, of the 99th percentile
MOST_MEMORY = 1024  # MiB, of the server without Postgres
REVISIONS = 40  # of a ConfigMap of 1 MB

pytestmark = pytest.mark.alone


@pytest.fixture
def hostile_server() -> Iterator[ServerProcess]:
    """A server whose users are the hostile clients and the canary."""
    with home("canary") as directory:
        names = [*(f"hostile-{number}" for number in range(CLIENTS)), "canary"]
        tokens = directory / "tokens.csv"
        tokens.write_text("".join(f'{name},{name},{name},"system:masters"\n' for name in names))
        server = ServerProcess(directory / "data", arguments=["--token-auth-file", str(tokens)])
        try:
            yield server.start()
        finally:
            server.close()


class Canary:
    """A client that sends a GET every few milliseconds over one connection."""

    def __init__(self, url: str) -> None:
        self._connection = hostile_clients.connected(urlsplit(url).netloc)

    def send(self, method: str, path: str, body: bytes | None = None, content_type: str = "application/json") -> bytes:
        headers = {"authorization": "Bearer canary", "content-type": content_type}
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        answer = response.read()
        assert response.status in (200, 201), answer[:500]
        return answer

    def times(self, seconds: float) -> list[float]:
        """Return the sorted seconds of each GET."""
        times, end = [], time.monotonic() + seconds
        while (began := time.monotonic()) < end:
            self.send("GET", "/api/v1/namespaces/default")
            times.append(time.monotonic() - began)
            time.sleep(0.005)
        return sorted(times)


def test_hostile_requests_do_not_delay_others(hostile_server: ServerProcess) -> None:
    canary = Canary(hostile_server.url)
    created = canary.send("POST", f"{requests.NAMESPACE}/configmaps", requests.large_object())
    revision = json.loads(created)["metadata"]["resourceVersion"]
    canary.send("POST", "/apis/apps/v1/namespaces/default/deployments", requests.deployment())
    for number in range(REVISIONS):
        path = f"{requests.NAMESPACE}/configmaps/{requests.LARGE_OBJECT}"
        canary.send("PATCH", path, b'{"data":{"n":"%d"}}' % -number, "application/merge-patch+json")
    quiet = percentile(canary.times(QUIET_SECONDS), 0.99)

    arguments = [hostile_server.url, revision, str(CLIENTS), str(SECONDS)]
    command = [sys.executable, str(Path(hostile_clients.__file__)), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attack:
        try:
            assert attack.stdout is not None
            assert attack.stdout.readline() == "ready\n"
            before = cpu_seconds(hostile_server.processes())
            times = canary.times(SECONDS)
            share = (cpu_seconds(hostile_server.processes()) - before) / SECONDS
            sent = json.loads(attack.stdout.readline())
        finally:
            attack.kill()
    delay, memory = percentile(times, 0.99), resident_mib(hostile_server.pid, field="VmHWM")
    print(f"p50 {percentile(times, 0.5) * 1000:.1f}, p99 {delay * 1000:.1f}, max {times[-1] * 1000:.1f} ms")
    print(f"quiet p99 {quiet * 1000:.1f} ms, CPU {share:.2f}, {memory:.0f} MiB\n{json.dumps(sent, indent=1)}")
    assert sum(sum(statuses.values()) for statuses, _ in sent.values()) >= CLIENTS
    assert not [name for name, (statuses, _) in sent.items() if statuses.keys() & {"500", "503"}]
    # The server could use a whole core. On a machine that gives it less, everything takes longer.
    assert delay * min(share, 1) < MOST_DELAY
    assert memory < MOST_MEMORY


def percentile(ordered: list[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
