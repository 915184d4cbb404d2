"""One light client: polls /readyz over one connection, and tells the longest gap between two answers.

    python -m kubechronicle.ops.development.hostile.light_client URL PID

It is a process of its own, as the attacks would hold its interpreter's lock. It reads two words from stdin: ``begin``
forgets what was seen, ``end`` prints a line of JSON (``Silence``) and ends.

A machine that gives the server no CPU makes a gap long, but uses no CPU in it. So two clocks are read with each answer:
``main``, the CPU of the server's main thread (in ours, of its event loop), and ``process``, that of all threads. The
second one tells a thread that holds the interpreter's lock, when the event loop waits for it without using CPU.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import ssl
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Final
from urllib.parse import urlsplit

PAUSE: Final = 0.005
"""Seconds between an answer and the next request."""
TIMEOUT: Final = 120.0
"""Seconds after which a request without an answer counts as failed."""
PRIORITY: Final = -10
"""Where the operating system allows it. A client that waits for a core would see gaps that the server did not make."""


@dataclass(frozen=True, slots=True)
class Silence:
    """The longest gap between two answers in seconds, and the most CPU of any gap.

    ``polls``: answers. ``failures``: requests without one; each counts as a gap, too.
    """

    wall: float = 0.0
    main: float = 0.0
    process: float = 0.0
    polls: int = 0
    failures: int = 0


def main_thread_seconds(pid: int) -> float:
    """Return the CPU of a process's main thread; 0 if it is gone. (/proc/PID/stat has hundredths of a second.)"""
    try:
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, IndexError):
        return 0.0


def process_seconds(pid: int) -> float:
    """Return the CPU of a process; 0 if it has ended. The number of its clock is that of clock_getcpuclockid(3)."""
    try:
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return 0.0  # nobody has waited for it yet
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


class LightClient:
    """The client as a child process."""

    def __init__(self, url: str, pid: int) -> None:
        command = [sys.executable, "-m", __name__, url, str(pid)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it polls

    def __enter__(self) -> LightClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def begin(self) -> None:
        self._say("begin")

    def end(self) -> Silence:
        self._say("end")
        assert self._process.stdout is not None
        return Silence(**json.loads(self._process.stdout.readline()))

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()


class _Poller:
    def __init__(self, url: str, pid: int) -> None:
        context = ssl._create_unverified_context()
        self._connection = http.client.HTTPSConnection(urlsplit(url).netloc, context=context, timeout=TIMEOUT)
        self._pid = pid
        self._last = self._now()

    def _now(self) -> tuple[float, float, float]:
        return time.monotonic(), main_thread_seconds(self._pid), process_seconds(self._pid)

    def poll(self, seen: Silence) -> Silence:
        """Send one request, and return what is seen with its gap."""
        failures = 0
        try:
            self._connection.request("GET", "/readyz")
            self._connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            failures = 1
        now = self._now()
        wall, main, process = (after - before for after, before in zip(now, self._last, strict=True))
        self._last = now
        return Silence(
            wall=max(seen.wall, wall),
            main=max(seen.main, main),
            process=max(seen.process, process),
            polls=seen.polls + 1 - failures,
            failures=seen.failures + failures,
        )


def main(url: str, pid: str) -> None:
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    poller, seen = _Poller(url, int(pid)), Silence()
    poller.poll(seen)
    print("polling", flush=True)
    while True:
        if select.select([sys.stdin], [], [], PAUSE)[0]:
            if sys.stdin.readline().strip() != "begin":
                break
            seen = Silence()
        seen = poller.poll(seen)
    print(json.dumps(asdict(seen)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
