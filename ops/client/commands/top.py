"""`top`: show what the server does at present, again and again.

The live view of `top`: two samples of /metrics become one screen of text.

No requests and no clock here. Rates are differences of counters over the time between the samples; a counter that fell
belongs to a server that was started anew, and counts from zero.
"""

from __future__ import annotations

import argparse
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kubechronicle.ops import terminal
from kubechronicle.ops.client import kubeconfig
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.session import connect
from kubechronicle.ops.errors import OperatorError

Labels = tuple[tuple[str, str], ...]
_SAMPLE: Final = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
ROWS: Final = 12
"""Rows of a table."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The metrics of one moment. ``time``: in seconds. ``values``: by name, then by labels."""

    time: float
    values: Mapping[str, Mapping[Labels, float]]

    def total(self, name: str, **wanted: str) -> float:
        return sum(value for _, value in self.each(name, **wanted))

    def each(self, name: str, **wanted: str) -> Iterator[tuple[dict[str, str], float]]:
        """Yield the samples of a metric whose labels have the wanted values."""
        for labels, value in self.values.get(name, {}).items():
            found = dict(labels)
            if all(found.get(key) == text for key, text in wanted.items()):
                yield found, value


def parse_sample(text: str, time: float) -> Sample:
    """Return the sample of a text in Prometheus' format."""
    values: defaultdict[str, dict[Labels, float]] = defaultdict(dict)
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is not None:
            labels = tuple((key, _plain(value)) for key, value in _LABEL.findall(match[2] or ""))
            values[match[1]][labels] = float(match[3])
    return Sample(time, values)


def _plain(text: str) -> str:
    return text.replace('\\"', '"').replace("\\n", " ").replace("\\\\", "\\")


class SampleDifference:
    """The changes between two samples."""

    def __init__(self, before: Sample, after: Sample) -> None:
        self._before, self.after = before, after
        self.seconds = max(after.time - before.time, 1e-9)

    def _grown(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        former = self._before.values.get(name, {})
        for labels, value in self.after.values.get(name, {}).items():
            before = former.get(labels, 0.0)
            yield dict(labels), value - before if value >= before else value

    def rate(self, name: str, **wanted: str) -> float:
        return sum(self.rates(name, (), **wanted).values())

    def rates(self, name: str, by: Sequence[str], **wanted: str) -> dict[tuple[str, ...], float]:
        """Return the growth a second of a counter, by the values of some labels."""
        found: defaultdict[tuple[str, ...], float] = defaultdict(float)
        for labels, grown in self._grown(name):
            if all(labels.get(key) == text for key, text in wanted.items()):
                found[tuple(labels.get(key, "") for key in by)] += grown / self.seconds
        return dict(found)

    def quantiles(self, name: str, by: Sequence[str], quantile: float) -> dict[tuple[str, ...], float]:
        """Return a quantile of a histogram's new values, by the values of some labels, in the histogram's unit."""
        buckets: defaultdict[tuple[str, ...], defaultdict[float, float]] = defaultdict(lambda: defaultdict(float))
        for labels, grown in self._grown(f"{name}_bucket"):
            buckets[tuple(labels.get(key, "") for key in by)][float(labels["le"])] += grown
        return {key: value for key, found in buckets.items() if (value := _quantile(found, quantile)) is not None}


def _quantile(buckets: Mapping[float, float], quantile: float) -> float | None:
    """Return the quantile, straight between the bounds of its bucket; None without values."""
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0.0
    if total <= 0:
        return None
    rank, below, counted = quantile * total, 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= rank:
            if bound == float("inf"):
                return below
            inside = buckets[bound] - counted
            return below + (bound - below) * ((rank - counted) / inside if inside else 1.0)
        below, counted = bound, buckets[bound]
    return below


def screen(found: SampleDifference, title: str) -> list[str]:
    """Return the lines of the view."""
    return [title, *_summary(found), "", *_requests(found), "", *_levels(found)]


def _summary(found: SampleDifference) -> Iterator[str]:
    after, rate = found.after, found.rate
    errors = sum(
        value for (code,), value in found.rates("apiserver_request_total", ("code",)).items() if code.startswith("5")
    )
    rejected = rate("apiserver_flowcontrol_rejected_requests_total")
    yield (
        f"requests   {rate('apiserver_request_total'):.1f}/s, errors {errors:.1f}/s, rejected {rejected:.1f}/s, "
        f"in flight: {after.total('apiserver_current_inflight_requests', request_kind='readOnly'):.0f} reads, "
        f"{after.total('apiserver_current_inflight_requests', request_kind='mutating'):.0f} writes"
    )
    yield (
        f"watches    {after.total('apiserver_registered_watchers'):.0f}, events "
        f"{rate('apiserver_watch_events_total'):.1f}/s, connections {after.total('kubechronicle_connections'):.0f}"
    )
    commits = [
        value
        for (operation,), value in found.rates("etcd_requests_total", ("operation",)).items()
        if operation in ("create", "update", "delete", "batch")
    ]
    slowest = [
        value
        for (operation,), value in found.quantiles("etcd_request_duration_seconds", ("operation",), 0.99).items()
        if operation in ("create", "update", "delete", "batch")
    ]
    revision = max((value for _, value in after.each("kubechronicle_applied_revision")), default=0)
    yield (
        f"log        revision {revision:.0f}, commits {sum(commits):.1f}/s, p99 {_time(max(slowest, default=None))}, "
        f"failures {rate('etcd_request_errors_total'):.1f}/s"
    )
    yield (
        f"process    CPU {100 * rate('process_cpu_seconds_total'):.0f} %, memory "
        f"{after.total('process_resident_memory_bytes') / 2**20:.0f} MiB, open files "
        f"{after.total('process_open_fds'):.0f}, restarts {after.total('kubechronicle_restarts_total'):.0f}"
    )


def _requests(found: SampleDifference) -> list[str]:
    by = ("verb", "resource", "subresource")
    rates = found.rates("apiserver_request_total", by)
    middle = found.quantiles("apiserver_request_duration_seconds", by, 0.5)
    slow = found.quantiles("apiserver_request_duration_seconds", by, 0.99)
    busiest = sorted((key for key in rates if rates[key] > 0), key=lambda key: -rates[key])[:ROWS]
    rows = [("REQUEST", "PER SECOND", "P50", "P99")]
    for key in busiest:
        verb, resource, subresource = key
        name = "/".join(part for part in (resource, subresource) if part)
        rows.append((f"{verb} {name}".strip(), f"{rates[key]:.1f}", _time(middle.get(key)), _time(slow.get(key))))
    return _table(rows)


def _levels(found: SampleDifference) -> list[str]:
    after, by = found.after, ("priority_level",)
    rejected = found.rates("apiserver_flowcontrol_rejected_requests_total", by)
    dispatched = found.rates("apiserver_flowcontrol_dispatched_requests_total", by)
    rows = [("PRIORITY LEVEL", "PER SECOND", "SEATS", "WAITING", "REJECTED PER SECOND")]
    for labels, limit in sorted(after.each("apiserver_flowcontrol_current_limit_seats"), key=lambda one: str(one[0])):
        name = labels["priority_level"]
        used = after.total("apiserver_flowcontrol_current_executing_seats", priority_level=name)
        waiting = after.total("apiserver_flowcontrol_current_inqueue_requests", priority_level=name)
        numbers = (f"{dispatched.get((name,), 0.0):.1f}", f"{used:.0f} of {limit:.0f}", f"{waiting:.0f}")
        rows.append((name, *numbers, f"{rejected.get((name,), 0.0):.1f}"))
    return _table(rows) if len(rows) > 1 else []


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _table(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return rows with aligned columns: the first to the left, numbers to the right."""
    listed = [list(row) for row in rows]
    widths = [max(len(row[column]) for row in listed) for column in range(len(listed[0]))]
    return ["  ".join([row[0].ljust(widths[0]), *(map(str.rjust, row[1:], widths[1:]))]).rstrip() for row in listed]


EXAMPLES: Final = """\
  kubectl chronicle top                    requests, log, process and priority levels, until Ctrl+C
  kubectl chronicle top --interval 10      over ten seconds each
  kubectl chronicle top --once             once, for a script
"""
SHORTEST, LONGEST, DEFAULT = 0.2, 3600.0, 2.0


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=float,
        default=DEFAULT,
        help=f"time of one view (default {DEFAULT:g})",
    )
    parser.add_argument("--once", action="store_true", help="show one view and end")
    kubeconfig.add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0, also after Ctrl+C."""
    if not SHORTEST <= arguments.interval <= LONGEST:
        raise OperatorError(f"--interval must be between {SHORTEST:g} and {LONGEST:g} seconds")
    target = kubeconfig.load(arguments)
    client, out = connect(target), terminal.stdout()
    before = _sample(client)
    try:
        while True:
            time.sleep(arguments.interval)
            after = _sample(client)
            hint = "" if arguments.once else "   Ctrl+C ends"
            title = f"{target.server.url}   over {arguments.interval:g} s{hint}"
            lines = screen(SampleDifference(before, after), title)
            if out.is_terminal and not arguments.once:
                size = shutil.get_terminal_size()
                lines = [line[: size.columns] for line in lines[: size.lines - 1]]
                out.screen(lines)
            else:
                out.lines("\n".join([*lines, ""]))
            out.flush()
            if arguments.once:
                return 0
            before = after
    except KeyboardInterrupt:
        out.line()
        return 0


def _sample(client: Client) -> Sample:
    return parse_sample(client.text("/metrics"), time.monotonic())
