"""``python -m tests.robustness``: writers, readers and watchers under faults; their histories are checked.

    make robustness                                     each fault, again and again, for 15 minutes
    make robustness ARGS="--faults swallow,failover --rounds 5 --seed 7"
    make robustness ARGS="--workers 4 --embedded"       one server of four processes, which alone appends

A round has registers of its own. Under load one fault happens; then everything has to be ready again. Checked are:
each register's history is linearizable (porcupine), each watcher saw exactly the log's changes in their order, and
`kubechronicle verify` proves the log. The histories of a failed round are kept.
"""

from __future__ import annotations

import argparse
import itertools
import random
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tests" / "clients")]

from tests.robustness.clients import MAPS, NAMESPACE, Client, Watcher, register  # noqa: E402
from tests.robustness.world import FAULTS, World, faults_of, running  # noqa: E402

CHECKER = ROOT / ".cache" / "bin" / "robustness-checker"
KEPT = ROOT / ".cache" / "robustness"
CLIENTS, REGISTERS = 8, 12
LOAD = 3.0  # seconds of load before and after the fault
CATCH_UP = 60.0  # seconds until the watchers have seen everything


class Failed(Exception):
    """A round whose history is wrong."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.robustness", description="Check histories under faults.")
    parser.add_argument("--minutes", type=float, default=15, help="begin no round after these (default 15)")
    parser.add_argument("--rounds", type=int, default=10_000, help="at most this many rounds")
    parser.add_argument("--faults", help=f"some of {', '.join(FAULTS)} (default: all that the servers can have)")
    parser.add_argument("--workers", type=int, default=1, help="worker processes of each server (default 1)")
    parser.add_argument("--embedded", action="store_true", help="one server with the embedded Postgres, not two")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    arguments = parser.parse_args()
    chance, began = random.Random(arguments.seed), time.monotonic()
    print(f"seed {arguments.seed}", flush=True)
    kind = {"workers": arguments.workers, "embedded": arguments.embedded}
    chosen = arguments.faults.split(",") if arguments.faults else faults_of(**kind)
    faults = itertools.islice(itertools.cycle(chosen), arguments.rounds)
    with running(**kind) as world:
        with closing(world.servers[0].api()) as api:
            api.namespace(NAMESPACE)
        for number, fault in enumerate(faults, 1):
            if time.monotonic() - began > arguments.minutes * 60:
                break
            try:
                print(f"{number:4} {fault:17} {play(world, number, fault, chance)}", flush=True)
            except (Failed, AssertionError) as error:
                print(f"{number:4} {fault:17} FAILED: {error}\nhistories: {KEPT}, seed {arguments.seed}", flush=True)
                return 1
        world.servers[0].verify()
    print("all histories are right, and the log is proved")
    return 0


def play(world: World, number: int, fault: str, chance: random.Random) -> str:
    """Play one round; return a line about it. Failed."""
    keys = [f"r{number}-{key}" for key in range(REGISTERS)]
    with closing(world.servers[0].api()) as api:
        made = [api.create(MAPS, register(key, "")) for key in keys]
    start = int(made[-1]["metadata"]["resourceVersion"])
    stop, stop_watching = threading.Event(), threading.Event()
    clients = [
        Client(one, world.servers, keys, random.Random(chance.random()), stop)
        for one in range(number * 100, number * 100 + CLIENTS)
    ]
    watchers = [Watcher(server, str(start), stop_watching) for server in world.servers]
    threads = [threading.Thread(target=one.run, daemon=True) for one in (*clients, *watchers)]
    for thread in threads:
        thread.start()
    time.sleep(LOAD)
    began = time.monotonic()
    FAULTS[fault](world, chance)
    world.wait_ready()
    recovered = time.monotonic() - began
    time.sleep(LOAD)
    stop.set()
    for thread in threads[:CLIENTS]:
        thread.join(60)
    rows = log_rows(world, start)
    wait_seen(watchers, rows)
    stop_watching.set()
    for thread in threads[CLIENTS:]:
        thread.join(60)
    verdict = check_history(clients, number)
    unknown = sum(one.outcome == "unknown" for client in clients for one in client.history)
    check_watchers(watchers, rows)
    return f"ready after {recovered:5.1f} s, {unknown:2} unknown, {len(rows):4} changes seen; {verdict}"


def log_rows(world: World, start: int) -> list[tuple[int, str, str]]:
    """Return (revision, name, value) of the registers' changes in the log."""
    statement = (
        "select revision, name, object -> 'data' ->> 'v' from kubechronicle.log where resource = 'configmaps'"
        f" and namespace = '{NAMESPACE}' and revision > {start} order by revision"
    )
    rows = [line.split("|") for line in world.sql(statement).splitlines()]
    return [(int(revision), name, value) for revision, name, value in rows]


def wait_seen(watchers: list[Watcher], rows: list[tuple[int, str, str]]) -> None:
    end = time.monotonic() + CATCH_UP
    while rows and time.monotonic() < end and any(int(one.revision) < rows[-1][0] for one in watchers):
        time.sleep(0.1)


def check_history(clients: list[Client], number: int) -> str:
    KEPT.mkdir(parents=True, exist_ok=True)
    file = KEPT / f"round-{number}.jsonl"
    file.write_text("".join(f"{op.line()}\n" for client in clients for op in client.history))
    command = [str(CHECKER), str(file), str(file.with_suffix(".html"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"not linearizable: {done.stdout}{done.stderr}")
    file.unlink()
    return done.stdout.strip()


def check_watchers(watchers: list[Watcher], rows: list[tuple[int, str, str]]) -> None:
    for watcher in watchers:
        if watcher.expired:
            raise Failed(f"a watch on {watcher.server.url} expired: {watcher.expired[0]}")
        seen = [event for event in watcher.seen if not rows or event[0] <= rows[-1][0]]
        if seen != rows:
            first = next((pair for pair in itertools.zip_longest(seen, rows) if pair[0] != pair[1]), None)
            raise Failed(f"a watcher on {watcher.server.url} saw {len(seen)} of {len(rows)} changes; first: {first}")


if __name__ == "__main__":
    sys.exit(main())
