"""``python -m kubechronicle.ops.bench.definitions``: a server with 500 definitions of custom resources.

    python -m kubechronicle.ops.bench.definitions --counts 500 1000
    python -m kubechronicle.ops.bench.definitions --counts 500 --reference      and then a kube-apiserver with etcd

Ten definitions are in a group; each has the 60 fields and three rules of custom_objects.py. For each count:

    definitions   seconds and CPU of each new definition, four at a time, until the last one is served; then one alone
    memory        MiB of server and store, without definitions and with them, and after a restart
    ready         seconds from exec until /readyz answers 200, and until a custom object is found
    documents     CPU and bytes of discovery and OpenAPI documents: the first request, and a later one
    stall         p99 of GETs of a ConfigMap by another client during the first request for /openapi/v2

The definition and the document that are measured alone are of no other group.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kubechronicle.api.values.objects import Object
from kubechronicle.ops.bench import custom_objects, report
from kubechronicle.ops.development.differential import reference
from kubechronicle.ops.development.differential.transport import Answer, Connection, Target
from kubechronicle.ops.development.server_process import ServerProcess, Stat, cpu_seconds, descendants, memory_mib

DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PER_GROUP: Final = 10
WRITERS: Final = 4
TOKEN: Final = "definitions"
TIMEOUT: Final = 300.0  # seconds for a resource to be served
AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
DOCUMENTS: Final = (
    ("aggregated discovery", "/apis", AGGREGATED),
    ("discovery: /apis", "/apis", "application/json"),
    ("discovery of a group", "/apis/group-0.example.com/v1", "application/json"),
    ("/openapi/v3", "/openapi/v3", "application/json"),
    ("/openapi/v3 of a group", "/openapi/v3/apis/group-0.example.com/v1", "application/json"),
    ("/openapi/v2", "/openapi/v2", "application/json"),
)


@dataclass(slots=True, kw_only=True)
class Server:
    """A server that can be started again on its data. ``start`` returns its target; ``groups``: its processes."""

    start: Callable[[], Target]
    stop: Callable[[], None]
    groups: Callable[[], list[list[Stat]]]

    def cpu(self) -> float:
        """Return the CPU seconds so far."""
        return sum(cpu_seconds(group) for group in self.groups())

    def memory(self, settle: float) -> str:
        """Return the memory of server and store, after some rest."""
        time.sleep(settle)
        return " + ".join(f"{memory_mib(group):.0f}" for group in self.groups()) + " MiB"


@contextlib.contextmanager
def our_server() -> Iterator[Server]:
    """Return a kubechronicle on an empty directory."""
    with tempfile.TemporaryDirectory(prefix="kubechronicle-definitions-") as directory:
        home = Path(directory)
        home.chmod(0o755)  # under root, Postgres runs as another user, who needs access
        (home / "tokens.csv").write_text(f'{TOKEN},bench,bench,"system:masters"\n')
        process = ServerProcess(home / "data", arguments=["--token-auth-file", str(home / "tokens.csv")])

        def start() -> Target:
            process.start()
            return Target(process.url, TOKEN)

        def groups() -> list[list[Stat]]:
            postgres = process.embedded_postgres()
            return [process.processes(), [] if postgres is None else descendants(postgres)]

        try:
            yield Server(start=start, stop=lambda: void(process.stop()), groups=groups)
        finally:
            process.close()


@contextlib.contextmanager
def reference_server() -> Iterator[Server]:
    """Return a kube-apiserver whose etcd is running."""
    apiserver, etcd = reference.programs()
    with tempfile.TemporaryDirectory(prefix="kubechronicle-definitions-") as directory, contextlib.ExitStack() as stack:
        home = Path(directory)
        client, peer, secure = reference.free_ports(3)
        target = Target(f"https://127.0.0.1:{secure}", TOKEN)
        (home / "tokens.csv").write_text(f'{TOKEN},bench,bench,"system:masters"\n')
        reference.write_key(home / "sa.key")
        store = stack.enter_context(
            reference.process(reference.etcd_command(etcd, home, client, peer), home / "etcd.log")
        )
        running: list[int] = []
        life = stack.enter_context(contextlib.ExitStack())

        def start() -> Target:
            command = reference.apiserver_command(apiserver, home, client, secure)
            running[:] = [life.enter_context(reference.process(command, home / "apiserver.log")).pid]
            return target

        yield Server(start=start, stop=life.close, groups=lambda: [descendants(running[0]), descendants(store.pid)])


def void(_: object) -> None:
    """Drop a result."""


def numbered(number: int) -> Object:
    """Return the definition of this number."""
    group = f"group-{number // PER_GROUP}.example.com"
    found = custom_objects.definition(f"workload{number}s", f"Workload{number}")
    found["metadata"]["name"] = f"workload{number}s.{group}"
    found["spec"]["group"] = group
    return found


def list_path(definition: Object) -> str:
    return f"/apis/{definition['spec']['group']}/v1/{definition['spec']['names']['plural']}"


def wait_for(target: Target, path: str) -> float:
    """Return the seconds until a path answers 200. Raises TimeoutError."""
    began = time.monotonic()
    while time.monotonic() - began < TIMEOUT:
        with contextlib.closing(Connection(target)) as connection:
            if connection.ask("GET", path).status == 200:
                return time.monotonic() - began
        time.sleep(0.01)
    raise TimeoutError(f"{target.url}{path} is not served")


def create(target: Target, path: str, body: Object) -> Answer:
    with contextlib.closing(Connection(target)) as connection:
        answer = connection.ask("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    if answer.status != 201:
        raise RuntimeError(f"POST {path}: {answer.status} {answer.body[:300]!r}")
    return answer


def fill(server: Server, target: Target, numbers: range) -> tuple[float, float]:
    """Create definitions. Return the seconds and the CPU seconds of each, until the last one is served."""
    began, cpu = time.monotonic(), server.cpu()
    with ThreadPoolExecutor(WRITERS) as pool:
        for _ in pool.map(lambda number: create(target, DEFINITIONS, numbered(number)), numbers):
            pass
    wait_for(target, list_path(numbered(numbers[-1])))
    return (time.monotonic() - began) / len(numbers), (server.cpu() - cpu) / len(numbers)


def one_alone(target: Target, first: int, times: int) -> float:
    """Return the median of the seconds of a new definition until its resource is served."""
    took = []
    for number in range(first, first + times):
        began = time.monotonic()
        create(target, DEFINITIONS, numbered(number))
        wait_for(target, list_path(numbered(number)))
        took.append(time.monotonic() - began)
        time.sleep(0.5)
    return statistics.median(took)


def document(server: Server, target: Target, path: str, accept: str) -> str:
    """Return CPU and bytes of a document: the first request, and the mean of ten more."""
    with contextlib.closing(Connection(target)) as connection:
        costs, size = [], 0
        for count in (1, 10):
            cpu = server.cpu()
            for _ in range(count):
                answer = connection.ask("GET", path, None, {"Accept": accept, "Accept-Encoding": "gzip"})
                size = len(answer.body)
            costs.append((server.cpu() - cpu) / count)
    return f"{costs[0] * 1000:.0f} ms, {costs[1] * 1000:.1f} ms; {size / 1024:,.0f} KiB ({answer.status})"


def stall(target: Target, during: Callable[[], object]) -> str:
    """Return p99 and maximum of GETs of another client, each with a new millisecond of rest, while a function runs."""
    took: list[float] = []
    ended = threading.Event()

    def read() -> None:
        with contextlib.closing(Connection(target)) as connection:
            while not ended.is_set():
                began = time.monotonic()
                connection.ask("GET", "/api/v1/namespaces/default")
                took.append((time.monotonic() - began) * 1000)
                time.sleep(0.001)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        during()
    finally:
        ended.set()
        reader.join()
    took.sort()
    return f"p99 {took[int(len(took) * 0.99)]:.0f} ms, most {took[-1]:.0f} ms of {len(took)} GETs"


def measure(server: Server, counts: Sequence[int], settle: float) -> Iterator[tuple[str, str]]:
    """Yield label and value of each measurement."""
    began = time.monotonic()
    target = server.start()
    wait_for(target, "/readyz")
    yield "ready, empty", f"{time.monotonic() - began:.2f} s"
    yield "memory, empty", server.memory(settle)
    filled = 0
    for count in counts:
        seconds, cpu = fill(server, target, range(filled, count))
        yield f"{count}: a new definition", f"{seconds * 1000:.0f} ms, {cpu * 1000:.0f} ms of CPU"
        first = 100_000 + count * PER_GROUP  # a group of its own
        yield f"{count}: one alone", f"{one_alone(target, first, 5) * 1000:.0f} ms"
        filled = count
        yield f"{count}: memory", server.memory(settle)
        yield from _started_again(server, count, settle)


def _started_again(server: Server, count: int, settle: float) -> Iterator[tuple[str, str]]:
    for turn in range(3):
        server.stop()
        began = time.monotonic()
        target = server.start()
        wait_for(target, "/readyz")
        ready = time.monotonic() - began
        wait_for(target, list_path(numbered(count - 1)))
        yield f"{count}: ready", f"{ready:.2f} s, a custom resource {time.monotonic() - began:.2f} s"
        if turn == 0:
            yield f"{count}: memory, started", server.memory(settle)
    time.sleep(settle)
    for label, path, accept in DOCUMENTS:
        found: list[str] = []
        if path != "/openapi/v2":
            found.append(document(server, target, path, accept))
        else:
            waits = stall(target, lambda: found.append(document(server, target, path, accept)))  # noqa: B023
            yield f"{count}: stall", waits
        yield f"{count}: {label}", found[0]
    yield f"{count}: memory, documents", server.memory(settle)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m kubechronicle.ops.bench.definitions", description="Measure a server with many definitions."
    )
    parser.add_argument("--counts", type=int, nargs="+", default=[500], help="numbers of definitions (default 500)")
    parser.add_argument("--settle", type=float, default=5.0, help="seconds of rest before memory is read (default 5)")
    parser.add_argument(
        "--reference", action="store_true", help="also measure kube-apiserver, as make differential does"
    )
    parser.add_argument("--only-reference", action="store_true", help="measure kube-apiserver alone")
    options = parser.parse_args(argv)
    command = shlex.join(
        ["python", "-m", "kubechronicle.ops.bench.definitions", *(sys.argv[1:] if argv is None else argv)]
    )
    print(report.preamble(command, note=""), flush=True)
    sides = [] if options.only_reference else [("kubechronicle", our_server)]
    sides += [("kube-apiserver", reference_server)] if options.reference or options.only_reference else []
    for name, open_server in sides:
        with open_server() as server:
            for label, value in measure(server, options.counts, options.settle):
                print(f"{name:15} {label:30} {value}", flush=True)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # let no server stay behind
    sys.exit(main())
