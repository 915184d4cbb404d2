"""`kubechronicle serve --ephemeral` as users start it: fast after the first time, alone, and gone without a trace."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from kubechronicle.ops.client import kubeconfig
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.transport import HttpTransport
from kubechronicle.ops.ephemeral import launching

COMMAND = str(Path(sys.executable).with_name("kubechronicle"))
READY = re.compile(r"ready at (\S+); try: kubectl --kubeconfig (\S+)")
PATIENCE = 60.0
LINGER = "5s"


class Started:
    def __init__(self, temporary: Path, *arguments: str, linger: str = LINGER) -> None:
        self.process = subprocess.Popen(
            [COMMAND, "serve", "--ephemeral", "--ephemeral-linger", linger, "--secure-port", "0", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(temporary)},
        )

    def ready(self) -> Started:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = READY.search(line)
        assert found, (line, self.process.communicate(timeout=PATIENCE))
        self.kubeconfig = Path(found[2])
        return self

    def client(self) -> Client:
        return Client(HttpTransport(kubeconfig.of_file(self.kubeconfig)))

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


def _accepts(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


@pytest.fixture
def temporary(tmp_path: Path) -> Iterator[Path]:
    """Yield the folder for temporary files. It must be empty in the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    yield folder
    until = time.monotonic() + PATIENCE
    while (left := list(folder.iterdir())) and time.monotonic() < until:
        os.sched_yield()
    assert not left


def test_the_second_start_is_a_fork_and_leaves_nothing(temporary: Path) -> None:
    Started(temporary).ready().end()
    began = time.monotonic()
    second = Started(temporary).ready()
    assert time.monotonic() - began < 5  # under 1 s where nothing else runs; docs/testing.md has the figures
    assert second.client().get("/version")["major"] == "1"
    assert second.kubeconfig.is_relative_to(temporary)
    assert second.end(signal.SIGINT) == 0


def test_a_killed_server_leaves_nothing(temporary: Path) -> None:
    started = Started(temporary).ready()
    url = urlsplit(kubeconfig.of_file(started.kubeconfig).server.url)
    started.end(signal.SIGKILL)
    until = time.monotonic() + PATIENCE
    while _accepts(str(url.hostname), int(url.port or 0)):
        assert time.monotonic() < until


def test_several_at_a_time_know_nothing_of_each_other(temporary: Path) -> None:
    several = [Started(temporary) for _ in range(4)]
    for number, started in enumerate(several):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"of-{number}"}}
        started.ready().client().request("POST", "/api/v1/namespaces/default/configmaps", body=body)
    for number, started in enumerate(several):
        names = [each["metadata"]["name"] for each in started.client().items("/api/v1/namespaces/default/configmaps")]
        assert [name for name in names if name.startswith("of-")] == [f"of-{number}"]
    assert [started.end() for started in several] == [0] * 4


def test_a_reset_is_faster_than_a_start(temporary: Path) -> None:
    started = Started(temporary).ready()
    client = started.client()
    client.request("POST", "/ephemeral/mark")
    times = []
    for _ in range(5):
        for number in range(20):
            body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"a-{number}"}}
            client.request("POST", "/api/v1/namespaces/default/configmaps", body=body)
        began = time.monotonic()
        assert client.request("POST", "/ephemeral/reset")["deleted"] == 20
        times.append(time.monotonic() - began)
    assert min(times) < 0.5  # 0.01 s where nothing else runs
    started.end()


def test_keys_stay_in_a_directory_that_the_user_names(temporary: Path, tmp_path: Path) -> None:
    started = Started(temporary, "--data-dir", str(tmp_path / "data"), linger="0s").ready()
    assert started.kubeconfig == tmp_path / "data" / "admin.kubeconfig"
    assert not (tmp_path / "data" / "postgres").exists()
    started.end()
    assert (tmp_path / "data" / "pki" / "ca.crt").exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--database-url", "postgresql://127.0.0.1/none"], "--database-url: not together with --ephemeral"),
        (["--workers", "2"], "--workers: a server with --ephemeral has one process"),
        (["--ephemeral-linger", "soon"], "--ephemeral-linger: must be a duration"),
    ],
)
def test_what_does_not_fit_is_refused(temporary: Path, arguments: list[str], problem: str) -> None:
    process = Started(temporary, *arguments).process
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert problem in errors


def test_without_a_prepared_process_a_server_starts_by_itself(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The template ends at once: its name is taken by a socket that nobody serves."""
    connection, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    other.close()
    monkeypatch.setattr(launching, "connect", lambda linger: connection)
    monkeypatch.setattr(launching, "send_request", lambda *arguments, **options: None)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    ran: list[Sequence[str]] = []

    def run_here(argv: Sequence[str]) -> int:
        ran.append(argv)
        return 3

    handlers = {number: signal.getsignal(number) for number in launching.FORWARDED}
    try:
        assert launching.launch(["serve", "--ephemeral"], run_here) == 3
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert len(ran) == 1
