"""A curve as a Markdown table, with the figures of the reference at each point."""

from __future__ import annotations

from collections.abc import Sequence

from kubechronicle.ops.bench.curves.points import AXES, KINE, REFERENCE, REFERENCES, Point
from kubechronicle.ops.bench.report import microseconds

_COLUMNS = (
    "work",
    "CPU/op: server + Postgres",
    "rate",
    "p50 ms",
    "p99 ms",
    "MiB: server + Postgres",
    "ready after",
    "cores busy: server + Postgres + load",
    "disk",
    "bottleneck",
    REFERENCE,
)


def table(curve: str, points: Sequence[Point]) -> str:
    header = (AXES[curve].along, *_COLUMNS)
    lines = [_line(header), "|" + "---|" * len(header)]
    for point in points:
        lines.append(_line(row(point)) + (f" **{point.errors} errors: {point.problem[:200]}**" if point.errors else ""))
    kine = [f"{known.work} at {known.x:,.0f}: {figures(known)}" for known in REFERENCES if _is(known, curve, KINE)]
    if kine:
        lines += ["", f"{KINE}, one rough run on such a machine: {'; '.join(kine)}."]
    stored = [f"{each.stored[0]:,.0f} + {each.stored[1]:,.0f} at {each.x:,.0f}" for each in points if each.stored]
    if stored:
        lines += ["", f"Bytes per revision on disk, rows + indexes: {'; '.join(stored)}."]
    return "\n".join(lines)


def _is(point: Point, curve: str, source: str) -> bool:
    return point.curve == curve and point.source == source


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def row(point: Point) -> list[str]:
    cores = [f"{point.cores[group]:.2f}" for group in ("server", "postgres", "load") if group in point.cores]
    return [
        f"{point.x:,.0f}",
        point.work,
        pair(point.cpu_us),
        rate(point.rate),
        milliseconds(point.p50),
        milliseconds(point.p99),
        mebibytes(point.memory),
        f"{point.ready:.2f} s" if point.ready is not None else "",
        " + ".join(cores),
        f"{point.disk:.0%}" if point.disk is not None else "",
        point.end or ("waiting" if cores else ""),
        reference(point),
    ]


def pair(cpu_us: tuple[float, float] | None) -> str:
    return " + ".join(microseconds(value) for value in cpu_us or () if value)


def rate(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}/s" if value >= 100 else f"{value:.1f}/s"


def milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def mebibytes(memory: tuple[float, float] | None) -> str:
    return "" if memory is None else f"{memory[0]:,.0f} + {memory[1]:,.0f}"


def figures(point: Point) -> str:
    """Return the measured figures in one cell."""
    parts = [
        pair(point.cpu_us),
        rate(point.rate),
        f"p50 {milliseconds(point.p50)}" if point.p50 is not None else "",
        f"p99 {milliseconds(point.p99)}" if point.p99 is not None else "",
        f"{mebibytes(point.memory)} MiB" if point.memory is not None else "",
        f"{point.ready} s" if point.ready is not None else "",
    ]
    return ", ".join(part for part in parts if part)


def reference(point: Point) -> str:
    """Return the figures of the reference at the same position, "" without a measurement."""
    for known in REFERENCES:
        if _is(known, point.curve, REFERENCE) and (known.x, known.work) == (point.x, point.work):
            return figures(known)
    return ""
