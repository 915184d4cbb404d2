"""``python -m kubechronicle.ops.bench.nodes``: what a cluster's nodes cost, and what that says about a large one.

    make bench-nodes                                                            1,000 nodes at 3 times their pace
    python -m kubechronicle.ops.bench.nodes --nodes 5000 --compress 1 --seconds 60
    python -m kubechronicle.ops.bench.nodes --nodes 5000 --compress 0.4 --kept DIR    with objects made once

Every node is a client with one connection (HTTP/2, as kubelets have it), its Lease renewed every 10 s, its Node's
status patched every 5 min, watches of its pods, its Node and the services; pods live --pod-life seconds, and each is
created, bound, reported on twice, deleted gracefully, reported on and removed, with five Events. Two observers watch
all pods, nodes and leases. With --compress K everything happens K times as often, so that N nodes cause the requests
of N × K; connections, watches and objects stay those of N, and what they cost is told apart.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import trio

from kubechronicle.ops.bench import copies, own_server, report
from kubechronicle.ops.bench.own_server import Measured, Running, load_generator
from kubechronicle.ops.bench.usage import Sample

LARGE_NODES, LARGE_PODS = 5_000, 150_000  # the size Kubernetes promises to work at (its scalability thresholds)
RENEW_SECONDS = 10
NAMED = "kept"  # part of the names of nodes that are kept
ROOM = 0.7  # share of a core that may be in use for latency to stay what was measured
DAY = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """``empty``: MiB before; ``filled`` and ``connected``: the samples with all objects, and with all connections."""

    nodes: int
    pods_per_node: int
    compress: float
    seconds: float
    empty: Mapping[str, float]
    filled: Sample
    connected: Sample
    measured: Measured

    @property
    def node_seconds(self) -> float:
        """Of a node's life, as far as its requests go: told by the Leases, which a server at its end is late with."""
        renewals: int = self.measured.seen["kinds"].get("lease", {}).get("operations", 0)
        return max(1.0, float(renewals * RENEW_SECONDS))

    @property
    def kept_up(self) -> float:
        """The share of the renewals meant that were made."""
        return self.node_seconds / (self.nodes * self.seconds * self.compress)

    def cpu_us(self, group: str) -> float:
        """Per node and second."""
        return self.measured.usage.cpu[group] / self.node_seconds * 1e6

    def memory_kib(self, group: str) -> tuple[float, float]:
        """For each pod, its share of its Node and Lease along; and for each node's connection and watches."""
        objects = self.filled.memory[group] - self.empty[group]
        connections = self.connected.memory[group] - self.filled.memory[group]
        return objects / max(1, self.nodes * self.pods_per_node) * 1024, connections / self.nodes * 1024

    @property
    def grown(self) -> float:
        """Bytes the database's files grew by, per node and second."""
        return self.measured.usage.grown / self.node_seconds

    def document(self) -> dict[str, Any]:
        usage = self.measured.usage
        return {
            "nodes": self.nodes,
            "pods_per_node": self.pods_per_node,
            "compress": self.compress,
            "cpu_us_per_node_second": {group: self.cpu_us(group) for group in ("server", "postgres")},
            "cores": {group: usage.cores(group) for group in usage.cpu},
            "disk": usage.disk,
            "end": usage.at_its_end(),
            "kept_up": self.kept_up,
            "log_bytes_per_node_second": self.grown,
            "memory_mib": {
                "empty": dict(self.empty),
                "filled": dict(self.filled.memory),
                "connected": dict(self.connected.memory),
                "end": dict(self.measured.memory),
            },
            **self.measured.seen,
        }


def measure(running: Running, options: argparse.Namespace, empty: Mapping[str, float] | None = None) -> Result:
    """On a server where nothing has happened yet; or with the objects there, where ``empty`` is what another needed
    that had none. LoadError."""
    there: dict[str, str | int] = {"there": "true", "named": NAMED} if empty is not None else {}
    at_rest = running.memory()
    empty = empty or at_rest
    measured = running.put(
        mode="nodes",
        namespace="bench-nodes",
        nodes=options.nodes,
        **{"pods-per-node": options.pods_per_node, "pod-life": options.pod_life},
        compress=options.compress,
        seconds=options.seconds,
        warm=options.warm,
        http1=options.http1,
        **there,
    )
    filled, connected, _ = running.sampler.samples
    return Result(
        nodes=options.nodes,
        pods_per_node=options.pods_per_node,
        compress=options.compress,
        seconds=options.seconds,
        empty=empty,
        filled=filled,
        connected=connected,
        measured=measured,
    )


def fill(place: own_server.Place, options: argparse.Namespace) -> None:
    """All objects, as copies of one node's that the server has made. LoadError."""
    with place.serving() as running:
        one = {"nodes": 1, "pods-per-node": options.pods_per_node, "named": NAMED, "seconds": 0.1, "warm": 0}
        running.put(mode="nodes", namespace="bench-nodes", compress=0.001, **one)
    trio.run(partial(copies.fill_nodes, place.data_dir, named=NAMED, count=options.nodes))


def table(result: Result) -> str:
    """What the clients saw, by kind of request."""
    lines = ["| request | a second | p50 ms | p99 ms | failures |", "|---|---|---|---|---|"]
    seen = result.measured.seen
    for kind in sorted(seen["kinds"], key=lambda kind: -seen["kinds"][kind]["operations"]):
        of = seen["kinds"][kind]
        ms, failed = of["ms"], seen["failures"].get(kind, 0)
        lines.append(f"| {kind} | {of['per_second']:.1f} | {ms['p50']:.2f} | {ms['p99']:.2f} | {failed} |")
    for kind in sorted(set(seen["failures"]) - set(seen["kinds"])):
        lines.append(f"| {kind} | 0 | | | {seen['failures'][kind]} |")
    if heard := seen["heard_ms"]:
        lines.append(f"| (binding a pod until its node hears of it) | | {heard['p50']:.2f} | {heard['p99']:.2f} | |")
    return "\n".join(lines)


def summary(result: Result) -> str:
    usage, seen = result.measured.usage, result.measured.seen
    per_pod, per_node = result.memory_kib("server")
    cores = " + ".join(f"{usage.cores(group):.2f}" for group in ("server", "postgres", "load"))
    parts = [
        f"{result.nodes:,} nodes with {result.pods_per_node} pods each, {result.compress:g} times as often, for "
        f"{usage.seconds:.0f} s: {seen['per_second']:,.0f} requests a second ({result.kept_up:.0%} of those meant), "
        f"{seen['events']:,} events heard.",
        f"CPU per node and second: server {result.cpu_us('server'):,.0f} µs, Postgres "
        f"{result.cpu_us('postgres'):,.0f} µs. Cores busy: {cores} (server + Postgres + load), disk {usage.disk:.0%}; "
        f"at its end: {usage.at_its_end() or 'nothing'}.",
        f"Memory of the server: {result.empty['server']:,.0f} MiB empty, {result.filled.memory['server']:,.0f} with "
        f"the objects ({per_pod:.1f} KiB a pod, its part of Node and Lease along), "
        f"{result.connected.memory['server']:,.0f} with the connections ({per_node:.1f} KiB a node, three watches "
        f"each); {result.measured.memory['server']:,.0f} at the end.",
        f"The database's files grew by {result.grown:,.0f} bytes per node and second.",
    ]
    if seen["errors"]:
        parts.append(f"**{seen['errors']} errors: {seen['problem'][:300]}**")
    return "\n".join(f"- {part}" for part in parts)


def first_ends(result: Result) -> list[tuple[float, str]]:
    """At how many nodes each resource is at its end if its use grows as it did up to here, the first first.

    Commits share their flushes the more, the more there are; so the disk lasts longer than this says."""
    usage = result.measured.usage
    load = result.node_seconds / usage.seconds
    used = {
        "one core for the server": usage.busiest["server"],
        "one core for Postgres' busiest session": usage.busiest["postgres"],
        "the disk": usage.disk,
    }
    return sorted((load / share, name) for name, share in used.items() if share > 0)


def forecast(result: Result) -> str:
    """The sentence about a large cluster: from what a node's requests, objects and connection cost each."""
    server, postgres = (LARGE_NODES * result.cpu_us(group) / 1e6 for group in ("server", "postgres"))
    workers = max(1, math.ceil(server / ROOM))
    per_pod, per_node = result.memory_kib("server")
    objects, connections = LARGE_PODS * per_pod / 1024, LARGE_NODES * per_node / 1024 / workers
    requests = result.measured.seen["operations"] / result.node_seconds * LARGE_NODES
    ends = ", ".join(f"{name} at {nodes:,.0f}" for nodes, name in first_ends(result))
    daily = result.grown * LARGE_NODES * DAY / 2**30
    memory = (result.empty["server"] + objects + connections) / 1024
    parts = [
        f"{LARGE_NODES:,} nodes with {LARGE_PODS:,} pods are {requests:,.0f} requests a second: {server:.2f} cores for",
        f"the server ({workers} workers, each busy no more than {ROOM:.0%} of its core), {postgres:.2f} for Postgres;",
        f"{memory:.1f} GiB for each worker (objects {objects / 1024:.1f}, its connections {connections / 1024:.2f});",
        f"{daily:.1f} GiB of log a day before retention. As nodes grow, there end: {ends}.",
        f"Extrapolated in a line from {result.nodes:,} nodes' connections and the requests of",
        f"{result.nodes * result.compress:,.0f} to one process; each further one also follows what the others write.",
    ]
    return " ".join(parts)


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kubechronicle.ops.bench.nodes", description="Measure a cluster.")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods-per-node", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=30.0, help="measured part (default 30)")
    parser.add_argument("--warm", type=float, default=2.0, help="seconds of rest before it (default 2)")
    parser.add_argument("--compress", type=float, default=3.0, help="times as often as in life (default 3)")
    parser.add_argument("--pod-life", type=float, default=7200.0, help="seconds a pod lives (default 7200)")
    parser.add_argument(
        "--kept", type=Path, metavar="DIR", help="a data directory with the nodes, made if it is not there"
    )
    parser.add_argument("--workers", type=int, default=1, help="processes of the server (default 1)")
    parser.add_argument("--http1", action="store_true", help="clients use HTTP/1.1, a connection for each watch")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures, a document on a line")
    parser.add_argument("--directory", type=Path, help="where the data directory is made (default: /tmp)")
    parser.add_argument("--load-binary", type=Path, help="the load generator (default: built into .cache/bin)")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if given is None else given
    options = arguments(given)
    load, empty = load_generator(options.load_binary), None
    if options.kept is not None:
        with own_server.place(load, directory=options.directory) as place, place.serving() as running:
            empty = running.memory()
        if not options.kept.exists():
            with own_server.place(load, kept=options.kept) as place:
                fill(place, options)
    with (
        own_server.place(load, directory=options.directory, kept=options.kept) as place,
        place.serving(workers=options.workers) as running,
    ):
        result = measure(running, options, empty)
    command = shlex.join(["python", "-m", "kubechronicle.ops.bench.nodes", *given])
    print(report.preamble(command, note="Load from other processes on the same machine."))
    print("", table(result), "", summary(result), "", forecast(result), sep="\n")
    if options.json:
        with options.json.open("a") as lines:
            lines.write(json.dumps(result.document()) + "\n")
    return 1 if result.measured.seen["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
