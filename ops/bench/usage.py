"""What a machine's parts did between two moments, and which of them was at its end.

A load is as fast as whatever gives out first: a core of the server's one busy process, a session of Postgres, the disk,
or, where the clients run on the same machine, all its cores together. CPU times come from the processes' accounts, the
disk's from the block device the data directory is on; in a place without one (an overlay, a file system in memory) the
disk counts as idle.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kubechronicle.ops.development.server_process import Stat, cpu_seconds, descendants, memory_mib

# A share from which on more does not fit: sampling ends a little after the load does, and nothing runs without gaps.
FULL = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """``cpu``: seconds used so far by each group; ``own``: by each of its living processes. ``machine``: by everything
    on all cores. ``disk``: seconds the device was busy. ``stored``: bytes of the database's files."""

    at: float
    cpu: Mapping[str, float]
    own: Mapping[str, Mapping[int, float]]
    machine: float
    disk: float
    stored: int
    memory: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Between two samples. ``cpu``: seconds by group; ``busiest``: the share of a core its busiest process took;
    ``machine`` and ``disk``: shares of what there is; ``grown``: bytes of the database's files."""

    seconds: float
    cpu: Mapping[str, float]
    busiest: Mapping[str, float]
    machine: float
    disk: float
    grown: int

    def cores(self, group: str) -> float:
        return self.cpu.get(group, 0.0) / self.seconds

    def at_its_end(self, *, workers: int = 1) -> str:
        """What gave out first, in words; empty if everything had time left, so that waiting for one another was all."""
        full = []
        if workers == 1 and self.busiest.get("server", 0) >= FULL:
            full.append("a core of the server")
        if workers > 1 and self.cores("server") / workers >= FULL:
            full.append("the servers' cores")
        if self.busiest.get("postgres", 0) >= FULL:
            full.append("a session of Postgres")
        if self.disk >= FULL:
            full.append("the disk")
        if not full and self.machine >= FULL:
            ours = sum(self.cpu.values()) / self.seconds / (os.cpu_count() or 1)
            full.append("all cores of the machine" if ours >= FULL - 0.1 else "the machine, which others use, too")
        return ", ".join(full)


def between(before: Sample, after: Sample) -> Usage:
    seconds = max(after.at - before.at, 1e-6)
    busiest = {
        group: max((used - before.own.get(group, {}).get(pid, 0.0) for pid, used in own.items()), default=0.0) / seconds
        for group, own in after.own.items()
    }
    return Usage(
        seconds=seconds,
        cpu={group: used - before.cpu.get(group, 0.0) for group, used in after.cpu.items()},
        busiest=busiest,
        machine=(after.machine - before.machine) / seconds / (os.cpu_count() or 1),
        disk=(after.disk - before.disk) / seconds,
        grown=after.stored - before.stored,
    )


@dataclass(slots=True, kw_only=True)
class Sampler:
    """Takes a sample whenever it is asked for its processes, which is at each mark of the load generator."""

    groups: Mapping[str, Callable[[], list[Stat]]]
    cluster: Path  # the database's directory
    samples: list[Sample] = field(default_factory=list)

    def __call__(self) -> list[Stat]:
        """Nothing, for the caller adds up what it is given; see ``samples``."""
        at, machine, disk = time.monotonic(), _machine_seconds(), _disk_seconds(self.cluster)
        found = {name: find() for name, find in self.groups.items()}
        self.samples.append(
            Sample(
                at=at,
                cpu={name: cpu_seconds(processes) for name, processes in found.items()},
                own={name: {process.pid: process.own for process in processes} for name, processes in found.items()},
                machine=machine,
                disk=disk,
                stored=_stored(self.cluster / "base"),
                memory={name: memory_mib(processes) for name, processes in found.items() if name != "load"},
            )
        )
        return []


def ourselves(*, without: Callable[[], list[int]]) -> list[Stat]:
    """The load generator and who started it: this process and its children, but not the server and its Postgres."""
    return descendants(os.getpid(), without=without())


def _machine_seconds() -> float:
    """Not idle, on all cores (proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal, …)."""
    fields = [int(part) for part in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def _disk_seconds(directory: Path) -> float:
    """io_ticks of the device (the kernel's Documentation/block/stat.rst), which is in milliseconds."""
    device = directory.stat().st_dev
    try:
        fields = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()
    except FileNotFoundError:
        return 0.0
    return int(fields[9]) / 1000


def _stored(base: Path) -> int:
    """Bytes of tables and indexes; files that come and go meanwhile are left out."""
    total = 0
    for folder, _, names in os.walk(base):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue
    return total
