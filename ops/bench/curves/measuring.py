"""The curves: what is put on which server at each place of the axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import trio

from kubechronicle.ops.bench import copies
from kubechronicle.ops.bench.curves import lengths, points, servers
from kubechronicle.ops.bench.curves.bench import EVENTS_A_SECOND, Bench, at_rest, create, event, get
from kubechronicle.ops.bench.curves.points import Point
from kubechronicle.ops.bench.own_server import Place

BUSY_WATCHERS = 1000  # those beyond hear nothing
LONGEST_LIST = 100_000  # objects in one answer: a million would be 1.4 GB
NAMESPACE = "bench-objects"


def objects(bench: Bench, places: Sequence[int]) -> Iterator[Point]:
    with ExitStack() as stack:
        place: Place | None = None

        def cost(x: int) -> float:
            return 10 + x / (25_000 if bench.filled("objects", x) else 2500) + 5 * bench.seconds

        for x in bench.within("objects", places, cost):
            if filled := bench.filled("objects", x):
                with bench.place(filled) as one:
                    yield from _of_objects(bench, one, x)
                continue
            if place is None:
                place = stack.enter_context(bench.place())
                with place.serving() as running:
                    yield at_rest(running, "objects", 0)
                    running.put(mode="fill", namespace=NAMESPACE, count=1, size=1024)
            trio.run(_copy, place.data_dir, x)
            yield from _of_objects(bench, place, x)


def _of_objects(bench: Bench, place: Place, x: int) -> Iterator[Point]:
    with place.serving() as running:
        yield at_rest(running, "objects", x)
        yield get(bench, running, "objects", x, points.GET, 16)
        flags = {"mode": "list", "namespace": NAMESPACE}
        if x >= 500:
            page = {"query": "limit=500", "count": 500}
            yield bench.put(running, "objects", x, points.PAGE, **flags, **page)
        if x <= LONGEST_LIST:
            yield bench.put(running, "objects", x, points.ALL, **flags, count=x)
        yield create(bench, running, "objects", x, points.CREATE, 16)
        yield event(bench, running, "objects", x, points.EVENT_100, 100)


async def _copy(data_dir: Path, count: int) -> None:
    await copies.fill(data_dir, namespace=NAMESPACE, count=count)


def watchers(bench: Bench, places: Sequence[int]) -> Iterator[Point]:
    with bench.place() as place, place.serving() as running:
        yield at_rest(running, "watchers", 0)
        for x in bench.within("watchers", places, lambda x: 2 + x / 100 + bench.seconds):
            busy = min(x, BUSY_WATCHERS)
            load = {"mode": "fanout", "watchers": busy, "idle": x - busy, "rate": EVENTS_A_SECOND, "size": 1024}
            yield bench.put(running, "watchers", x, points.EVENT, namespace=f"bench-watch-{x}", **load)


def writers(bench: Bench, places: Sequence[int]) -> Iterator[Point]:
    with bench.place() as place, place.serving() as running:
        for x in bench.within("writers", places, lambda x: 2 + bench.seconds):
            yield create(bench, running, "writers", x, points.WRITERS, x)


def workers(bench: Bench, places: Sequence[int]) -> Iterator[Point]:
    """Processes of one server, on its port and its database; a watcher hears of a write by any of them."""
    with bench.place() as place:
        for x in bench.within("workers", places, lambda x: 10 + x + 3 * bench.seconds):
            with place.serving(workers=x) as running:
                yield at_rest(running, "workers", x)
                yield get(bench, running, "workers", x, points.GET_64, 64)
                yield create(bench, running, "workers", x, points.CREATE_64, 64)
                yield event(bench, running, "workers", x, points.EVENT_100, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """``upto``: the farthest place, unless another is asked for."""

    measure: Callable[[Bench, Sequence[int]], Iterator[Point]]
    places: tuple[int, ...]
    upto: int


CURVES: Mapping[str, Curve] = {
    "objects": Curve(measure=objects, places=(1000, 10_000, 90_000, 100_000, 300_000, 1_000_000), upto=100_000),
    "watchers": Curve(measure=watchers, places=(1, 10, 100, 1000, 5000), upto=5000),
    "writers": Curve(measure=writers, places=(1, 4, 16, 64, 256), upto=256),
    "log": Curve(measure=lengths.log, places=(10_000, 100_000, 1_000_000, 3_000_000, 10_000_000), upto=1_000_000),
    "workers": Curve(measure=workers, places=(1, 2, 3, 4), upto=4),
    "replicas": Curve(measure=servers.replicas, places=(1, 2, 3, 4), upto=4),
}
