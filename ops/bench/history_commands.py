"""The cost of ``kubectl chronicle`` commands on a long log, each run as a process, as from a shell.

The start of Python and the imports cost the same on every log. The column "work" excludes them: it measures the same
command in a process that has run it before.
"""

from __future__ import annotations

import contextlib
import io
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from kubechronicle.ops import cli
from kubechronicle.ops.client import kubeconfig
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.transport import HttpTransport
from kubechronicle.ops.development.server_process import ServerProcess, cpu_seconds, descendants

HEAD = "| command | process: wall | CPU | work: wall | CPU | server + Postgres: CPU | limit |\n" + "|---" * 7 + "|"
EXPECTED_CODES = (0, 1, 3)  # 1: there are differences, or there is no answer; 3: something cannot be restored


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    ``limit``: the largest work in milliseconds, 0 for none
    ``words``: returns the arguments of the n-th round
    ``starts_program``: the command starts another program, so its work is not measured
    """

    title: str
    limit: float
    words: Callable[[Log, int], Sequence[str]]
    starts_program: bool = False


@dataclass(frozen=True, slots=True)
class Log:
    """The log: its time span, and the number of its slots (history_log.py)."""

    begins: datetime
    ends: datetime
    slots: int

    def moment(self, share: float) -> str:
        return (self.begins + (self.ends - self.begins) * share).isoformat()

    def deployment(self, number: int) -> tuple[str, ...]:
        """Return a Deployment and its namespace. Slots from 1 % to 2 % are Deployments (history_log.KINDS)."""
        slot = self.slots // 100 + number % (self.slots // 100)
        return f"deployment/deployment-{slot:06}", "-n", f"team-{slot % 100:03}"

    def pod(self, number: int) -> tuple[str, ...]:
        """Return a deleted Pod, the first of its slot. Slots from 40 % to 90 % are Pods; these live shortest."""
        slot = self.slots * 4 // 10 + number * 500
        return f"pod/pod-{slot:06}-0", "-n", f"team-{slot % 500:03}"

    def hour(self, number: int) -> tuple[str, str]:
        since = self.begins + (self.ends - self.begins) * (0.3 + number * 0.01)
        return since.isoformat(), (since + timedelta(hours=1)).isoformat()


def _namespace(number: int) -> str:
    return f"team-{number % 100:03}"


# -- a shop ------------------------------------------------------------------------------------------------------------
#
# Objects at the end of the log for `why`: Pods that crash, with owners, settings, an account and Events. Controllers,
# whose causes are inferred, make the ReplicaSet and the Pods, bind them and report their status again and again.

SHOP: Final = "shop-with-controllers"
PODS: Final = 12
REPORTS: Final = 30
"""Reports of a Pod's status."""
CONTROLLER: Final = "system:serviceaccount:kube-system:{}-controller"
SPACE: Final = f"/api/v1/namespaces/{SHOP}"
APPS: Final = f"/apis/apps/v1/namespaces/{SHOP}"
LABELS: Final = {"app": "web"}
STARTED: Final = "2026-01-01T00:00:00Z"


def pod_name(number: int) -> str:
    return f"web-1-{number % PODS}"


def make_shop(server: ServerProcess) -> None:
    """Create the objects unless they are there."""
    client = _client(server)
    if client.get_if(f"/api/v1/namespaces/{SHOP}") is not None:
        return
    deploying, replicating, scheduler, kubelet = (
        _client(server, user)
        for user in (
            CONTROLLER.format("deployment"),
            CONTROLLER.format("replicaset"),
            "system:kube-scheduler",
            "system:node:node-000001",
        )
    )

    def make(path: str, name: str, by: Client = client, **parts: Any) -> Any:
        metadata = {"name": name, "labels": LABELS, **parts.pop("metadata", {})}
        return by.request("POST", path, body={"metadata": metadata, **parts})

    def owned(kind: str, owner: Any) -> dict[str, Any]:
        reference = {"apiVersion": "apps/v1", "kind": kind, "controller": True}
        return {"ownerReferences": [reference | {part: owner["metadata"][part] for part in ("name", "uid")}]}

    make("/api/v1/namespaces", SHOP)
    make(f"{SPACE}/serviceaccounts", "web")
    make(f"{SPACE}/secrets", "key", stringData={"a": "b"})
    make(f"{SPACE}/configmaps", "settings", data={"color": "blue"})
    make(f"{SPACE}/services", "web", spec={"selector": LABELS, "ports": [{"port": 80}]})
    sources = [{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "key"}}]
    pod = {"serviceAccountName": "web", "containers": [{"name": "web", "image": "web:1", "envFrom": sources}]}
    spec = {"selector": {"matchLabels": LABELS}, "template": {"metadata": {"labels": LABELS}, "spec": pod}}
    deployment = make(f"{APPS}/deployments", "web", spec=spec)
    replicas = make(f"{APPS}/replicasets", "web-1", deploying, spec=spec, metadata=owned("Deployment", deployment))
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    state = {"name": "web", "image": "web:1", "imageID": "", "ready": False, "state": waiting}
    for number in range(PODS):
        name = pod_name(number)
        made = make(f"{SPACE}/pods", name, replicating, spec=pod, metadata=owned("ReplicaSet", replicas))
        binding = {"target": {"kind": "Node", "name": "node-000001"}, "metadata": {"name": name}}
        scheduler.request("POST", f"{SPACE}/pods/{name}/binding", body=binding)
        about = {"kind": "Pod", "apiVersion": "v1", "namespace": SHOP, "name": name, "uid": made["metadata"]["uid"]}
        make(f"{SPACE}/events", f"{name}.1", involvedObject=about, reason="BackOff", type="Warning", message="crashed")
        for restarts in range(REPORTS):
            states = [state | {"restartCount": restarts}]
            status = {"status": {"phase": "Running", "startTime": STARTED, "containerStatuses": states}}
            kubelet.request("PATCH", f"{SPACE}/pods/{name}/status", body=status, content_type=MERGE)
    for color in ("green", "red", "black"):
        client.request("PATCH", f"{SPACE}/configmaps/settings", body={"data": {"color": color}}, content_type=MERGE)


MERGE: Final = "application/merge-patch+json"


def _client(server: ServerProcess, user: str = "") -> Client:
    """Return a client of the administrator, or of a user that it impersonates with all rights."""
    target = kubeconfig.of_file(server.kubeconfig, user=user)
    if user:
        target.headers = (*target.headers, ("Impersonate-Group", "system:masters"))
    return Client(HttpTransport(target))


COMMANDS = (
    Command("log deployment/NAME", 20, lambda log, n: ("log", *log.deployment(n))),
    Command("blame deployment/NAME", 0, lambda log, n: ("blame", *log.deployment(n))),
    Command(
        "diff deployment/NAME --from T1 --to T2", 0,
        lambda log, n: ("diff", *log.deployment(n), "--from", log.moment(0.4), "--to", log.moment(0.9)),
    ),
    Command(
        "diff -n NAMESPACE --from T", 0, lambda log, n: ("diff", "-n", _namespace(n), "--from", log.moment(0.9)),
    ),
    Command("who deleted pod/NAME", 50, lambda log, n: ("who", "deleted", *log.pod(n))),
    Command("why pod/NAME, which crashes", 0, lambda log, n: ("why", f"pod/{pod_name(n)}", "-n", SHOP)),
    Command("why service/NAME, without endpoints", 0, lambda log, n: ("why", "service/web", "-n", SHOP)),
    Command(
        "who set deployment/NAME spec.replicas", 0,
        lambda log, n: ("who", "set", log.deployment(n)[0], "spec.replicas", *log.deployment(n)[1:]),
    ),
    Command("between an hour -A", 1000, lambda log, n: ("between", *log.hour(n), "-A")),
    Command(
        "at T get deployments -n NAMESPACE", 0,
        lambda log, n: ("at", log.moment(0.5), "get", "deployments", "-n", _namespace(n)),
        starts_program=True,
    ),
    Command(
        "restore deployment/NAME --to T --dry-run", 0,
        lambda log, n: ("restore", *log.deployment(n), "--to", log.moment(0.5), "--dry-run"),
    ),
    Command(
        "restore -n NAMESPACE --to T --dry-run",
        0,
        lambda log, n: ("restore", "-n", _namespace(n), "--to", log.moment(0.9), "--dry-run"),
    ),
    Command("export -n NAMESPACE --at T", 0, lambda log, n: ("export", "-n", _namespace(n), "--at", log.moment(0.5))),
)  # fmt: skip


def rows(server: ServerProcess, log: Log, rounds: int) -> Iterator[str]:
    """Yield a row of the table per command.

    Times are the minimum of the rounds, as noise only adds time. The CPU of the server is the mean, as it is counted in
    ticks of 10 ms.
    """
    make_shop(server)
    with _kubeconfig(str(server.kubeconfig)):
        yield _row("(only --help)", server, lambda _: ("log", "--help"), rounds, limit=0, starts_program=True)
        for each in COMMANDS:
            words = lambda number, each=each: each.words(log, number)  # noqa: E731
            yield _row(each.title, server, words, rounds, limit=each.limit, starts_program=each.starts_program)


def _row(
    title: str,
    server: ServerProcess,
    words: Callable[[int], Sequence[str]],
    rounds: int,
    *,
    limit: float,
    starts_program: bool,
) -> str:
    wall, cpu, server_cpu = [], [], []
    for number in range(rounds):
        before = _server_cpu(server)
        times = _run_process([*server.command(), *words(number)])
        server_cpu.append([after - earlier for earlier, after in zip(before, _server_cpu(server), strict=True)])
        wall.append(times[0])
        cpu.append(times[1])
    # Other objects, so that the server has not cached them. The first run, which imports, does not count.
    work = [] if starts_program else [_run_here(words(rounds + number)) for number in range(rounds + 1)][1:]
    took, used = (min(each) for each in zip(*work, strict=True)) if work else (0.0, 0.0)
    missed = " **missed**" if limit and took > limit else ""
    cells = [
        title,
        _ms(min(wall)),
        _ms(min(cpu)),
        _ms(took) + missed if work else "",
        _ms(used) if work else "",
        " + ".join(_ms(statistics.fmean(each)) for each in zip(*server_cpu, strict=True)),
        _ms(limit) if limit else "",
    ]
    return f"| {' | '.join(cells)} |"


def _ms(value: float) -> str:
    return f"{value:.0f} ms"


def _run_process(command: Sequence[str]) -> tuple[float, float]:
    """Run a command as a process. Return wall and CPU milliseconds, with those of its children."""
    used = os.times()
    began = time.perf_counter()
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    took = time.perf_counter() - began
    after = os.times()
    _check(process.returncode, command, process.stdout + process.stderr)
    cpu = after.children_user + after.children_system - used.children_user - used.children_system
    return took * 1000, cpu * 1000


def _run_here(words: Sequence[str]) -> tuple[float, float]:
    """Run a command in this process. Return wall and CPU milliseconds."""
    output, errors = io.StringIO(), io.StringIO()
    began, used = time.perf_counter(), time.process_time()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = cli.main(words)
    took, used = time.perf_counter() - began, time.process_time() - used
    _check(code, words, output.getvalue() + errors.getvalue())
    return took * 1000, used * 1000


def _check(code: int, command: Sequence[str], output: str) -> None:
    if code not in EXPECTED_CODES:
        raise SystemExit(f"{' '.join(command)}: exit code {code}: {output[-1000:]}")


def _server_cpu(server: ServerProcess) -> tuple[float, float]:
    """Return the CPU milliseconds used so far by the server and by its Postgres."""
    postmaster = server.embedded_postgres()
    postgres = descendants(postmaster) if postmaster is not None else []
    return cpu_seconds(server.processes()) * 1000, cpu_seconds(postgres) * 1000


@contextlib.contextmanager
def _kubeconfig(path: str) -> Iterator[None]:
    before = os.environ.get("KUBECONFIG")
    os.environ["KUBECONFIG"] = path
    try:
        yield
    finally:
        if before is None:
            del os.environ["KUBECONFIG"]
        else:
            os.environ["KUBECONFIG"] = before
