"""Use of cores and disk between two moments, and the bottleneck.

The bottleneck of a load is a core of the server's busiest process, a session of Postgres, the disk, or all cores of the
machine, which the clients share. CPU times come from /proc, disk times from the block device of the data directory.
Without a device (an overlay, a file system in memory) the disk counts as idle.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kubechronicle.ops.development.server_process import Stat, cpu_seconds, descendants, memory_mib

# A share that counts as full. It is below 1, as sampling ends shortly after the load, and no load is without gaps.
FULL = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Totals at one moment.

    ``cpu``: CPU seconds of each group
    ``own``: CPU seconds of each running process of a group
    ``machine``: CPU seconds of the machine on all cores
    ``disk``: seconds the device was busy
    ``stored``: bytes of the database's files
    ``memory``: MiB of each group
    """

    at: float
    cpu: Mapping[str, float]
    own: Mapping[str, Mapping[int, float]]
    machine: float
    disk: float
    stored: int
    memory: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Use between two samples.

    ``cpu``: CPU seconds by group
    ``busiest``: the share of a core that the busiest process of each group used
    ``machine``: the used share of all cores
    ``disk``: the share of the time the disk was busy
    ``grown``: bytes added to the database's files
    """

    seconds: float
    cpu: Mapping[str, float]
    busiest: Mapping[str, float]
    machine: float
    disk: float
    grown: int

    def cores(self, group: str) -> float:
        return self.cpu.get(group, 0.0) / self.seconds

    def bottleneck(self, *, workers: int = 1) -> str:
        """Return the bottleneck in words; "" if nothing was full, so that all time was spent waiting."""
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
            full.append("all cores of the machine" if ours >= FULL - 0.1 else "the machine, which other programs use")
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
    """Takes a sample at each call. As a process group of a Target, it is called at each mark of the load generator."""

    groups: Mapping[str, Callable[[], list[Stat]]]
    cluster: Path  # the database's directory
    samples: list[Sample] = field(default_factory=list)

    def __call__(self) -> list[Stat]:
        """Append a sample to ``samples``. Return no processes, so that the caller counts no CPU twice."""
        at, machine, disk = time.monotonic(), _machine_seconds(), _disk_seconds(self.cluster)
        groups = {name: find() for name, find in self.groups.items()}
        self.samples.append(
            Sample(
                at=at,
                cpu={name: cpu_seconds(processes) for name, processes in groups.items()},
                own={name: {process.pid: process.own for process in processes} for name, processes in groups.items()},
                machine=machine,
                disk=disk,
                stored=_stored(self.cluster / "base"),
                memory={name: memory_mib(processes) for name, processes in groups.items() if name != "load"},
            )
        )
        return []


def ourselves(*, without: Callable[[], list[int]]) -> list[Stat]:
    """Return this process and the load generator: all its children except the server and its Postgres."""
    return descendants(os.getpid(), without=without())


def _machine_seconds() -> float:
    """Return the busy seconds of all cores (proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal, …)."""
    fields = [int(part) for part in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def _disk_seconds(directory: Path) -> float:
    """Return the busy time of the directory's device: io_ticks (the kernel's Documentation/block/stat.rst)."""
    device = directory.stat().st_dev
    try:
        fields = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()
    except FileNotFoundError:
        return 0.0
    return int(fields[9]) / 1000


def _stored(base: Path) -> int:
    """Return the bytes of tables and indexes, without files that are removed meanwhile."""
    total = 0
    for folder, _, names in os.walk(base):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue
    return total
