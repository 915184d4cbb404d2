"""One case of the benchmark: the load generator run beside the server, CPU times sampled at its two marks.

Nothing is in flight when the load prints the first mark and everything it started is over at the second, so the CPU
between them, divided by the operations between them, is the operation's.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubechronicle.ops.bench.cases import Case
from kubechronicle.ops.development.server_process import Stat, cpu_seconds, memory_mib


class LoadError(Exception):
    """The load generator failed; the text is its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is measured.

    ``groups`` names sets of processes, looked up anew at each mark, as Postgres' backends come and go.
    ``flags``: the load's flags that say where the server is and who is asking.
    """

    flags: Sequence[str]
    groups: Mapping[str, Callable[[], list[Stat]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """``cpu_us``: microseconds per operation and process group; ``seen``: the load generator's own document; ``pace``
    as of ``pace()``, just before."""

    case: Case
    cpu_us: Mapping[str, float]
    memory: Mapping[str, float]
    seen: Mapping[str, Any]
    pace: float = 0.0

    @property
    def total_us(self) -> float:
        return sum(self.cpu_us.values())

    def document(self) -> dict[str, Any]:
        told = {"case": self.case.name, "cpu_us": dict(self.cpu_us), "memory_mib": dict(self.memory)}
        return {**told, "pace_ms": self.pace, **self.seen}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load generator's binary and the cores it may use (none named: all)."""

    binary: Path
    cores: Sequence[int] = ()

    def run(self, target: Target, flags: Mapping[str, str | int | float]) -> tuple[dict[str, float], dict[str, Any]]:
        """Run to the end; CPU seconds per group over the measured part, and the load's result. LoadError."""
        arguments = [f"-{name}={value}" for name, value in flags.items()]
        with subprocess.Popen(
            [str(self.binary), *target.flags, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            if self.cores:
                os.sched_setaffinity(process.pid, self.cores)
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            marks: dict[str, dict[str, float]] = {}
            result: dict[str, Any] = {}
            for line in process.stdout:
                document = json.loads(line)
                if "phase" not in document:
                    result = document
                    continue
                marks[document["phase"]] = {name: cpu_seconds(find()) for name, find in target.groups.items()}
                if document["phase"] == "measure":
                    process.stdin.write("\n")
                    process.stdin.flush()
            complaint = process.stderr.read().strip()
        if process.returncode or not result:
            raise LoadError(complaint or f"the load generator ended with code {process.returncode}")
        return {name: marks["end"][name] - marks["measure"][name] for name in target.groups}, result

    def fill(self, target: Target, case: Case) -> None:
        """Create the objects the case reads, those which are missing."""
        self.run(target, {"mode": "fill", "namespace": case.namespace, "count": case.fill, "conns": 16, "size": 1024})

    def measure(self, target: Target, case: Case, *, seconds: float, warm: float) -> Result:
        flags = {**case.load, "namespace": case.namespace, "seconds": seconds, "warm": warm}
        before = pace()
        cpu, seen = self.run(target, flags)
        operations = max(1, seen["operations"])
        return Result(
            case=case,
            cpu_us={name: used / operations * 1e6 for name, used in cpu.items()},
            memory={name: memory_mib(find()) for name, find in target.groups.items()},
            seen=seen,
            pace=before,
        )


def pace() -> float:
    """Milliseconds of CPU that a fixed piece of Python takes on this machine now, the median of nine. The speed of a
    virtual machine changes by half from one minute to the next; with this, two runs can be compared."""
    taken = []
    for _ in range(9):
        began = time.process_time()
        words = [str(number * number) for number in range(10_000)]
        hashlib.sha256("".join(sorted(words)).encode()).digest()
        taken.append(time.process_time() - began)
    return statistics.median(taken) * 1000


def median(results: Sequence[Result]) -> Result:
    """The run whose CPU per operation is the median (the lower one of an even number)."""
    middle = statistics.median_low(result.total_us for result in results)
    return next(result for result in results if result.total_us == middle)
