"""The client programs of the tests: kubectl, and the Go program of informers/.

Each has an environment of its own. Its output is read line by line. Servers and HTTPS are in harness.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import BINARIES, PATIENCE, Server, unique


@dataclass
class Kubectl:
    """One kubectl binary with a home directory, and so caches, of its own."""

    binary: str
    server: Server
    home: Path
    namespace: str = ""

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(self.home),
            "KUBECONFIG": str(self.server.kubeconfig),
        }

    def command(self, *arguments: str) -> list[str]:
        return [self.binary, *(["--namespace", self.namespace] if self.namespace else []), *arguments]

    def call(
        self, *arguments: str, stdin: str | None = None, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=self._environment() | dict(environment or {}),
        )

    def __call__(self, *arguments: str, stdin: str | None = None, environment: Mapping[str, str] | None = None) -> str:
        """Run kubectl. Assert that it succeeds, and return its output."""
        done = self.call(*arguments, stdin=stdin, environment=environment)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def refused(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl. Assert that it fails, and return its error output."""
        done = self.call(*arguments, stdin=stdin)
        assert done.returncode != 0, f"kubectl {' '.join(arguments)} succeeded: {done.stdout}"
        return done.stderr

    @contextlib.contextmanager
    def following(self, *arguments: str) -> Iterator[Lines]:
        """Run a kubectl that keeps printing (get -w) within the block."""
        with subprocess.Popen(
            self.command(*arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment(),
        ) as process:
            try:
                yield Lines(process)
            finally:
                process.kill()


class Lines:
    """The lines that a process prints, as they arrive."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._queue: queue.Queue[str | None] = queue.Queue()
        self.process = process
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def next(self, *, timeout: float = PATIENCE) -> str | None:
        """Return the next line; None at the end."""
        return self._queue.get(timeout=timeout)

    def exit_code(self) -> int:
        """Wait for the end of the process."""
        return self.process.wait(PATIENCE)

    def until(self, wanted: Callable[[str], bool], *, timeout: float = PATIENCE) -> str:
        """Return the first line that is wanted. Skip others."""
        skipped: list[str] = []
        end = time.monotonic() + timeout
        while True:
            try:
                line = self.next(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no such line within {timeout:.0f} s, but {skipped}") from None
            assert line is not None, f"ended without such a line, after {skipped[-20:]}"
            if wanted(line):
                return line
            skipped.append(line)


@contextlib.contextmanager
def running(command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None) -> Iterator[Lines]:
    """Run a program that prints lines within the block, then kill it (SIGKILL). ``log``: the file of its errors."""
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ | dict(environment or {}),
        ) as process,
    ):
        try:
            yield Lines(process)
        except BaseException as error:
            error.add_note(f"{command[0]} has logged: {log.read_text()[-3000:]}")
            raise
        finally:
            process.kill()


class GoProgram:
    """A running ``informers`` program. It prints JSON documents, and writes its full report to a file."""

    def __init__(self, directory: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self.file = directory / f"{unique('report')}.json"
        self.log = self.file.with_suffix(".log")
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [str(BINARIES / "informers"), *arguments, "--out", str(self.file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | dict(environment or {}),
            )
        self._lines = Lines(self._process)

    def wait(self, event: str, *, timeout: float, wanted: Callable[[dict[str, Any]], bool] = lambda _: True) -> Any:
        """Return the next document of this kind that is wanted. Skip others."""
        try:
            line = self._lines.until(
                lambda text: (found := json.loads(text))["event"] == event and wanted(found), timeout=timeout
            )
        except AssertionError as error:
            raise AssertionError(f"{error}; its log ends: {self.log.read_text()[-3000:]}") from None
        return json.loads(line)

    def finish(self, *, timeout: float) -> Any:
        """Make the program finish. Return its report."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        report = self.wait("report", timeout=timeout)
        assert self._process.wait(PATIENCE) == 0
        return report

    def full(self) -> Any:
        return json.loads(self.file.read_text())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
