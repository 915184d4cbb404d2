"""The benchmarks of scaling: their conclusions from measurements, and each load once with tiny numbers."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from kubechronicle.ops.bench import copies, idle, nodes, own_server, stacks
from kubechronicle.ops.bench.curves import __main__ as curves
from kubechronicle.ops.bench.curves import points
from kubechronicle.ops.bench.curves.bench import Bench
from kubechronicle.ops.bench.curves.measuring import CURVES
from kubechronicle.ops.bench.curves.points import AXES, REFERENCES, Point, point
from kubechronicle.ops.bench.curves.table import reference, row, table
from kubechronicle.ops.bench.measure import Load
from kubechronicle.ops.bench.own_server import Measured, Workspace
from kubechronicle.ops.bench.usage import Sample, Usage, between

USAGE = Usage(
    seconds=10,
    cpu={"server": 5, "postgres": 1, "load": 2},
    busiest={"server": 0.5, "postgres": 0.1},
    machine=0.4,
    disk=0.05,
    grown=1_000_000,
)
POINT = Point(curve="writers", x=16, work=points.WRITERS, cpu_us=(400, 100), rate=2500, p50=5, p99=9, memory=(80, 40))


def sample(at: float, *, server: dict[int, float], disk: float = 0, stored: int = 0) -> Sample:
    cpu = {"server": sum(server.values())}
    return Sample(at=at, cpu=cpu, own={"server": server}, machine=at, disk=disk, stored=stored, memory={"server": 1})


# Bottlenecks


def test_usage_between_two_samples_has_the_busiest_process() -> None:
    usage = between(sample(1, server={1: 1.0, 2: 5.0}), sample(3, server={1: 1.5, 2: 6.9}, disk=0.2, stored=7))
    assert usage.cores("server") == pytest.approx(1.2)
    assert usage.busiest["server"] == pytest.approx(0.95)
    assert (usage.disk, usage.grown) == (pytest.approx(0.1), 7)


@pytest.mark.parametrize(
    ("change", "workers", "bottleneck"),
    [
        ({}, 1, ""),
        ({"busiest": {"server": 0.95}}, 1, "a core of the server"),
        ({"busiest": {"server": 0.95}}, 2, ""),
        ({"cpu": {"server": 19}}, 2, "the servers' cores"),
        ({"busiest": {"postgres": 0.9}, "disk": 0.99}, 1, "a session of Postgres, the disk"),
        ({"machine": 1.0, "cpu": {"server": 900, "load": 900}}, 1, "all cores of the machine"),
        ({"machine": 1.0, "cpu": {"server": 0.1}}, 1, "the machine, which other programs use"),
    ],
)
def test_the_bottleneck_is_named(change: dict[str, Any], workers: int, bottleneck: str) -> None:
    assert replace(USAGE, **change).bottleneck(workers=workers) == bottleneck


# Curves


def test_each_curve_has_an_axis_and_its_references_lie_on_it() -> None:
    assert CURVES.keys() == AXES.keys()
    for known in REFERENCES:
        assert known.x in {0, *CURVES[known.curve].positions}


def test_a_point_is_read_back_and_printed_with_the_reference() -> None:
    assert point(POINT.document()) == POINT
    assert reference(POINT) == "568 µs + 184 µs, 2,080/s, p50 6.70"
    failed = replace(POINT, x=3, errors=2, problem="refused")
    lines = table("writers", [POINT, failed]).splitlines()
    assert lines[2].startswith("| 16 | create 1 KB | 400 µs + 100 µs | 2,500/s | 5.00 | 9.00 | 80 + 40 |")
    assert lines[3].endswith("**2 errors: refused**")
    assert "on kine + Postgres" in lines[5]
    assert "create 1 KB at 64: 609/s." in lines[5]
    assert len(row(POINT)) == lines[0].count("|") - 1


def test_positions_are_selected_and_skipped_without_time() -> None:
    assert curves.positions("objects", curves.parse_arguments([])) == [1000, 10_000, 90_000, 100_000]
    assert curves.positions("objects", curves.parse_arguments(["--to", "10000"])) == [1000, 10_000]
    assert curves.positions("log", curves.parse_arguments(["--at", "5", "7"])) == [5, 7]
    with pytest.raises(SystemExit):
        curves.parse_arguments(["depth"])
    bench = Bench(load=Load(binary=Path("load")), seconds=1, warm=0, budget=5)
    assert list(bench.within("log", [1, 2, 9], lambda x: x)) == [1, 2]
    assert bench.skipped == ["log at 9: takes longer than the rest of 5 s"]


def test_pictures_are_drawn(tmp_path: Path) -> None:
    if not curves.DRAWING_PYTHON.exists():
        pytest.skip("no Python with matplotlib: make .cache/bench/made")
    file = tmp_path / "curves.jsonl"
    arguments = ["--json", str(file), "--pictures", str(tmp_path / "pictures")]
    file.write_text("".join(f"{line}\n" for line in map(_line, (POINT, replace(POINT, x=64), replace(POINT, x=0)))))
    curves.draw(curves.parse_arguments(arguments))
    (tmp_path / "samples").write_text("serve (kubechronicle/http/listener.py:3);send (ssl.py:1) 7\n")
    flames = [curves.DRAWING_PYTHON, "-m", "kubechronicle.ops.bench.flames", tmp_path / "samples", tmp_path / "f.svg"]
    subprocess.run([*flames, "GET"], cwd=own_server.ROOT, check=True)
    assert "connections that create" in (tmp_path / "pictures" / "scaling-writers.svg").read_text()
    assert "send (ssl)" in (tmp_path / "f.svg").read_text()


def _line(point: Point) -> str:
    return json.dumps(point.document())


# Profiles


def test_frames_lose_the_paths_of_the_machine() -> None:
    assert stacks.short("run.<locals>.go (/home/me/kubechronicle/kubechronicle/http/h.py:12)") == "run.go (http/h)"
    assert stacks.short("wait (/x/kubechronicle/.venv/lib/python3.11/site-packages/trio/_core/_run.py)") == (
        "wait (trio/_core/_run)"
    )
    assert stacks.short("send (/usr/lib/python3.11/ssl.py:5)") == "send (ssl)"
    assert stacks.short("[native]") == "[native]"


def test_stacks_are_merged_without_common_outer_frames() -> None:
    seen = stacks.samples(["main (m.py:1);a (http/a.py:2);b (ssl.py:3) 600", "main (m.py:1);c (api/c.py:4) 399", "x 1"])
    root = stacks.tree(seen)
    assert root.name == "main (m)"
    assert [(frame.name, frame.count) for frame in root.inner()] == [("a (http/a)", 600), ("c (api/c)", 399)]
    assert stacks.depth(root) == 3
    assert stacks.shares(seen)[:2] == [("ssl", 0.6), ("api", 0.399)]
    assert stacks.tree(Counter()).count == 0


# Nodes and idleness


def test_memory_levels_off_or_keeps_growing() -> None:
    assert idle.levels([100, 120, 121, 119])
    assert not idle.levels([100, 110, 120, 130])
    assert idle.levels([])


def test_a_large_cluster_is_extrapolated_from_a_small_one() -> None:
    """10 nodes at 10 times the normal rate used half a core: 5,000 need 25."""
    seen = {"operations": 110, "errors": 0, "kinds": {"lease": {"operations": 100}}}
    result = nodes.Result(
        nodes=10,
        pods_per_node=3,
        compress=10,
        seconds=10,
        empty={"server": 10},
        filled=sample(0, server={1: 0}),
        connected=sample(1, server={1: 0}),
        measured=Measured(usage=USAGE, memory={"server": 20}, seen=seen),
    )
    assert result.kept_up == 1
    forecast = nodes.forecast(result)
    assert "550 requests per second: 25.00 cores for the server (36 workers" in forecast
    assert (
        "one core for the server at 200, one core for Postgres' busiest session at 1,000, the disk at 2,000" in forecast
    )


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    try:
        load = own_server.load_generator()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"the load generator cannot be built here: {error}")
    with own_server.workspace(load, settle=0) as workspace:
        yield workspace


def test_every_load_runs_with_tiny_numbers(workspace: Workspace) -> None:
    bench = Bench(load=workspace.load, seconds=0.3, warm=0.1, budget=60, settle=0)
    with workspace.serving() as running:
        flags = ["--nodes", "3", "--pods-per-node", "2", "--compress", "30", "--seconds", "1", "--warm", "0"]
        result = nodes.measure(running, nodes.parse_arguments([*flags, "--pod-life", "30"]))
        assert not result.measured.seen["errors"], result.measured.seen
        assert {"lease", "pod create", "pod bind", "pod delete", "event"} <= result.measured.seen["kinds"].keys()
        assert "5,000 nodes with 150,000 pods" in nodes.forecast(result)
        assert nodes.table(result).count("\n") >= 8
        assert result.grown >= 0

        options = idle.parse_arguments(["--informers", "2", "--seconds", "0.3", "--warm", "0", "--rounds", "1"])
        options.objects, options.nodes, options.hours, options.minutes = 16, 2, 0.2, 0.03
        quiet = idle.idle(running, options)
        assert (quiet.watches, quiet.ended) == (60, 0)
        lived = idle.hours(running, options)
        assert (lived.seen["errors"], lived.seen["problem"]) == (0, "")
        assert {"lease", "election"} <= lived.seen["kinds"].keys()
        assert lived.seen["turned"] > 0
        assert "idle cluster of 2 nodes" in idle.hours_lines(lived)
        (churned,) = idle.rounds(running, options)
        assert (churned.errors, churned.problem) == (0, "")
        assert "1 |" in idle.table([churned], 16)

        fanned = bench.measure(
            running, "watchers", 5, points.EVENT, namespace="tiny", mode="fanout", watchers=2, idle=3, rate=20
        )
        assert (fanned.errors, fanned.rate is not None and fanned.rate > 0) == (0, True)
        failed = bench.measure(running, "watchers", 5, points.EVENT, namespace="tiny", mode="nonsense")
        assert "no such mode" in failed.problem
        assert running.run_load(mode="fill", namespace="copied", count=1, size=100).seen["errors"] == 0
    trio.run(partial(copies.fill, workspace.data_dir, namespace="copied", count=30))
    with workspace.serving() as running:
        listed = bench.measure(running, "objects", 30, points.ALL, mode="list", namespace="copied", count=30)
        assert not listed.errors, listed.problem
        assert listed.cpu_us is not None
        assert listed.memory is not None
        assert min(listed.memory) > 1
