"""``python -m kubechronicle.ops.bench.nodes``: the cost of a cluster's nodes, with a forecast for a large cluster.

    make bench-nodes                                                            1,000 nodes at 3 times the normal rate
    python -m kubechronicle.ops.bench.nodes --nodes 5000 --compress 1 --seconds 60
    python -m kubechronicle.ops.bench.nodes --nodes 5000 --compress 0.4 --kept DIR    with objects created once

Every node is a client with one connection (HTTP/2, as kubelets use). It renews its Lease every 10 s, patches its Node's
status every 5 min, and watches its pods, its Node and the services. A pod lives --pod-life seconds: it is created,
bound, gets two status updates, is deleted gracefully, gets another status update and is removed, with five Events. Two
observers watch all pods, nodes and leases. With --compress K everything happens K times as often: N nodes send the
requests of N × K nodes. Connections, watches and objects are those of N nodes; their cost is reported separately.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import trio

from kubechronicle.ops.bench import copies, own_server, report
from kubechronicle.ops.bench.own_server import Measured, Running, load_generator, second_database
from kubechronicle.ops.bench.usage import Sample

LARGE_NODES, LARGE_PODS = 5_000, 150_000  # Kubernetes' scalability thresholds
RENEW_SECONDS = 10
NAME = "kept"  # part of the names of nodes in a kept workspace
MAX_BUSY = 0.7  # share of a core up to which the measured latency holds
DAY = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One measurement.

    ``empty``: MiB before
    ``filled``: the sample with all objects
    ``connected``: the sample with all connections
    """

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
        """The simulated time times the nodes, by the Leases that were renewed; an overloaded server renews fewer."""
        renewals: int = self.measured.seen["kinds"].get("lease", {}).get("operations", 0)
        return max(1.0, float(renewals * RENEW_SECONDS))

    @property
    def kept_up(self) -> float:
        """The share of the planned renewals that were made."""
        return self.node_seconds / (self.nodes * self.seconds * self.compress)

    def cpu_us(self, group: str) -> float:
        """Return the CPU microseconds per node and second."""
        return self.measured.usage.cpu.get(group, 0.0) / self.node_seconds * 1e6

    def memory_kib(self, group: str) -> tuple[float, float]:
        """Return KiB per pod, with its share of Node and Lease, and per node for its connection and watches."""
        objects = self.filled.memory[group] - self.empty[group]
        connections = self.connected.memory[group] - self.filled.memory[group]
        return objects / max(1, self.nodes * self.pods_per_node) * 1024, connections / self.nodes * 1024

    @property
    def grown(self) -> float:
        """Bytes added to the database's files, per node and second."""
        return self.measured.usage.grown / self.node_seconds

    def document(self) -> dict[str, Any]:
        usage = self.measured.usage
        return {
            "nodes": self.nodes,
            "pods_per_node": self.pods_per_node,
            "compress": self.compress,
            "cpu_us_per_node_second": {group: self.cpu_us(group) for group in ("server", "postgres", "second")},
            "cores": {group: usage.cores(group) for group in usage.cpu},
            "disk": usage.disk,
            "end": usage.bottleneck(),
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
    """Measure a new server; or one that has the objects already. LoadError.

    ``empty``: with existing objects, the memory of a server without them
    """
    existing: dict[str, str | int] = {"existing": "true", "name": NAME} if empty is not None else {}
    at_rest = running.memory()
    empty = empty or at_rest
    measured = running.run_load(
        mode="nodes",
        namespace="bench-nodes",
        nodes=options.nodes,
        **{"pods-per-node": options.pods_per_node, "pod-life": options.pod_life},
        compress=options.compress,
        seconds=options.seconds,
        warm=options.warm,
        http1=options.http1,
        **existing,
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


def fill(workspace: own_server.Workspace, options: argparse.Namespace) -> None:
    """Create the objects of one node through the server, and copy them for the others. LoadError."""
    with workspace.serving() as running:
        one = {"nodes": 1, "pods-per-node": options.pods_per_node, "name": NAME, "seconds": 0.1, "warm": 0}
        running.run_load(mode="nodes", namespace="bench-nodes", compress=0.001, **one)
    trio.run(partial(copies.fill_nodes, workspace.data_dir, named=NAME, count=options.nodes))


def table(result: Result) -> str:
    """Return rates, latencies and failures by kind of request."""
    lines = ["| request | per second | p50 ms | p99 ms | failures |", "|---|---|---|---|---|"]
    seen = result.measured.seen
    for kind in sorted(seen["kinds"], key=lambda kind: -seen["kinds"][kind]["operations"]):
        requests = seen["kinds"][kind]
        ms, failed = requests["ms"], seen["failures"].get(kind, 0)
        lines.append(f"| {kind} | {requests['per_second']:.1f} | {ms['p50']:.2f} | {ms['p99']:.2f} | {failed} |")
    for kind in sorted(set(seen["failures"]) - set(seen["kinds"])):
        lines.append(f"| {kind} | 0 | | | {seen['failures'][kind]} |")
    if heard := seen["heard_ms"]:
        lines.append(f"| (from binding a pod to its node's event) | | {heard['p50']:.2f} | {heard['p99']:.2f} | |")
    return "\n".join(lines)


def summary(result: Result) -> str:
    usage, seen = result.measured.usage, result.measured.seen
    per_pod, per_node = result.memory_kib("server")
    cores = " + ".join(f"{usage.cores(group):.2f}" for group in ("server", "postgres", "load"))
    parts = [
        f"{result.nodes:,} nodes with {result.pods_per_node} pods each, {result.compress:g} times as often, for "
        f"{usage.seconds:.0f} s: {seen['per_second']:,.0f} requests per second ({result.kept_up:.0%} of the plan), "
        f"{seen['events']:,} watch events.",
        f"CPU per node and second: server {result.cpu_us('server'):,.0f} µs, Postgres "
        f"{result.cpu_us('postgres'):,.0f} µs{_second(result)}. Cores busy: {cores} (server + Postgres + load), "
        f"disk {usage.disk:.0%}; "
        f"bottleneck: {usage.bottleneck() or 'none'}.",
        f"Memory of the server: {result.empty['server']:,.0f} MiB empty, {result.filled.memory['server']:,.0f} with "
        f"the objects ({per_pod:.1f} KiB per pod, with its part of Node and Lease), "
        f"{result.connected.memory['server']:,.0f} with the connections ({per_node:.1f} KiB per node, for three "
        f"watches); {result.measured.memory['server']:,.0f} at the end.",
        f"The database's files grew by {result.grown:,.0f} bytes per node and second.",
    ]
    if seen["errors"]:
        parts.append(f"**{seen['errors']} errors: {seen['problem'][:300]}**")
    return "\n".join(f"- {part}" for part in parts)


def _second(result: Result) -> str:
    """Return the cost in the second database, if there is one."""
    used = result.measured.usage.cpu.get("second", 0.0)
    return f", second Postgres {result.cpu_us('second'):,.0f} µs" if used else ""


def limits(result: Result) -> list[tuple[float, str]]:
    """Return the number of nodes at which each resource is full, if its use grows in proportion; smallest first.

    The disk lasts longer than this: at a higher rate, more commits share a flush.
    """
    usage = result.measured.usage
    load = result.node_seconds / usage.seconds
    used = {
        "one core for the server": usage.busiest["server"],
        "one core for Postgres' busiest session": usage.busiest["postgres"],
        "the disk": usage.disk,
    }
    return sorted((load / share, name) for name, share in used.items() if share > 0)


def forecast(result: Result) -> str:
    """Extrapolate to a large cluster from the cost of a node's requests, objects and connection."""
    server, postgres = (LARGE_NODES * result.cpu_us(group) / 1e6 for group in ("server", "postgres"))
    workers = max(1, math.ceil(server / MAX_BUSY))
    per_pod, per_node = result.memory_kib("server")
    objects, connections = LARGE_PODS * per_pod / 1024, LARGE_NODES * per_node / 1024 / workers
    requests = result.measured.seen["operations"] / result.node_seconds * LARGE_NODES
    ends = ", ".join(f"{name} at {nodes:,.0f}" for nodes, name in limits(result))
    daily = result.grown * LARGE_NODES * DAY / 2**30
    memory = (result.empty["server"] + objects + connections) / 1024
    parts = [
        f"{LARGE_NODES:,} nodes with {LARGE_PODS:,} pods send {requests:,.0f} requests per second: {server:.2f} cores",
        f"for the server ({workers} workers, each at most {MAX_BUSY:.0%} busy), {postgres:.2f} for Postgres;",
        f"{memory:.1f} GiB for each worker (objects {objects / 1024:.1f}, its connections {connections / 1024:.2f});",
        f"{daily:.1f} GiB of log per day before retention. Full by the number of nodes: {ends}.",
        f"Linear extrapolation from the connections of {result.nodes:,} nodes and the requests of",
        f"{result.nodes * result.compress:,.0f} to one process. Each further process also follows the others' writes.",
    ]
    return " ".join(parts)


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kubechronicle.ops.bench.nodes", description="Measure a cluster.")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods-per-node", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=30.0, help="measured part (default 30)")
    parser.add_argument("--warm", type=float, default=2.0, help="seconds of rest before it (default 2)")
    parser.add_argument("--compress", type=float, default=3.0, help="multiple of the normal rate (default 3)")
    parser.add_argument("--pod-life", type=float, default=7200.0, help="seconds a pod lives (default 7200)")
    parser.add_argument(
        "--kept", type=Path, metavar="DIR", help="a data directory with the nodes; filled if it does not exist"
    )
    parser.add_argument("--workers", type=int, default=1, help="processes of the server (default 1)")
    parser.add_argument("--second-database", action="store_true", help="Events and Leases in a Postgres of their own")
    parser.add_argument("--http1", action="store_true", help="clients use HTTP/1.1, a connection for each watch")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures, one JSON document per line")
    parser.add_argument("--directory", type=Path, help="parent of the data directory (default: /tmp)")
    parser.add_argument("--load-binary", type=Path, help="the load generator (default: built into .cache/bin)")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    options = parse_arguments(argv)
    load, empty = load_generator(options.load_binary), None
    if options.kept is not None:
        with own_server.workspace(load, directory=options.directory) as workspace, workspace.serving() as running:
            empty = running.memory()
        if not options.kept.exists():
            with own_server.workspace(load, kept=options.kept) as workspace:
                fill(workspace, options)
    with (
        second_database(options.directory) if options.second_database else nullcontext() as second,
        own_server.workspace(load, directory=options.directory, kept=options.kept) as workspace,
        workspace.serving(workers=options.workers, second=second) as running,
    ):
        result = measure(running, options, empty)
    command = shlex.join(["python", "-m", "kubechronicle.ops.bench.nodes", *argv])
    print(report.preamble(command, note="Load from other processes on the same machine."))
    print("", table(result), "", summary(result), "", forecast(result), sep="\n")
    if options.json:
        with options.json.open("a") as lines:
            lines.write(json.dumps(result.document()) + "\n")
    return 1 if result.measured.seen["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
