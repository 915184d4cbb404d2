"""The same loads on two servers in turns: one of ours, and one that runs beside it, whoever wrote it.

A virtual machine's speed changes by half from one minute to the next, so two servers' figures can be compared only if
they were taken together. Each round of a case loads ours and then the other one for some seconds; the ratio of these
two is the round's, and the median of the rounds' ratios is what is told. Both have been filled with the same objects by
the same load before.

Whoever is not loaded is stopped (SIGSTOP), store and all: an idle server, too, has timers, collects garbage and keeps
leases, which would be paid by the one that is measured. So the other server should be there for nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kubechronicle.ops.bench.cases import Case
from kubechronicle.ops.bench.measure import Load, LoadError, Result, Target
from kubechronicle.ops.bench.report import pair, rate

# What a server that was stopped makes up for when it goes on (timers that are due, leases) is over by then.
SETTLE_SECONDS = 1.0
_HEADER = (
    "| work | CPU/op: ours | theirs | ratio | of all rounds | rate: ours, theirs | p50 ms | ratio | p99 ms | ratio "
    "| MiB |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two. ``name`` is for the log of runs; ``target`` names all its processes."""

    name: str
    target: Target

    def signal(self, number: int) -> None:
        """To each of its processes. A server stops before its store and goes on after it, so that it never waits for
        one that stands still."""
        groups = list(self.target.groups.values())
        for find in groups if number == signal.SIGSTOP else reversed(groups):
            for process in find():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)


@contextlib.contextmanager
def standing_still(*sides: Side) -> Iterator[None]:
    """All of them are stopped on entry, and go on at the end whatever happens."""
    try:
        for side in sides:
            side.signal(signal.SIGSTOP)
        yield
    finally:
        for side in sides:
            side.signal(signal.SIGCONT)


@contextlib.contextmanager
def awake(side: Side, *, settle: float = SETTLE_SECONDS) -> Iterator[None]:
    """It runs within, and is stopped again."""
    side.signal(signal.SIGCONT)
    try:
        time.sleep(settle)
        yield
    finally:
        side.signal(signal.SIGSTOP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """``seconds``: the measured part of each turn, after ``warm`` seconds of the same load; ``log``: takes each run as
    a JSON document a line."""

    ours: Side
    theirs: Side
    load: Load
    rounds: int
    seconds: float
    warm: float
    log: Path | None = None
    settle: float = SETTLE_SECONDS

    def run(self, cases: Sequence[Case]) -> tuple[list[str], bool]:
        """The report's rows, and whether everything went well."""
        rows, filled, fine = [], set[str](), True
        with standing_still(self.ours, self.theirs):
            for case in cases:
                print(f"{case.title} …", file=sys.stderr, flush=True)
                try:
                    if case.fill and case.namespace not in filled:
                        self._fill(case)
                        filled.add(case.namespace)
                    ours, theirs = self._rounds(case)
                except LoadError as error:
                    rows.append(_failure_row(case, str(error)))
                    fine = False
                else:
                    rows.append(row(ours, theirs))
                    fine = fine and not any(result.seen["errors"] for result in (*ours, *theirs))
                print(rows[-1], file=sys.stderr, flush=True)
        return rows, fine

    def _fill(self, case: Case) -> None:
        for side in (self.ours, self.theirs):
            with awake(side, settle=self.settle):
                self.load.fill(side.target, case)

    def _rounds(self, case: Case) -> tuple[list[Result], list[Result]]:
        taken: dict[str, list[Result]] = {self.ours.name: [], self.theirs.name: []}
        for _ in range(self.rounds):
            for side in (self.ours, self.theirs):
                with awake(side, settle=self.settle):
                    result = self.load.measure(side.target, case, seconds=case.lasts(self.seconds), warm=self.warm)
                taken[side.name].append(result)
                if self.log is not None:
                    with self.log.open("a") as log:
                        log.write(json.dumps({"side": side.name, **result.document()}) + "\n")
        return taken[self.ours.name], taken[self.theirs.name]


def ratios(ours: Sequence[Result], theirs: Sequence[Result], figure: Callable[[Result], float]) -> list[float]:
    """Round by round, for those rounds in which the other one has the figure at all."""
    return [figure(one) / figure(other) for one, other in zip(ours, theirs, strict=True) if figure(other)]


def row(ours: Sequence[Result], theirs: Sequence[Result]) -> str:
    """Both servers' medians over the rounds, and the median of the rounds' ratios, which need not be the medians'."""
    cpu = ratios(ours, theirs, lambda result: result.total_us)
    rates = ", ".join(rate(_middle(side, lambda result: result.seen["per_second"])) for side in (ours, theirs))
    cells = [
        ours[0].case.title,
        pair(_cpu(ours)),
        pair(_cpu(theirs)),
        _median(cpu),
        f"{min(cpu):.2f} to {max(cpu):.2f}" if len(cpu) > 1 else "",
        rates,
        *_latency(ours, theirs, "p50"),
        *_latency(ours, theirs, "p99"),
        ", ".join(f"{sum(side[-1].memory.values()):.0f}" for side in (ours, theirs)),
    ]
    failed = [result.seen for result in (*ours, *theirs) if result.seen["errors"]]
    complaint = f" **{sum(one['errors'] for one in failed)} errors: {failed[0].get('problem', '')}**" if failed else ""
    return "| " + " | ".join(cells) + " |" + complaint


def table(rows: Sequence[str]) -> str:
    return "\n".join([_HEADER, *rows])


def _middle(results: Sequence[Result], figure: Callable[[Result], float]) -> float:
    return statistics.median(figure(result) for result in results)


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f}" if values else ""


def _cpu(results: Sequence[Result]) -> list[float]:
    """The median of each group of processes by itself: server, store."""
    return [statistics.median(result.cpu_us[group] for result in results) for group in results[0].cpu_us]


def _latency(ours: Sequence[Result], theirs: Sequence[Result], quantile: str) -> tuple[str, str]:
    """Both medians and the ratio."""

    def figure(result: Result) -> float:
        return float(result.seen.get("ms", {}).get(quantile, 0.0))

    both = ", ".join(f"{_middle(side, figure):.2f}" for side in (ours, theirs))
    return both, _median(ratios(ours, theirs, figure))


def _failure_row(case: Case, problem: str) -> str:
    told = problem.splitlines()[0][:200] if problem else "?"
    return f"| {case.title} | **failed: {told}** |" + " |" * 9
