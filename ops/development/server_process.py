"""A kubechronicle server run as its users run it, as a child process; and what its processes cost.

Used by the benchmark and by the real-client tests. Knows the command line's contract (the ready line, the files in the
data directory) and /proc; knows nothing of how the server works.

CPU time is counted for two trees of processes, the server's and Postgres', so that

    server    the serve process, its threads and workers, without an embedded Postgres among its children
    postgres  the postmaster, its living children, and those it has already reaped (an ended connection still counts)
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

READY_TIMEOUT = 60.0  # a busy machine with a cold disk; a warm one needs a second or two
STOP_TIMEOUT = 60.0  # the drain of a server under load, including the embedded Postgres' last checkpoint
_READY = re.compile(r"kubechronicle is ready at (?P<url>https://\S+?); try: kubectl --kubeconfig (?P<kubeconfig>\S+)")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_POLL = 0.02


class StartError(Exception):
    """The server ended, or said nothing, before it was ready; the text ends with its last output."""


@dataclass(frozen=True, slots=True)
class Stat:
    """The part of /proc/PID/stat that accounting needs; CPU times in seconds."""

    pid: int
    parent: int
    own: float
    reaped: float  # of children that have ended and been waited for


def stat(pid: int) -> Stat | None:
    """The process as of now, or None if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command in parentheses may hold anything; what follows its last parenthesis is regular (proc(5)).
    fields = text[text.rindex(")") + 2 :].split()
    own, reaped = (int(fields[11]) + int(fields[12])), (int(fields[13]) + int(fields[14]))
    return Stat(pid, int(fields[1]), own / _TICKS_PER_SECOND, reaped / _TICKS_PER_SECOND)


def descendants(root: int, *, without: Iterable[int] = ()) -> list[Stat]:
    """The process and everything below it, leaving out the subtrees rooted at ``without``."""
    children: dict[int, list[Stat]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (found := stat(int(entry))) is not None:
            children.setdefault(found.parent, []).append(found)
    top = stat(root)
    result, pending, left_out = [], [top] if top else [], set(without)
    while pending:
        process = pending.pop()
        result.append(process)
        pending += [child for child in children.get(process.pid, ()) if child.pid not in left_out]
    return result


def cpu_seconds(processes: Sequence[Stat]) -> float:
    return sum(process.own + process.reaped for process in processes)


def memory_mib(processes: Sequence[Stat]) -> float:
    """Proportional set size: what several processes share (Postgres' buffers) counts once."""
    total = 0
    for process in processes:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total / 1024


def resident_mib(pid: int, *, field: str = "VmRSS") -> float:
    """VmRSS of one process (or VmHWM, the most it ever had), or 0 if it is gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) / 1024
    return 0.0


def kill_and_wait(pid: int, signum: int, *, timeout: float = STOP_TIMEOUT) -> None:
    """Send the signal to a process which need not be our child, and return when it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)
    _wait_until(lambda: _gone(pid), timeout, f"process {pid} to end after signal {signum}")


def _gone(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return text[text.rindex(")") + 2] == "Z"  # dead, its parent has not looked yet


def _wait_until(condition: object, timeout: float, what: str) -> None:
    assert callable(condition)
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {timeout:.0f} s in vain for {what}")
        time.sleep(_POLL)


class ServerProcess:
    """``kubechronicle serve`` with its own data directory, startable again and again on it.

    Standard output and error go to DATA_DIR.log, one after another for all starts.
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
        self._arguments = list(arguments)
        self._environment = dict(os.environ) | dict(environment or {})
        self._process: subprocess.Popen[str] | None = None

    @staticmethod
    def command() -> list[str]:
        """The installed command beside this interpreter, as a user would call it."""
        return [str(Path(sys.executable).with_name("kubechronicle"))]

    # Life

    def start(self, *, timeout: float = READY_TIMEOUT) -> ServerProcess:
        """Return when the ready line is out. StartError otherwise. A restart takes the port of the first start."""
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        command = [*self.command(), "serve", "--data-dir", str(self.data_dir), "--secure-port", str(self._port)]
        lines: queue.Queue[str | None] = queue.Queue()
        began = time.monotonic()
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [*command, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment,
                start_new_session=True,  # a Ctrl-C meant for the tests is not meant for the server
            )
        threading.Thread(target=self._drain, args=(self._process, lines), daemon=True).start()
        try:
            while (line := lines.get(timeout=max(0.0, began + timeout - time.monotonic()))) is not None:
                if found := _READY.search(line):
                    break
            else:
                raise StartError(f"the server ended with code {self._process.wait()}\n{self.tail()}")
        except queue.Empty:
            self.kill9()
            raise StartError(f"no ready line within {timeout:.0f} s\n{self.tail()}") from None
        self.ready_after = time.monotonic() - began
        self.url, self.kubeconfig = found["url"], Path(found["kubeconfig"])
        self._port = int(self.url.rsplit(":", 1)[1])
        return self

    def _drain(self, process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
        """Keep the pipe empty for as long as the server lives; a full pipe would stop it."""
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
        """SIGTERM and the exit code."""
        assert self._process is not None, "not started"
        self._process.terminate()
        return self._process.wait(timeout)

    def kill9(self) -> None:
        """End the serve process at once; an embedded Postgres is left to itself."""
        assert self._process is not None, "not started"
        self._process.kill()
        self._process.wait()

    def restart(self) -> ServerProcess:
        if self.running:
            self.stop()
        return self.start()

    def close(self) -> None:
        """Leave nothing running: whatever state a test left the server and its embedded Postgres in."""
        if self.running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.stop(timeout=STOP_TIMEOUT)
        if self.running:
            self.kill9()
        pid = self.embedded_postgres()
        if pid is not None:
            kill_and_wait(pid, signal.SIGQUIT)

    def tail(self, *, lines: int = 40) -> str:
        """The end of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    # Processes

    def embedded_postgres(self) -> int | None:
        """The embedded postmaster's process id, None if there is none (left)."""
        return postmaster(self.data_dir / "postgres")

    def processes(self) -> list[Stat]:
        """The server's processes, without Postgres'."""
        pid = self.embedded_postgres()
        return descendants(self.pid, without=() if pid is None else (pid,))


def postmaster(cluster: Path) -> int | None:
    """The process id of the postmaster running a database cluster, None if none does."""
    try:
        pid = int((cluster / "postmaster.pid").read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return None
    # The file outlives a postmaster that was killed, and by then its pid may be someone else's.
    return pid if not _gone(pid) and "postgres" in Path(f"/proc/{pid}/comm").read_text() else None


@contextlib.contextmanager
def running(server: ServerProcess, *, timeout: float = READY_TIMEOUT) -> Iterator[ServerProcess]:
    try:
        yield server.start(timeout=timeout)
    finally:
        server.close()
