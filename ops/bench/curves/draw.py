"""``python -m kubechronicle.ops.bench.curves.draw FILE DIR``: draw each curve of a file of JSON lines (SVG).

Runs with the Python in .cache/bench, which has matplotlib (`make bench-curves` makes it), and imports nothing of the
server. Later lines of the file replace earlier ones of the same point, so that a curve can be measured again, or
extended, into the same file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from kubechronicle.ops.bench.curves.points import AXES, KINE, OURS, REFERENCE, REFERENCES, Point, point

LABELS = {
    "cpu_us": "CPU per operation, server + Postgres (µs)",
    "p50": "latency (ms): median, dashed 99th percentile",
    "rate": "operations a second",
    "memory": "memory, server + Postgres (MiB)",
    "ready": "exec to ready (s)",
}
MARKS = {REFERENCE: "X", KINE: "P"}


def read(lines: Iterable[str]) -> dict[str, list[Point]]:
    """Return the newest points by curve, in order of their positions."""
    newest: dict[tuple[str, float, str], Point] = {}
    for line in lines:
        each = point(json.loads(line))
        newest[each.curve, each.x, each.work] = each
    curves: dict[str, list[Point]] = {}
    for each in sorted(newest.values(), key=lambda each: each.x):
        curves.setdefault(each.curve, []).append(each)
    return curves


def value(point: Point, panel: str) -> float | None:
    """Return the value of a point in a panel; of a pair, the sum."""
    figure = getattr(point, panel)
    return sum(figure) if isinstance(figure, tuple) else figure


def series(points: Sequence[Point], panel: str) -> tuple[list[float], list[float]]:
    pairs = [(each.x, y) for each in points if each.x > 0 and (y := value(each, panel)) is not None]
    return [x for x, _ in pairs], [y for _, y in pairs]


def picture(curve: str, points: Sequence[Point]) -> Figure:
    axis = AXES[curve]
    figure = Figure(figsize=(10, 7), layout="constrained")
    figure.suptitle(f"{axis.title}: {OURS}; where measured, {REFERENCE} (×), {KINE} (+)", fontsize=10)
    works = list(dict.fromkeys(each.work for each in points))
    colours = {work: f"C{number}" for number, work in enumerate(works)}
    for number, panel in enumerate(axis.panels, 1):
        plot = figure.add_subplot(2, 2, number)
        _panel(plot, panel, points, colours)
        plot.set_xlabel(axis.along, fontsize=8)
        plot.set_title(LABELS[panel], fontsize=9)
    # One legend for all panels, below them, where it covers no lines.
    named: dict[str, Any] = {}
    for plot in figure.axes:
        for line, work in zip(*plot.get_legend_handles_labels(), strict=True):
            named.setdefault(work, line)
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=3, fontsize=7)
    return figure


def _panel(plot: Any, panel: str, points: Sequence[Point], colours: Mapping[str, str]) -> None:
    curve, positions = points[0].curve, sorted({each.x for each in points if each.x > 0})
    for work, colour in colours.items():
        if panel == "memory" and work != "at rest" and "at rest" in colours and curve != "watchers":
            continue  # almost the same after each load
        own = [one for one in points if one.work == work and not one.errors]
        x, y = series(own, panel)
        if x:
            plot.plot(x, y, "o-", color=colour, label=work, markersize=4)
        if panel == "p50":
            plot.plot(*series(own, "p99"), "--", color=colour, linewidth=0.8)
        for source, mark in MARKS.items():
            known = [one for one in REFERENCES if (one.curve, one.work, one.source) == (curve, work, source)]
            plot.plot(*series(known, panel), mark, color=colour, markersize=8, markeredgecolor="black")
    if len(positions) > 1 and positions[-1] / positions[0] > 8:
        plot.set_xscale("log")
    # Of neighbours whose labels would overlap, only the larger one has a label.
    following = [*positions[1:], None]
    labelled = [x for x, after in zip(positions, following, strict=True) if after is None or after > 1.2 * x]
    plot.set_xticks(labelled, [f"{x:,.0f}" for x in labelled])
    plot.minorticks_off()
    low, high = plot.dataLim.intervaly
    if 0 < low < high / 8:
        plot.set_yscale("log")
    else:
        plot.set_ylim(bottom=0)
    plot.yaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    plot.grid(visible=True, which="major", linewidth=0.4)
    plot.tick_params(labelsize=7, which="both")


def main(argv: Sequence[str] | None = None) -> int:
    file, directory = (Path(argument) for argument in (sys.argv[1:] if argv is None else argv))
    directory.mkdir(parents=True, exist_ok=True)
    # Keep text as text, and make the output reproducible.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "kubechronicle", "font.family": "sans-serif"})
    for curve, points in read(file.read_text().splitlines()).items():
        target = directory / f"scaling-{curve}.svg"
        picture(curve, points).savefig(target, format="svg", metadata={"Date": None, "Creator": None})
        print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
