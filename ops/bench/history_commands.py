"""What the commands of ``kubectl chronicle`` take on a long log: each as a process of its own, as from a shell.

Of a process, starting Python and importing what the command needs is the same on any log; it is measured apart, as the
same command in a process that has run it before, and told as "work".
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

from kubechronicle.ops import cli
from kubechronicle.ops.development.server_process import ServerProcess, cpu_seconds, descendants

HEAD = (
    "| command | process: wall | CPU | work: wall | CPU | server + Postgres: CPU | bar |\n|---|---|---|---|---|---|---|"
)
CODES = (0, 1)  # 1: there are differences, or nobody did it


@dataclass(frozen=True, slots=True)
class Command:
    """``words`` of the n-th round, of a log that begins and ends at these times and has so many slots; ``bar``: of the
    work, in milliseconds (0: none). ``starts``: it starts another program, so is not run in this process."""

    title: str
    bar: float
    words: Callable[[Log, int], Sequence[str]]
    starts: bool = False


@dataclass(frozen=True, slots=True)
class Log:
    begins: datetime
    ends: datetime
    slots: int

    def moment(self, share: float) -> str:
        return (self.begins + (self.ends - self.begins) * share).isoformat()

    def deployment(self, number: int) -> tuple[str, ...]:
        """A deployment and its namespace: slots from 1 % to 2 % are deployments (history_log.KINDS)."""
        slot = self.slots // 100 + number % (self.slots // 100)
        return f"deployment/deployment-{slot:06}", "-n", f"team-{slot % 100:03}"

    def pod(self, number: int) -> tuple[str, ...]:
        """A pod that was deleted, the first of its slot: slots from 40 % to 90 % are pods, these live shortest."""
        slot = self.slots * 4 // 10 + number * 500
        return f"pod/pod-{slot:06}-0", "-n", f"team-{slot % 500:03}"

    def hour(self, number: int) -> tuple[str, str]:
        since = self.begins + (self.ends - self.begins) * (0.3 + number * 0.01)
        return since.isoformat(), (since + timedelta(hours=1)).isoformat()


def _namespace(number: int) -> str:
    return f"team-{number % 100:03}"


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
    Command(
        "who set deployment/NAME spec.replicas", 0,
        lambda log, n: ("who", "set", log.deployment(n)[0], "spec.replicas", *log.deployment(n)[1:]),
    ),
    Command("between an hour -A", 1000, lambda log, n: ("between", *log.hour(n), "-A")),
    Command(
        "at T get deployments -n NAMESPACE", 0,
        lambda log, n: ("at", log.moment(0.5), "get", "deployments", "-n", _namespace(n)), starts=True,
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
    """A row of the table for each: the least of so many rounds, as what else the machine does only adds to it; of the
    server, whose CPU time is told in ticks of 10 ms, the mean."""
    with _kubeconfig(str(server.kubeconfig)):
        yield _row("(what a process costs: --help)", server, lambda _: ("log", "--help"), rounds, bar=0, starts=True)
        for each in COMMANDS:
            words = lambda number, each=each: each.words(log, number)  # noqa: E731
            yield _row(each.title, server, words, rounds, bar=each.bar, starts=each.starts)


def _row(
    title: str, server: ServerProcess, words: Callable[[int], Sequence[str]], rounds: int, *, bar: float, starts: bool
) -> str:
    wall, cpu, behind = [], [], []
    for number in range(rounds):
        before = _behind(server)
        found = _process([*server.command(), *words(number)])
        behind.append([after - earlier for earlier, after in zip(before, _behind(server), strict=True)])
        wall.append(found[0])
        cpu.append(found[1])
    # Others of the same sort, so that nothing is known of them yet; the first imports.
    work = [] if starts else [_here(words(rounds + number)) for number in range(rounds + 1)][1:]
    took, used = (min(each) for each in zip(*work, strict=True)) if work else (0.0, 0.0)
    missed = " **missed**" if bar and took > bar else ""
    cells = [
        title,
        _ms(min(wall)),
        _ms(min(cpu)),
        _ms(took) + missed if work else "",
        _ms(used) if work else "",
        " + ".join(_ms(statistics.fmean(each)) for each in zip(*behind, strict=True)),
        _ms(bar) if bar else "",
    ]
    return f"| {' | '.join(cells)} |"


def _ms(value: float) -> str:
    return f"{value:.0f} ms"


def _process(command: Sequence[str]) -> tuple[float, float]:
    """Milliseconds, and of CPU, from exec to the end of it and of what it started."""
    used = os.times()
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    took = time.perf_counter() - began
    after = os.times()
    _good(done.returncode, command, done.stdout + done.stderr)
    cpu = after.children_user + after.children_system - used.children_user - used.children_system
    return took * 1000, cpu * 1000


def _here(words: Sequence[str]) -> tuple[float, float]:
    """Milliseconds, and of CPU, for the command in this process."""
    said, complained = io.StringIO(), io.StringIO()
    began, used = time.perf_counter(), time.process_time()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
        code = cli.main(words)
    took, used = time.perf_counter() - began, time.process_time() - used
    _good(code, words, said.getvalue() + complained.getvalue())
    return took * 1000, used * 1000


def _good(code: int, command: Sequence[str], said: str) -> None:
    if code not in CODES:
        raise SystemExit(f"{' '.join(command)}: exit code {code}: {said[-1000:]}")


def _behind(server: ServerProcess) -> tuple[float, float]:
    """CPU milliseconds of the server and of its Postgres so far."""
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
