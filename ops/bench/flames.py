"""``python -m kubechronicle.ops.bench.flames FILE PICTURE TITLE``: draw samples of stacks as a flame graph (SVG).

The width of a frame is its share of the samples. The functions it called are above it. Runs with the Python in
.cache/bench, as curves/draw.py does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from kubechronicle.ops.bench.stacks import Frame, depth, owner, samples, tree

WIDTH, ROW = 12.0, 0.17  # inches
LETTERS = 17.5  # per inch
COLOURS = {"http": "#f4a582", "actors": "#92c5de", "eventlog": "#a6dba0", "api": "#fddbc7", "ops": "#d9d9d9"}
FOREIGN = "#e7e1ef"  # libraries and the standard library


def picture(root: Frame, title: str) -> Figure:
    rows = depth(root)
    figure = Figure(figsize=(WIDTH, ROW * (rows + 2)))
    plot = figure.add_axes((0.0, 0.0, 1.0, rows / (rows + 2)))
    plot.set_xlim(0, root.count)
    plot.set_ylim(0, rows)
    plot.set_axis_off()
    height = 1 - 0.8 / (rows + 2)
    figure.text(0.005, height, f"{title}: {root.count:,} samples", fontsize=8, va="center")
    for index, (folder, colour) in enumerate([*COLOURS.items(), ("libraries", FOREIGN)]):
        figure.text(0.6 + 0.07 * index, height, f"{folder:^9}", fontsize=6, va="center", backgroundcolor=colour)
    _draw(plot, root, 0, 0, root.count)
    return figure


def _draw(plot: Axes, frame: Frame, left: float, row: int, total: int) -> None:
    colour = COLOURS.get(owner([frame.name]), FOREIGN)
    plot.add_patch(Rectangle((left, row), frame.count, 1, facecolor=colour, edgecolor="white", linewidth=0.4))
    letters = int(frame.count / total * WIDTH * LETTERS)
    if letters >= 4:
        name = frame.name if len(frame.name) <= letters else frame.name[: letters - 1] + "…"
        plot.text(left + total * 0.001, row + 0.45, name, fontsize=5.5, va="center")
    for inner in frame.inner():
        _draw(plot, inner, left, row + 1, total)
        left += inner.count


def main(argv: Sequence[str] | None = None) -> int:
    file, target, title = sys.argv[1:] if argv is None else argv
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "kubechronicle", "font.family": "monospace"})
    root = tree(samples(Path(file).read_text().splitlines()))
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    picture(root, title).savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    return 0


if __name__ == "__main__":
    sys.exit(main())
