"""Measure one case: run the load generator, and sample the CPU times of the server at its two marks.

No request is in flight at either mark. So the CPU between them, divided by the operations between them, is the CPU of
one operation.
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
    """The load generator failed; the text is its error message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The measured server.

    ``flags``: the load generator's flags for address and credentials
    ``groups``: sets of processes by name; listed at each mark, as Postgres' sessions start and end
    """

    flags: Sequence[str]
    groups: Mapping[str, Callable[[], list[Stat]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One run of a case.

    ``cpu_us``: microseconds per operation by process group
    ``seen``: the result of the load generator
    ``pace``: the machine's ``pace()`` just before
    """

    case: Case
    cpu_us: Mapping[str, float]
    memory: Mapping[str, float]
    seen: Mapping[str, Any]
    pace: float = 0.0

    @property
    def total_us(self) -> float:
        return sum(self.cpu_us.values())

    def document(self) -> dict[str, Any]:
        document = {"case": self.case.name, "cpu_us": dict(self.cpu_us), "memory_mib": dict(self.memory)}
        return {**document, "pace_ms": self.pace, **self.seen}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load generator's binary, and the cores it may use (empty: all)."""

    binary: Path
    cores: Sequence[int] = ()

    def run(self, target: Target, flags: Mapping[str, str | int | float]) -> tuple[dict[str, float], dict[str, Any]]:
        """Run a load. Return the CPU seconds per group in the measured part, and the load's result. LoadError."""
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
            errors = process.stderr.read().strip()
        if process.returncode or not result:
            raise LoadError(errors or f"the load generator ended with code {process.returncode}")
        return {name: marks["end"][name] - marks["measure"][name] for name in target.groups}, result

    def fill(self, target: Target, case: Case) -> None:
        """Create the missing objects of the case's namespace."""
        objects = {flag: case.load[flag] for flag in ("definition", "collection", "template") if flag in case.load}
        flags: dict[str, str | int | float] = {
            "mode": "fill",
            "namespace": case.namespace,
            "count": case.fill,
            "conns": 16,
            "size": 1024,
        }
        self.run(target, flags | objects)

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
    """Return the CPU milliseconds of a fixed piece of Python on this machine now, the median of nine.

    The speed of a virtual machine changes by half from one minute to the next; this number makes runs comparable.
    """
    times = []
    for _ in range(9):
        began = time.process_time()
        words = [str(number * number) for number in range(10_000)]
        hashlib.sha256("".join(sorted(words)).encode()).digest()
        times.append(time.process_time() - began)
    return statistics.median(times) * 1000


def median(results: Sequence[Result]) -> Result:
    """Return the run with the median CPU per operation (of an even number, the lower one)."""
    middle = statistics.median_low(result.total_us for result in results)
    return next(result for result in results if result.total_us == middle)
