"""The commands of builds: one at a time, with their progress, and an end when the user gives up."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from kubechronicle.ops.progress import ProgressLine

GRACE: Final = 5.0  # seconds from SIGTERM to SIGKILL
REPORTS: Final = 4
"""Lines about a build where the output is no terminal."""
_LINES: Final = 200
"""Lines of a failed command that are kept."""

Say = Callable[[str], None]


class Stopped(Exception):
    """The user gave up."""


class Builds:
    """Runs commands in a thread, until ``stop`` is called in another one. ``say``: prints a line."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self._process: subprocess.Popen[str] | None = None
        self._stopped = threading.Event()

    def run(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        *,
        work: str = "",
        unit: str = "",
        total: int = 0,
    ) -> str:
        """Return the command's output. Raise CalledProcessError with the end of its errors, or Stopped.

        ``work``: each line of errors is one more ``unit`` of this work, of ``total`` (0: unknown).
        """
        if self._stopped.is_set():
            raise Stopped
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # the compilers of a build end with it
        )
        self._process = process
        if self._stopped.is_set():  # since the look above
            self.stop()
        output: list[str] = []
        assert process.stdout is not None
        assert process.stderr is not None
        reader = threading.Thread(target=_read, args=(process.stdout, output), daemon=True)
        reader.start()
        errors = self._follow(process.stderr, work, unit, total)
        code = process.wait()
        reader.join()
        self._process = None
        if self._stopped.is_set():
            raise Stopped
        if code:
            raise subprocess.CalledProcessError(code, command, "".join(output), "".join(errors[-_LINES:]))
        return "".join(output)

    def _follow(self, lines: Iterable[str], work: str, unit: str, total: int) -> list[str]:
        kept: list[str] = []
        with ProgressLine(work, unit) as show:
            for count, line in enumerate(lines, 1):
                kept = [*kept[-_LINES:], line]
                if work:
                    show(count, total)
                if work and not show.is_shown and total >= REPORTS and count % (total // REPORTS) == 0:
                    self.say(f"{work}: {min(count, total)} of {total} {unit}")
        return kept

    def wait_for(self, seconds: float) -> None:
        """Wait. Raise Stopped."""
        if self._stopped.wait(seconds):
            raise Stopped

    def stop(self) -> None:
        """End the present command and all its processes, and refuse further ones."""
        self._stopped.set()
        process = self._process
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
                return


def _read(stream: Iterable[str], kept: list[str]) -> None:
    kept.extend(stream)
