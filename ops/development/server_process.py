"""A kubechronicle server as a child process, run by its command line, with the CPU time and memory of its processes.

Used by the benchmark and by tests with real clients. It relies on the command line (the ready line, the files in the
data directory) and on /proc, not on the server's modules.

CPU time is counted for two trees of processes:

    server    the serve process, its threads and workers, without the embedded Postgres
    postgres  the postmaster, its children, and the children that have ended (closed connections count)
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

READY_TIMEOUT = 60.0  # for a busy machine with a cold disk; otherwise one or two seconds suffice
STOP_TIMEOUT = 60.0  # to drain a server under load, with the last checkpoint of the embedded Postgres
_READY = re.compile(r"kubechronicle is ready at (?P<url>https://\S+?); try: kubectl --kubeconfig (?P<kubeconfig>\S+)")
_NOT_READY = "The server serves, but is not ready yet"
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_POLL = 0.02


class StartError(Exception):
    """The server ended or timed out before it was ready; the text ends with its last output."""


@dataclass(frozen=True, slots=True)
class Stat:
    """The CPU times in /proc/PID/stat, in seconds.

    ``own``: of the process itself
    ``reaped``: of its children that have ended
    """

    pid: int
    parent: int
    own: float
    reaped: float


def stat(pid: int) -> Stat | None:
    """Read the present times of a process; None if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command, in parentheses, may contain any character: split after the last parenthesis (proc(5)).
    fields = text[text.rindex(")") + 2 :].split()
    own, reaped = (int(fields[11]) + int(fields[12])), (int(fields[13]) + int(fields[14]))
    return Stat(pid, int(fields[1]), own / _TICKS_PER_SECOND, reaped / _TICKS_PER_SECOND)


def descendants(root: int, *, without: Iterable[int] = ()) -> list[Stat]:
    """Return the process and its descendants, except the subtrees of ``without``."""
    children: dict[int, list[Stat]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (process := stat(int(entry))) is not None:
            children.setdefault(process.parent, []).append(process)
    top = stat(root)
    result, pending, excluded = [], [top] if top else [], set(without)
    while pending:
        process = pending.pop()
        result.append(process)
        pending += [child for child in children.get(process.pid, ()) if child.pid not in excluded]
    return result


def cpu_seconds(processes: Sequence[Stat]) -> float:
    return sum(process.own + process.reaped for process in processes)


def memory_mib(processes: Sequence[Stat]) -> float:
    """Return the proportional set size: shared memory, such as Postgres' buffers, counts once."""
    total = 0
    for process in processes:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total / 1024


def resident_mib(pid: int, *, field: str = "VmRSS") -> float:
    """Return a process' VmRSS, or its peak, VmHWM; 0 if it is gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) / 1024
    return 0.0


def kill_and_wait(pid: int, signum: int, *, timeout: float = STOP_TIMEOUT) -> None:
    """Send a signal to any process and wait until it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)
    _wait_until(lambda: _gone(pid), timeout, f"process {pid} to end after signal {signum}")


def _gone(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return text[text.rindex(")") + 2] == "Z"  # a zombie


def _wait_until(condition: Callable[[], bool], timeout: float, description: str) -> None:
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {timeout:.0f} s in vain for {description}")
        time.sleep(_POLL)


class Process(Protocol):
    """A process, with the methods of subprocess.Popen that are used here."""

    pid: int
    returncode: int | None

    @property
    def stdout(self) -> IO[str] | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class ServerProcess:
    """``kubechronicle serve`` on a data directory. It can be started again on it.

    DATA_DIR.log collects the standard output and error of all starts.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        port: int = 0,
    ) -> None:
        self.data_dir = data_dir
        self.log = data_dir.with_name(data_dir.name + ".log")
        self.url = ""
        self.kubeconfig = data_dir / "admin.kubeconfig"
        self.ready_after = 0.0  # seconds from exec to the ready line, of the last start
        self._port = port
        self.arguments = list(arguments)
        self.variables = dict(environment or {})  # those that differ from this process's
        self._environment = dict(os.environ) | self.variables
        self._process: Process | None = None

    @staticmethod
    def command() -> list[str]:
        """Return the path of the installed command."""
        return [str(Path(sys.executable).with_name("kubechronicle"))]

    # Life

    def start(self, *, timeout: float = READY_TIMEOUT, healthy: bool = True) -> ServerProcess:
        """Wait for the ready line; if it is not ``healthy``, until it says that it serves without. Raises StartError. A
        restart uses the port of the first start."""
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        command = [*self.command(), "serve", "--data-dir", str(self.data_dir), "--secure-port", str(self._port)]
        lines: queue.Queue[str | None] = queue.Queue()
        began = time.monotonic()
        with self.log.open("a") as log:
            self._process = self.launch([*command, *self.arguments], self._environment, log)
        threading.Thread(target=self._drain, args=(self._process, lines), daemon=True).start()
        if not healthy:
            return self._wait_serving(began + timeout)
        try:
            while (line := lines.get(timeout=max(0.0, began + timeout - time.monotonic()))) is not None:
                if ready := _READY.search(line):
                    break
            else:
                raise StartError(f"the server ended with code {self._process.wait()}\n{self.tail()}")
        except queue.Empty:
            self.kill9()
            raise StartError(f"no ready line within {timeout:.0f} s\n{self.tail()}") from None
        self.ready_after = time.monotonic() - began
        self.url, self.kubeconfig = ready["url"], Path(ready["kubeconfig"])
        self._port = int(self.url.rsplit(":", 1)[1])
        return self

    def launch(self, command: Sequence[str], environment: Mapping[str, str], log: IO[str]) -> Process:
        """Run the command, with its standard error in ``log``."""
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
            start_new_session=True,  # keep a Ctrl-C for the tests from the server
        )

    def _wait_serving(self, until: float) -> ServerProcess:
        while _NOT_READY not in self.log.read_text(errors="replace"):
            if time.monotonic() > until:
                raise StartError(f"it does not say that it is not ready\n{self.tail()}")
            time.sleep(_POLL)
        return self

    def _drain(self, process: Process, lines: queue.Queue[str | None]) -> None:
        """Empty the pipe until the server ends; a full pipe would block it."""
        assert process.stdout is not None
        with self.log.open("a") as log:
            for line in process.stdout:
                lines.put(line)
                log.write(line)
                log.flush()
        lines.put(None)

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self, *, timeout: float = STOP_TIMEOUT) -> int:
        """Send SIGTERM and return the exit code."""
        assert self._process is not None, "not started"
        self._process.terminate()
        return self._process.wait(timeout)

    def kill9(self) -> None:
        """Kill the serve process; its embedded Postgres keeps running."""
        assert self._process is not None, "not started"
        self._process.kill()
        self._process.wait()

    def restart(self) -> ServerProcess:
        if self.running:
            self.stop()
        return self.start()

    def close(self) -> None:
        """Stop the server and its embedded Postgres."""
        if self.running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.stop(timeout=STOP_TIMEOUT)
        if self.running:
            self.kill9()
        pid = self.embedded_postgres()
        if pid is not None:
            kill_and_wait(pid, signal.SIGQUIT)

    def tail(self, *, lines: int = 40) -> str:
        """Return the last lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    # Processes

    def embedded_postgres(self) -> int | None:
        """Return the process id of the embedded postmaster, None if it does not run."""
        return postmaster(self.data_dir / "postgres")

    def processes(self) -> list[Stat]:
        """Return the server's processes without Postgres."""
        pid = self.embedded_postgres()
        return descendants(self.pid, without=() if pid is None else (pid,))


def postmaster(cluster: Path) -> int | None:
    """Return the process id of a database cluster's postmaster, None if it does not run."""
    try:
        pid = int((cluster / "postmaster.pid").read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return None
    # A killed postmaster leaves its file behind. Another process may have its id by now.
    return pid if not _gone(pid) and "postgres" in Path(f"/proc/{pid}/comm").read_text() else None


@contextlib.contextmanager
def running(server: ServerProcess, *, timeout: float = READY_TIMEOUT) -> Iterator[ServerProcess]:
    try:
        yield server.start(timeout=timeout)
    finally:
        server.close()
