"""``python -m kubechronicle.ops.bench.curves.draw FILE DIR``: a picture (SVG) for each curve of a file of JSON lines.

Runs with a Python of its own that has matplotlib (`make bench-curves` makes it in .cache/bench), and imports nothing
that only the server's has. Later lines of the file replace earlier ones of the same point, so that a curve may be
measured again, or farther, into the same file.
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
    """The newest of each point, by curve, in order of places."""
    found: dict[tuple[str, float, str], Point] = {}
    for line in lines:
        one = point(json.loads(line))
        found[one.curve, one.x, one.work] = one
    curves: dict[str, list[Point]] = {}
    for one in sorted(found.values(), key=lambda one: one.x):
        curves.setdefault(one.curve, []).append(one)
    return curves


def value(of: Point, panel: str) -> float | None:
    """Pairs are told as their sums."""
    figure = getattr(of, panel)
    return sum(figure) if isinstance(figure, tuple) else figure


def series(points: Sequence[Point], panel: str) -> tuple[list[float], list[float]]:
    pairs = [(one.x, found) for one in points if one.x > 0 and (found := value(one, panel)) is not None]
    return [x for x, _ in pairs], [y for _, y in pairs]


def picture(curve: str, points: Sequence[Point]) -> Figure:
    axis = AXES[curve]
    figure = Figure(figsize=(10, 7), layout="constrained")
    figure.suptitle(f"{axis.title}: {OURS}, and where there are figures {REFERENCE} (×), {KINE} (+)", fontsize=10)
    works = list(dict.fromkeys(one.work for one in points))
    colours = {work: f"C{number}" for number, work in enumerate(works)}
    for place, panel in enumerate(axis.panels):
        plot = figure.add_subplot(2, 2, place + 1)
        _panel(plot, panel, points, colours)
        plot.set_xlabel(axis.along, fontsize=8)
        plot.set_title(LABELS[panel], fontsize=9)
    # One for all four, below them: within a panel it would lie on its lines.
    named: dict[str, Any] = {}
    for plot in figure.axes:
        for line, work in zip(*plot.get_legend_handles_labels(), strict=True):
            named.setdefault(work, line)
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=3, fontsize=7)
    return figure


def _panel(plot: Any, panel: str, points: Sequence[Point], colours: Mapping[str, str]) -> None:
    curve, places = points[0].curve, sorted({one.x for one in points if one.x > 0})
    for work, colour in colours.items():
        if panel == "memory" and work != "at rest" and "at rest" in colours and curve != "watchers":
            continue  # after a load it is the same again, and a little that load left
        own = [one for one in points if one.work == work and not one.errors]
        x, y = series(own, panel)
        if x:
            plot.plot(x, y, "o-", color=colour, label=work, markersize=4)
        if panel == "p50":
            plot.plot(*series(own, "p99"), "--", color=colour, linewidth=0.8)
        for source, mark in MARKS.items():
            there = [one for one in REFERENCES if (one.curve, one.work, one.source) == (curve, work, source)]
            plot.plot(*series(there, panel), mark, color=colour, markersize=8, markeredgecolor="black")
    if len(places) > 1 and places[-1] / places[0] > 8:
        plot.set_xscale("log")
    # Of neighbours whose names would lie on each other, the farther one has its name.
    told = [x for x, after in zip(places, [*places[1:], None], strict=True) if after is None or after > 1.2 * x]
    plot.set_xticks(told, [f"{x:,.0f}" for x in told])
    plot.minorticks_off()
    low, high = plot.dataLim.intervaly
    if 0 < low < high / 8:
        plot.set_yscale("log")
    else:
        plot.set_ylim(bottom=0)
    plot.yaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    plot.grid(visible=True, which="major", linewidth=0.4)
    plot.tick_params(labelsize=7, which="both")


def main(given: Sequence[str] | None = None) -> int:
    file, directory = (Path(argument) for argument in (sys.argv[1:] if given is None else given))
    directory.mkdir(parents=True, exist_ok=True)
    # Text as text, and the same bytes for the same figures.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "kubechronicle", "font.family": "sans-serif"})
    for curve, points in read(file.read_text().splitlines()).items():
        target = directory / f"scaling-{curve}.svg"
        picture(curve, points).savefig(target, format="svg", metadata={"Date": None, "Creator": None})
        print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
