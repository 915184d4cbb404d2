"""A curve as Markdown, each point beside what the reference needed there."""

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
    "at its end",
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
    stored = [f"{one.stored[0]:,.0f} + {one.stored[1]:,.0f} at {one.x:,.0f}" for one in points if one.stored]
    if stored:
        lines += ["", f"Bytes of a revision on disk, rows + indexes: {'; '.join(stored)}."]
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


def figures(of: Point) -> str:
    """Those it has, in one cell."""
    parts = [
        pair(of.cpu_us),
        rate(of.rate),
        f"p50 {milliseconds(of.p50)}" if of.p50 is not None else "",
        f"p99 {milliseconds(of.p99)}" if of.p99 is not None else "",
        f"{mebibytes(of.memory)} MiB" if of.memory is not None else "",
        f"{of.ready} s" if of.ready is not None else "",
    ]
    return ", ".join(part for part in parts if part)


def reference(point: Point) -> str:
    """What it needed for the same; empty where nobody has measured it."""
    for known in REFERENCES:
        if _is(known, point.curve, REFERENCE) and (known.x, known.work) == (point.x, point.work):
            return figures(known)
    return ""
