"""The benchmark's report in Markdown, with the figures of the reference."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

from kubechronicle.ops.bench.cases import REFERENCE_EMPTY_MIB, REFERENCE_NAME, REFERENCE_READY_SECONDS, Case
from kubechronicle.ops.bench.measure import Result, median

_HERE = Path(__file__).resolve().parent
_HEADER = (
    f"| work | CPU/op: server + Postgres | range | {REFERENCE_NAME} | ratio | rate | p50 ms | p99 ms "
    "| reference saw | pace |\n|---|---|---|---|---|---|---|---|---|---|"
)


def microseconds(value: float) -> str:
    """Format with three significant digits, from 5 ms on in milliseconds."""
    if value >= 5_000:
        return f"{value / 1000:.1f} ms" if value < 100_000 else f"{value / 1000:.0f} ms"
    return f"{value:.0f} µs" if value >= 100 else f"{value:.1f} µs"


def pair(values: Sequence[float]) -> str:
    """Format the microseconds of server and store."""
    return " + ".join(microseconds(value) for value in values if value) or "0"


def rate(value: float) -> str:
    return f"{value:,.0f}/s" if value >= 100 else f"{value:.1f}/s"


def spread(results: Sequence[Result]) -> str:
    """Return the range of CPU per operation, server and Postgres together; empty for a single run."""
    totals = [result.total_us for result in results]
    return f"{microseconds(min(totals))} to {microseconds(max(totals))}" if len(totals) > 1 else ""


def row(results: Sequence[Result]) -> str:
    """Return the row of a case: the figures of the run with the median CPU."""
    result = median(results)
    case, seen = result.case, result.seen
    reference = case.reference_cpu
    times = seen.get("ms", {})
    ratio = f"{result.total_us / sum(reference):.2f}" if reference else ""
    cells = [
        case.title,
        pair(list(result.cpu_us.values())),
        spread(results),
        pair(reference) if reference else "",
        ratio,
        rate(seen["per_second"]),
        f"{times.get('p50', 0):.2f}",
        f"{times.get('p99', 0):.2f}",
        case.reference_wall,
        f"{result.pace:.1f}",
    ]
    line = "| " + " | ".join(cells) + " |"
    failed = [result.seen for result in results if result.seen["errors"]]
    errors = sum(seen["errors"] for seen in failed)
    return line + (f" **{errors} errors: {failed[0].get('problem', '')}**" if errors else "")


def failure_row(case: Case, problem: str) -> str:
    return f"| {case.title} | **failed: {problem.splitlines()[0][:200] if problem else '?'}** | | | | | | | | |"


def table(rows: Sequence[str]) -> str:
    return "\n".join([_HEADER, *rows])


def start_lines(*, ready_seconds: float, memory: Sequence[float]) -> str:
    """Return start-up time and memory of an empty server. ``memory``: MiB of server and Postgres."""
    return (
        f"Ready {ready_seconds:.2f} s after exec, on a new data directory (reference: {REFERENCE_READY_SECONDS} s). "
        f"Memory when empty: {memory[0]:.0f} + {memory[1]:.0f} MiB "
        f"(reference: {REFERENCE_EMPTY_MIB[0]} + {REFERENCE_EMPTY_MIB[1]} MiB)."
    )


def preamble(command: str, *, note: str) -> str:
    """Return machine, commit and command, to repeat the run."""
    return (
        f"Machine: {_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}. Commit: {commit()}. Command: `{command}`.\n{note}"
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def commit(checkout: Path = _HERE) -> str:
    """Return the commit of a checkout."""
    process = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=checkout, capture_output=True, text=True, check=False
    )
    return process.stdout.strip() or "unknown"
