"""A point of a curve, stored as a line of JSON, and the figures of the reference at the same position.

This module imports only the standard library, because another Python draws the pictures (draw.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

REFERENCE = "kube-apiserver 1.36.2 + etcd 3.6"
KINE = "kube-apiserver on kine + Postgres"
OURS = "kubechronicle"

GET = "GET 4 KB, 16 conn."
CREATE = "create 1 KB, 16 conn."
PAGE = "LIST, a page of 500"
ALL = "LIST of all"
AT_REST = "at rest"
EVENT = "event to a watcher"
WRITERS = "create 1 KB"
PAST = "GET at a past revision"
PAST_LIST = "LIST of 50 deployments at a past revision"
PAST_PAGE = "LIST of pods at a past revision, a page of 100"
TIMELINE = "an object's last 20 changes"
DELETED = "who deleted a namespace's last pod"
BETWEEN = "500 changes from a time on"
VERIFY = "verify, of a revision"
GET_64 = "GET 4 KB, 64 conn."
CREATE_64 = "create 1 KB, 64 conn."
EVENT_100 = "event to one of 100 watchers"
EVENT_ELSEWHERE = "event to a watcher, written at another server"
EVENTS_ELSEWHERE = "event to one of 100 watchers, written at another server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measurement. Fields that were not measured are None or empty.

    ``x``: the position on the curve's axis
    ``cpu_us``: microseconds of server and store per operation
    ``rate``: operations per second
    ``p50``, ``p99``: latency in milliseconds
    ``memory``: MiB of server and store
    ``ready``: seconds from exec
    ``cores``: cores used by server, store and load generator
    ``disk``: the share of the time the disk was busy
    ``end``: the bottleneck
    ``stored``: bytes per revision on disk, of rows and of indexes
    """

    curve: str
    x: float
    work: str
    source: str = OURS
    cpu_us: tuple[float, float] | None = None
    rate: float | None = None
    p50: float | None = None
    p99: float | None = None
    memory: tuple[float, float] | None = None
    ready: float | None = None
    cores: Mapping[str, float] = field(default_factory=dict)
    disk: float | None = None
    end: str = ""
    stored: tuple[float, float] | None = None
    errors: int = 0
    problem: str = ""

    def document(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def point(document: Mapping[str, Any]) -> Point:
    """Return the point of a line of JSON."""
    pairs = {name: tuple(document[name]) for name in ("cpu_us", "memory", "stored") if document.get(name) is not None}
    return Point(**{**document, **pairs})


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """The axis of a curve. ``panels``: the fields of Point in its picture."""

    title: str
    along: str
    panels: tuple[str, ...]


AXES: Mapping[str, Axis] = {
    "objects": Axis(title="Objects", along="ConfigMaps of 1 KB", panels=("cpu_us", "p50", "memory", "ready")),
    "watchers": Axis(title="Watchers", along="watchers × 50 creates/s", panels=("cpu_us", "p50", "rate", "memory")),
    "writers": Axis(title="Writers", along="connections that create", panels=("cpu_us", "p50", "rate", "memory")),
    "log": Axis(title="Length of the log", along="revisions", panels=("cpu_us", "p50", "memory", "ready")),
    "workers": Axis(title="Workers", along="worker processes", panels=("cpu_us", "p50", "rate", "memory")),
    "replicas": Axis(title="Replicas", along="servers on one Postgres", panels=("cpu_us", "p50", "rate", "memory")),
}


def _reference(curve: str, x: float, work: str, **figures: Any) -> Point:
    return Point(curve=curve, x=x, work=work, source=REFERENCE, **figures)


def _kine(curve: str, x: float, work: str, **figures: Any) -> Point:
    return Point(curve=curve, x=x, work=work, source=KINE, **figures)


# The CPU of lists is that of kube-apiserver and etcd together. A page of 500 is a twentieth of 10,000 in pages.
REFERENCES: tuple[Point, ...] = (
    _reference("objects", 1000, GET, cpu_us=(269, 67), rate=4095, p50=3.4, p99=12),
    _reference("objects", 1000, CREATE, cpu_us=(568, 184), rate=2080, p50=6.7),
    _reference("objects", 1000, ALL, cpu_us=(7_800, 0), p50=10.1),
    _reference("objects", 10_000, ALL, cpu_us=(94_000, 0), p50=95),
    _reference("objects", 90_000, ALL, cpu_us=(690_000, 0), p50=700),
    _reference("objects", 10_000, PAGE, cpu_us=(6_550, 0), p50=6.95),
    _reference("objects", 0, AT_REST, memory=(278, 40), ready=1.9),
    _reference("objects", 10_000, AT_REST, memory=(375, 66)),
    _reference("objects", 100_000, AT_REST, memory=(1270, 123), ready=1.9),
    _reference("objects", 1000, EVENT_100, cpu_us=(28, 8), rate=5000, p50=2.2, p99=7.3),
    _reference("watchers", 100, EVENT, cpu_us=(28, 8), rate=5000, p50=2.2, p99=7.3),
    _reference("watchers", 1000, EVENT, cpu_us=(16.4, 0.8), rate=50_000, p50=20.7, p99=61.6),
    _reference("writers", 1, WRITERS, cpu_us=(858, 452), rate=850, p50=1.04, p99=3.6),
    _reference("writers", 16, WRITERS, cpu_us=(568, 184), rate=2080, p50=6.7),
    _reference("writers", 64, WRITERS, cpu_us=(479, 133), rate=2630, p50=22),
    _reference("workers", 1, GET_64, cpu_us=(286, 58), rate=3850, p50=15, p99=46),
    _reference("replicas", 1, GET_64, cpu_us=(286, 58), rate=3850, p50=15, p99=46),
    _reference("workers", 1, CREATE_64, cpu_us=(479, 133), rate=2630, p50=22),
    _reference("replicas", 1, CREATE_64, cpu_us=(479, 133), rate=2630, p50=22),
    _reference("workers", 1, EVENT_100, cpu_us=(28, 8), rate=5000, p50=2.2, p99=7.3),
    _kine("objects", 1000, GET, rate=1277),
    _kine("objects", 1000, CREATE, rate=849),
    _kine("objects", 10_000, ALL, p50=421),
    _kine("watchers", 1000, EVENT, rate=38_000, p50=38, p99=93),
    _kine("writers", 1, WRITERS, rate=318),
    _kine("writers", 16, WRITERS, rate=849),
    _kine("writers", 64, WRITERS, rate=609),
    _kine("workers", 1, GET_64, rate=959),
    _kine("replicas", 1, GET_64, rate=959),
    _kine("workers", 1, CREATE_64, rate=609),
    _kine("replicas", 1, CREATE_64, rate=609),
)
