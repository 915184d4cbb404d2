"""Workers: real processes on an embedded Postgres, and stand-ins for tests with many starts."""

from __future__ import annotations

import gc
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

import pytest
import trio

from kubechronicle.actors.errors import SupervisorGaveUp
from kubechronicle.ops import cli
from kubechronicle.ops.addresses import ListenAddresses
from kubechronicle.ops.errors import WorkerFailed
from kubechronicle.ops.exit_codes import MISTAKE
from kubechronicle.ops.pki import Pki, serving_names
from kubechronicle.ops.server import worker_messages, workers
from kubechronicle.ops.server.worker_messages import StartMessage
from kubechronicle.ops.server.workers import WorkerProcesses
from kubechronicle.ops.settings import settings

COMMAND = str(Path(sys.executable).with_name("kubechronicle"))
PATIENCE = 60.0
TOKEN = "load"
MAPS = "/api/v1/namespaces/default/configmaps"
AUTHORIZATION = {"authorization": f"Bearer {TOKEN}"}


class Running:
    """`kubechronicle serve --workers 2`, ready."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        tokens = folder / "tokens.csv"
        tokens.write_text(f'{TOKEN},admin,1,"system:masters"\n')
        command = [COMMAND, "serve", "--data-dir", str(self.data), "--bind-address", "127.0.0.1", "--secure-port", "0"]
        self.process = subprocess.Popen(
            [*command, "--token-auth-file", str(tokens), "--workers", "2"],
            stdout=subprocess.PIPE,
            stderr=(folder / "server.log").open("a"),
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("kubechronicle is ready at https://127.0.0.1:"), line
        self.port = int(line.split(";")[0].rpartition(":")[2])
        self.context = ssl.create_default_context(cafile=self.data / "pki" / "ca.crt")

    def workers(self) -> set[int]:
        """Return the process ids of the workers."""
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        children = [child for thread in threads for child in thread.read_text().split()]
        return {int(child) for child in children if b"kubechronicle.ops.server.worker" in _command_line(child)}

    def connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=self.context, timeout=PATIENCE)

    def get(self, path: str) -> bytes:
        """Send a request on a new connection, and return the answer."""
        connection = self.connection()
        try:
            connection.request("GET", path, headers=AUTHORIZATION)
            answer = connection.getresponse()
            assert answer.status == 200
            return answer.read()
        finally:
            connection.close()

    def answering(self, attempts: int) -> set[str]:
        """Return the numbers of the workers that answer new connections."""
        numbers = set()
        for _ in range(attempts):
            line = next(line for line in self.get("/metrics").decode().splitlines() if "applied_revision{" in line)
            numbers.add(line.partition('worker="')[2].partition('"')[0])
        return numbers


def _command_line(pid: str | int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


class Load:
    """Threads that create ConfigMaps, each on one connection as long as the server keeps that open."""

    def __init__(self, server: Running, prefix: str) -> None:
        self.acknowledged: list[str] = []
        self.failures: list[str] = []
        self._server = server
        self._prefix = prefix
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._create, args=(number,)) for number in range(6)]

    def _create(self, number: int) -> None:
        connection = self._server.connection()
        count = 0
        while not self._end.is_set():
            count += 1
            name = f"{self._prefix}-{number}-{count}"
            try:
                connection.request("POST", MAPS, json.dumps({"metadata": {"name": name}}), AUTHORIZATION)
                answer = connection.getresponse()
                answer.read()
                if answer.status == 201:
                    self.acknowledged.append(name)
                else:
                    self.failures.append(f"{name}: {answer.status}")
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(f"{name}: {error!r}")
                connection.close()
        connection.close()

    def wait_for_more(self) -> None:
        """Wait for 30 more acknowledged writes."""
        before = len(self.acknowledged)
        wait_for(lambda: len(self.acknowledged) >= before + 30)

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        self.wait_for_more()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.02)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path)
    yield running
    if running.process.poll() is None:
        running.process.send_signal(signal.SIGTERM)
        running.process.wait(PATIENCE)


def test_the_life_of_two_workers(server: Running) -> None:
    assert [server.get("/readyz") for _ in range(12)] == [b"ok"] * 12  # from both, as soon as the line is there
    first = server.workers()
    assert len(first) == 2
    assert server.answering(24) == {"0", "1"}
    _kill_one_under_load(server)
    _replace_all_under_load(server)
    # A second server gets an error, although the socket could be shared.
    arguments = ["serve", "--data-dir", str(server.data), "--bind-address", "127.0.0.1", "--workers", "2"]
    second = subprocess.run(
        [COMMAND, *arguments, "--secure-port", str(server.port)], capture_output=True, text=True, check=False
    )
    assert second.returncode == MISTAKE
    assert f"port {server.port} of 127.0.0.1 is in use" in second.stderr
    last = server.workers()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(PATIENCE) == 0
    assert not any(map(_is_worker, first | last))
    assert not (server.data / "postgres" / "postmaster.pid").exists()


def _is_worker(pid: int) -> bool:
    return b"kubechronicle.ops.server.worker" in _command_line(pid)


def _kill_one_under_load(server: Running) -> None:
    """Acknowledged writes are stored, the other worker serves, and a new worker takes the number."""
    before = server.workers()
    victim = min(before)
    with Load(server, "killed") as load:
        os.kill(victim, signal.SIGKILL)
        load.wait_for_more()
        for _ in range(8):  # some of them reach the socket of the dead worker
            server.get("/readyz")
        wait_for(lambda: len(server.workers() - {victim}) == 2)
        load.wait_for_more()
    # At most one request on each connection to the dead worker.
    assert len(load.failures) <= 6, load.failures
    stored = {one["metadata"]["name"] for one in json.loads(server.get(MAPS))["items"]}
    assert set(load.acknowledged) <= stored
    wait_for(lambda: server.answering(12) == {"0", "1"})


def _replace_all_under_load(server: Running) -> None:
    """Replace all workers. No request fails."""
    before = server.workers()
    with Load(server, "replaced") as load:
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: len(server.workers()) == 2 and not server.workers() & before)
        load.wait_for_more()
    assert load.failures == []


def test_a_worker_ends_with_its_parent(tmp_path: Path) -> None:
    """The worker is starting: its database accepts the connection and does not answer."""
    ours, theirs = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as database, ours, theirs:
        Pki(tmp_path).ensure(serving_names(addresses=()))
        url = f"postgresql://127.0.0.1:{database.getsockname()[1]}/none"
        loaded = settings.load({"data-dir": str(tmp_path), "database-url": url})
        addresses = ListenAddresses(host="127.0.0.1", port=1, advertised=ip_address("127.0.0.1"), url="")
        message = StartMessage(settings=loaded, addresses=addresses, number=0, listeners=(), siblings=())
        process = subprocess.Popen([*workers.COMMAND, str(theirs.fileno())], pass_fds=(theirs.fileno(),))
        theirs.close()
        ours.sendall(message.to_bytes())
        database.settimeout(PATIENCE)
        with database.accept()[0]:
            ours.close()
            assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "0"], "--workers: must be a whole number from 1 to 64, got '0'"),
        (["--workers", "65"], "--workers: must be a whole number from 1 to 64, got '65'"),
        (["--workers", "two"], "--workers: must be a whole number"),
        (["--workers", "2", "--controllers", "nonesuch", "--secure-port", "0"], "no control loop 'nonesuch'"),
    ],
)
def test_mistakes_are_reported_before_a_worker_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], message: str
) -> None:
    assert cli.main(["serve", "--data-dir", str(tmp_path / "data"), *arguments]) == MISTAKE
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "data").exists()


# -- stand-ins for workers --------------------------------------------------------------------------------------------

STAND_IN = """
import os, select, signal, socket, sys
parent = socket.socket(fileno=int(sys.argv[2]))
word = parent.recv(100).decode()
if word == "killed": os.kill(os.getpid(), signal.SIGKILL)
if word != "mute": parent.sendall(b"serving\\nready\\n")
if word == "mute" or word == "brief": sys.exit(3)
with open(sys.argv[1], "a") as file: file.write(f"{word} serves\\n")
while True:
    if select.select([parent], [], [], 0.1)[0]:
        received = parent.recv(1000)
        if not received: break
        with open(sys.argv[1], "a") as file:
            file.writelines(f"{word} gets {line}\\n" for line in received.decode().splitlines())
        if b"retire" in received: break
        if word == "frozen" and b"lead" in received: os.kill(os.getpid(), signal.SIGSTOP)
        if word == "busy" and b"lead" in received:
            while True: pass
    elif word != "frozen": parent.sendall(b"beat\\n")
"""


class StandIns:
    """Stand-ins that write their actions to a file.

    ``words``: the name of the worker of each number; some determine its behaviour: "mute", "brief", "killed",
    "frozen" and "busy"
    """

    def __init__(self, file: Path, words: Sequence[str], **options: int) -> None:
        self.file = file
        self.words = list(words)
        self.sockets = [[socket.socket()] for _ in words]
        command = [sys.executable, "-I", "-S", "-c", STAND_IN, str(file)]
        self.workers = WorkerProcesses(
            self.sockets, lambda number, *_: self.words[number].encode(), limit=5.0, command=command, **options
        )

    def lines(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []


@contextmanager
def stand_ins(tmp_path: Path, *words: str, **options: int) -> Iterator[StandIns]:
    standins = StandIns(tmp_path / "lines", words, **options)
    try:
        yield standins
    finally:
        for (sock,) in standins.sockets:
            sock.close()


async def wait_for_lines(standins: StandIns, *lines: str) -> None:
    with trio.fail_after(PATIENCE):
        while not set(lines) <= set(standins.lines()):  # noqa: ASYNC110 - other processes set no event
            await trio.sleep(0.01)


async def test_a_worker_that_keeps_dying_leaves_the_others_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with stand_ins(tmp_path, "steady", "brief", intensity=2) as standins, trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            await nursery.start(lambda *, task_status: standins.workers.run(task_status=task_status))
            while standins.workers._slots[1].deaths < 5:  # noqa: ASYNC110 - other processes set no event
                await trio.sleep(0.01)
            said = [line for line in standins.lines() if line.startswith("steady gets states")]
            assert any('"down":[1]' in line for line in said)
            standins.words[1] = "mended"
            await wait_for_lines(standins, "mended serves")
            assert standins.lines().count("steady serves") == 1
            with caplog.at_level("INFO"):
                while "All workers serve" not in caplog.messages:  # noqa: ASYNC110
                    await trio.sleep(0.01)
            standins.workers.request_stop()
    assert not standins.workers._alive
    assert caplog.messages.count("A worker died") >= 5


async def test_a_server_whose_workers_all_keep_dying_ends(tmp_path: Path) -> None:
    with stand_ins(tmp_path, "brief", "brief", intensity=2) as standins:
        with pytest.RaisesGroup(SupervisorGaveUp, flatten_subgroups=True), trio.fail_after(PATIENCE):
            await standins.workers.run()
        assert not standins.workers._alive


@pytest.mark.parametrize("killed", [("killed", "steady"), ("steady", "killed")])
async def test_a_worker_that_is_killed_while_it_starts_is_started_again(
    tmp_path: Path, killed: tuple[str, str]
) -> None:
    with stand_ins(tmp_path, *killed) as standins, trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            await nursery.start(lambda *, task_status: standins.workers.run(task_status=task_status))
            await wait_for_lines(standins, "steady gets lead")
            standins.words[killed.index("killed")] = "next"
            await wait_for_lines(standins, "next serves")
            standins.workers.request_stop()


@pytest.mark.parametrize("ill", ["frozen", "busy"])
async def test_a_leader_that_hangs_is_killed_and_another_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ill: str
) -> None:
    monkeypatch.setattr(worker_messages, "BUSY", worker_messages.HUNG + worker_messages.INTERVAL)
    with stand_ins(tmp_path, ill, "steady") as standins, trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            await nursery.start(lambda *, task_status: standins.workers.run(task_status=task_status))
            hung = standins.workers.running[0]
            await wait_for_lines(standins, f"{ill} gets lead")
            begun = trio.current_time()
            standins.words[0] = "next"
            await wait_for_lines(standins, "steady gets lead", "next serves")
            assert trio.current_time() - begun < 8  # 5 s on a machine that is not busy
            assert hung.process.returncode == -signal.SIGKILL
            standins.workers.request_stop()
    assert "next gets lead" not in standins.lines()
    assert caplog.messages.count("A worker hangs and is killed") == 1


def test_a_pause_of_the_parent_is_nobodys_fault() -> None:
    heart = worker_messages.Heart(os.getpid(), serving=True)
    assert not heart.problem()
    for _ in range(int(worker_messages.HUNG / worker_messages.INTERVAL) - 1):  # rounds, however long they took
        assert not heart.problem()
    assert "stopped or blocked for 3 s" in heart.problem()
    heart.beat()
    assert not heart.problem()


async def test_the_cycle_collector_runs_with_the_workers(tmp_path: Path) -> None:
    """`serve` disables the collector until then."""
    gc.disable()
    try:
        with stand_ins(tmp_path, "steady") as standins, trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                await nursery.start(standins.workers.run)
                assert gc.isenabled()
                nursery.cancel_scope.cancel()
    finally:
        gc.enable()


async def test_a_mistake_that_the_first_worker_reports_ends_the_server(tmp_path: Path) -> None:
    with stand_ins(tmp_path, "mute", "steady") as standins:
        with pytest.RaisesGroup(WorkerFailed, flatten_subgroups=True) as raised, trio.fail_after(PATIENCE):
            await standins.workers.run()
        (error,) = raised.value.exceptions
        assert "worker 0 did not start: exit status 3" in str(error)


async def test_another_leads_when_the_leader_dies_or_is_replaced(tmp_path: Path) -> None:
    with stand_ins(tmp_path, "first", "second") as standins, trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            await nursery.start(lambda *, task_status: standins.workers.run(task_status=task_status))
            await wait_for_lines(standins, "first gets lead")
            standins.words[0] = "third"
            standins.workers.running[0].process.kill()
            await wait_for_lines(standins, "second gets lead", "third serves")
            standins.words[:] = ["fourth", "fifth"]
            standins.workers.request_replacement()
            await wait_for_lines(standins, "third gets retire", "second gets retire", "fourth gets lead")
            standins.workers.request_stop()
    assert "third gets lead" not in standins.lines()


async def test_a_successor_that_does_not_start_replaces_nobody(tmp_path: Path) -> None:
    with stand_ins(tmp_path, "first", "second") as standins, trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            await nursery.start(lambda *, task_status: standins.workers.run(task_status=task_status))
            before = dict(standins.workers.running)
            standins.words[:] = ["mute", "mute"]
            await standins.workers._replace_all()
            assert standins.workers.running == before
            standins.workers.request_stop()
