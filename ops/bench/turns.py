"""Measure two servers in turns: one of ours, and another running server of any kind.

A virtual machine's speed changes by half from one minute to the next, so measurements are comparable only if they are
made together. Each round of a case loads ours and then the other server for some seconds, and has a ratio. The table
has the median of these ratios. The same load has filled both servers with the same objects before.

The idle server is stopped (SIGSTOP) with its store: its timers, garbage collection and leases would use CPU during the
other's turn. So the other server must not serve anything else.
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

# Seconds for a continued server to catch up with its timers and leases.
SETTLE_SECONDS = 1.0
_HEADER = (
    "| work | CPU/op: ours | theirs | ratio | range | rate: ours, theirs | p50 ms | ratio | p99 ms | ratio "
    "| MiB |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two servers.

    ``name``: its name in the log of runs
    ``target``: its address and all its processes
    """

    name: str
    target: Target

    def signal(self, number: int) -> None:
        """Send a signal to each process.

        The server stops before its store and continues after it, so that it never waits for a stopped store.
        """
        groups = list(self.target.groups.values())
        for find in groups if number == signal.SIGSTOP else reversed(groups):
            for process in find():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)


@contextlib.contextmanager
def stopped(*sides: Side) -> Iterator[None]:
    """Stop the servers, and let them continue at the end in any case."""
    try:
        for side in sides:
            side.signal(signal.SIGSTOP)
        yield
    finally:
        for side in sides:
            side.signal(signal.SIGCONT)


@contextlib.contextmanager
def running(side: Side, *, settle: float = SETTLE_SECONDS) -> Iterator[None]:
    """Let a stopped server run within the block."""
    side.signal(signal.SIGCONT)
    try:
        time.sleep(settle)
        yield
    finally:
        side.signal(signal.SIGSTOP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """The measurement.

    ``seconds``: length of the measured part of each turn
    ``warm``: seconds of the same load before it
    ``log``: a file for all runs, one JSON document per line
    """

    ours: Side
    theirs: Side
    load: Load
    rounds: int
    seconds: float
    warm: float
    log: Path | None = None
    settle: float = SETTLE_SECONDS

    def run(self, cases: Sequence[Case]) -> tuple[list[str], bool]:
        """Return the report's rows, and whether no load failed."""
        rows, filled, successful = [], set[str](), True
        with stopped(self.ours, self.theirs):
            for case in cases:
                print(f"{case.title} …", file=sys.stderr, flush=True)
                try:
                    if case.fill and case.namespace not in filled:
                        self._fill(case)
                        filled.add(case.namespace)
                    ours, theirs = self._rounds(case)
                except LoadError as error:
                    rows.append(_failure_row(case, str(error)))
                    successful = False
                else:
                    rows.append(row(ours, theirs))
                    successful = successful and not any(result.seen["errors"] for result in (*ours, *theirs))
                print(rows[-1], file=sys.stderr, flush=True)
        return rows, successful

    def _fill(self, case: Case) -> None:
        for side in (self.ours, self.theirs):
            with running(side, settle=self.settle):
                self.load.fill(side.target, case)

    def _rounds(self, case: Case) -> tuple[list[Result], list[Result]]:
        results: dict[str, list[Result]] = {self.ours.name: [], self.theirs.name: []}
        for _ in range(self.rounds):
            for side in (self.ours, self.theirs):
                with running(side, settle=self.settle):
                    result = self.load.measure(side.target, case, seconds=case.duration(self.seconds), warm=self.warm)
                results[side.name].append(result)
                if self.log is not None:
                    with self.log.open("a") as log:
                        log.write(json.dumps({"side": side.name, **result.document()}) + "\n")
        return results[self.ours.name], results[self.theirs.name]


def ratios(ours: Sequence[Result], theirs: Sequence[Result], figure: Callable[[Result], float]) -> list[float]:
    """Return the ratio of each round in which the other server has a nonzero figure."""
    return [figure(one) / figure(other) for one, other in zip(ours, theirs, strict=True) if figure(other)]


def row(ours: Sequence[Result], theirs: Sequence[Result]) -> str:
    """Return the row of a case: the medians of both servers, and the median of the rounds' ratios."""
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
    errors = sum(seen["errors"] for seen in failed)
    problem = f" **{errors} errors: {failed[0].get('problem', '')}**" if failed else ""
    return "| " + " | ".join(cells) + " |" + problem


def table(rows: Sequence[str]) -> str:
    return "\n".join([_HEADER, *rows])


def _middle(results: Sequence[Result], figure: Callable[[Result], float]) -> float:
    return statistics.median(figure(result) for result in results)


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f}" if values else ""


def _cpu(results: Sequence[Result]) -> list[float]:
    """Return the median of each group of processes: server, store."""
    return [statistics.median(result.cpu_us[group] for result in results) for group in results[0].cpu_us]


def _latency(ours: Sequence[Result], theirs: Sequence[Result], quantile: str) -> tuple[str, str]:
    """Return the cell of both medians, and that of the ratio."""

    def figure(result: Result) -> float:
        return float(result.seen.get("ms", {}).get(quantile, 0.0))

    both = ", ".join(f"{_middle(side, figure):.2f}" for side in (ours, theirs))
    return both, _median(ratios(ours, theirs, figure))


def _failure_row(case: Case, problem: str) -> str:
    first_line = problem.splitlines()[0][:200] if problem else "?"
    return f"| {case.title} | **failed: {first_line}** |" + " |" * 9
