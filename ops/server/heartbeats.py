"""Heartbeats: a worker's event loop tells its parent twice a second that it runs. The parent kills one that does not.

    stopped (SIGSTOP), or waiting for something that does not come      killed after HUNG seconds without a beat
    busy: it uses CPU, but its event loop does not come round           killed after BUSY seconds
    starting: it loads the log, long before it serves                   killed after STARTING seconds

Killed, not only asked: a process that goes on later would act as leader beside its successor, and serve on connections
that its clients have given up. SIGKILL is certain, also for a stopped process.

The parent counts its own rounds, not the time. So a pause of the machine, or of the parent, is nobody's fault.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

BEAT: Final = 0.5
"""Seconds between two beats, and between two rounds of the parent."""
HUNG: Final = 3.0
BUSY: Final = 10.0
STARTING: Final = 60.0
IDLE_SHARE: Final = 0.1
"""Share of a CPU below which a process counts as stopped or waiting."""

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used; 0 if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


@dataclass(slots=True)
class Heart:
    """The beats of one worker. ``beat`` notes one; ``problem`` is asked once a round."""

    pid: int
    serving: bool = False
    _beats: int = 0
    _seen: int = -1
    _missed: int = 0
    _cpu: float = field(default=0.0)

    def beat(self) -> None:
        self._beats += 1

    def problem(self) -> str:
        """Return the reason why the worker is to be killed, "" if there is none."""
        if self._beats != self._seen:
            self._seen, self._missed, self._cpu = self._beats, 0, cpu_seconds(self.pid)
            return ""
        self._missed += 1
        late = self._missed * BEAT
        if late < HUNG or (not self.serving and late < STARTING):
            return ""
        if cpu_seconds(self.pid) - self._cpu < IDLE_SHARE * late:
            return f"it has been stopped or blocked for {late:g} s"
        return f"its event loop has been busy for {late:g} s" if late >= BUSY else ""
