"""``python -m kubechronicle.ops.bench``: measure a fresh server under each load of cases.py, and print a table.

    make bench                                      everything, one run of each
    python -m kubechronicle.ops.bench --quick       one case of each kind
    python -m kubechronicle.ops.bench get-16 create-16 --runs 5
    python -m kubechronicle.ops.bench --server https://HOST:6443 --token-file T --process server=PID --process store=PID

The last form measures a running server of any kind. The CPU time of the named processes and their children is counted.
With --against, a fresh server of ours and a running server are measured in turns:

    python -m kubechronicle.ops.bench get-16 create-16 --runs 5 --against https://127.0.0.1:6443 --against-ca ca.crt \\
        --against-token token --against-pids server=PID,store=PID
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from kubechronicle.ops.bench import report, turns
from kubechronicle.ops.bench.cases import CASES, QUICK, Case
from kubechronicle.ops.bench.measure import Load, LoadError, Result, Target
from kubechronicle.ops.bench.own_server import load_generator
from kubechronicle.ops.development.server_process import ServerProcess, Stat, descendants, memory_mib, running

# Seconds after start-up before the memory of an empty server is read.
_SETTLE_SECONDS = 2.0


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kubechronicle.ops.bench", description="Measure an API server.")
    parser.add_argument(
        "cases", nargs="*", metavar="CASE", help="names or beginnings of names (see --list); default: all"
    )
    parser.add_argument("--list", action="store_true", help="print the names of all cases and end")
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    parser.add_argument("--runs", type=int, default=1, help="runs of each case; the table has median and range")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of the measured part (watches: twice this)")
    parser.add_argument("--warm", type=float, default=1.0, help="seconds of load before it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every run, one JSON document per line")
    parser.add_argument("--load-binary", type=Path, help="the load generator (default: built into .cache/bin)")
    parser.add_argument(
        "--server-cores", default="", metavar="0,1", help="cores of the server and Postgres (default: all)"
    )
    parser.add_argument("--load-cores", default="", metavar="0,1", help="cores of the load generator (default: all)")
    fresh = parser.add_argument_group("a server of our own (the default)")
    fresh.add_argument("--data-dir", type=Path, help="its data directory; kept afterwards (default: temporary)")
    fresh.add_argument(
        "--database-url", help="a Postgres to use instead of the embedded one; name its pid by --process"
    )
    fresh.add_argument(
        "--tree", type=Path, metavar="DIR", help="run the server of another checkout (default: this one)"
    )
    fresh.add_argument(
        "--serve-argument", action="append", default=[], help="a further argument of kubechronicle serve"
    )
    other = parser.add_argument_group("a running server")
    other.add_argument("--server", help="its URL")
    other.add_argument("--token-file", help="file with the bearer token of an administrator")
    other.add_argument("--ca-file", help="its certificate authority (default: not verified)")
    other.add_argument("--client-cert", help="client certificate, instead of a token")
    other.add_argument("--client-key")
    other.add_argument(
        "--process", action="append", default=[], metavar="NAME=PID", help="count this process' CPU time"
    )
    _add_other_server_flags(
        parser.add_argument_group("in turns with another server on this machine, which is stopped between its turns")
    )
    options = parser.parse_args(argv)
    if options.against and (options.server or not options.against_pids):
        parser.error("--against needs --against-pids, and a server of our own")
    return options


def _add_other_server_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--against", metavar="URL", help="its URL")
    group.add_argument("--against-token", metavar="FILE", help="file with the bearer token of an administrator")
    group.add_argument("--against-ca", metavar="FILE", help="its certificate authority (default: not verified)")
    group.add_argument("--against-pids", metavar="server=PID,store=PID", help="its processes, the server first")


def select_cases(options: argparse.Namespace) -> list[Case]:
    wanted = [*options.cases, *(QUICK if options.quick else ())]
    unknown = [name for name in wanted if not any(case.name.startswith(name) for case in CASES)]
    if unknown:
        raise SystemExit(f"no such case: {', '.join(unknown)}; the cases are: {' '.join(case.name for case in CASES)}")
    return [case for case in CASES if not wanted or any(_named(case, name) for name in wanted)]


def _named(case: Case, name: str) -> bool:
    """Match a full name with its case only: get-1 does not match get-16."""
    return case.name == name if any(other.name == name for other in CASES) else case.name.startswith(name)


def named_processes(entries: Sequence[str]) -> dict[str, int]:
    """Parse entries of the form NAME=PID."""
    return {name: int(pid) for name, _, pid in (entry.partition("=") for entry in entries)}


@contextlib.contextmanager
def our_server(options: argparse.Namespace) -> Iterator[tuple[Target, str]]:
    """Run a fresh server. Return the target, and the line about its start."""
    if options.data_dir is None:
        home = Path(tempfile.mkdtemp(prefix="kubechronicle-bench-"))
        home.chmod(0o755)  # under root, Postgres runs as another user, who needs access
    else:
        home = options.data_dir
        home.mkdir(parents=True, exist_ok=True)
    token, tokens = home / "token", home / "tokens.csv"
    token.write_text(secrets.token_hex(16))
    tokens.write_text(f'{token.read_text()},bench,bench,"system:masters"\n')
    # Namespaces must contain only the benchmark's ConfigMaps.
    extra = ["--token-auth-file", str(tokens), "--controllers=*,-root-ca-cert-publisher", *options.serve_argument]
    if options.database_url:
        extra += ["--database-url", options.database_url]
    environment = {"PYTHONPATH": str(options.tree.resolve())} if options.tree else None
    server = ServerProcess(home / "data", arguments=extra, environment=environment)
    try:
        with running(server):
            groups = {"server": server.processes}
            postgres = named_processes(options.process).get("postgres") or server.embedded_postgres()
            if postgres is not None:
                groups["postgres"] = partial(descendants, postgres)
            if options.server_cores:
                pin(options.server_cores, [process.pid for find in groups.values() for process in find()])
            time.sleep(_SETTLE_SECONDS)
            memory = [memory_mib(find()) for find in groups.values()]
            flags = [f"-server={server.url}", f"-ca={server.data_dir / 'pki' / 'ca.crt'}", f"-token-file={token}"]
            yield (
                Target(flags=flags, groups=groups),
                report.start_lines(ready_seconds=server.ready_after, memory=[*memory, 0.0]),
            )
    finally:
        if options.data_dir is None:
            shutil.rmtree(home, ignore_errors=True)


def pin(cores: str, pids: Sequence[int]) -> None:
    """Pin every thread of the processes, and with them all threads and processes they start later."""
    for pid in pids:
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.sched_setaffinity(int(thread), {int(core) for core in cores.split(",")})


def running_server(options: argparse.Namespace) -> Target:
    flags = [f"-server={options.server}"]
    for flag, value in (
        ("ca", options.ca_file),
        ("token-file", options.token_file),
        ("cert", options.client_cert),
        ("key", options.client_key),
    ):
        flags += [f"-{flag}={value}"] if value else []
    return Target(flags=flags, groups=_trees(options.process))


def other_server(options: argparse.Namespace) -> Target:
    """Return the server of --against. Raises SystemExit if one of its processes does not exist."""
    flags = [f"-server={options.against}"]
    flags += [f"-token-file={options.against_token}"] if options.against_token else []
    flags += [f"-ca={options.against_ca}"] if options.against_ca else []
    groups = _trees(options.against_pids.split(","))
    if missing := [name for name, find in groups.items() if not find()]:
        raise SystemExit(f"--against-pids: no such process: {', '.join(missing)}")
    return Target(flags=flags, groups=groups)


def _trees(entries: Sequence[str]) -> dict[str, Callable[[], list[Stat]]]:
    return {name: partial(descendants, pid) for name, pid in named_processes(entries).items()}


def run_cases(options: argparse.Namespace, target: Target, load: Load) -> tuple[list[str], bool]:
    """Return the report's rows, and whether no load failed."""
    rows, filled, successful = [], set(), True
    for case in select_cases(options):
        print(f"{case.title} …", file=sys.stderr, flush=True)
        try:
            if case.fill and case.namespace not in filled:
                load.fill(target, case)
                filled.add(case.namespace)
            results: list[Result] = []
            for _ in range(options.runs):
                results.append(load.measure(target, case, seconds=case.duration(options.seconds), warm=options.warm))
                if options.json:
                    with options.json.open("a") as log:
                        log.write(json.dumps(results[-1].document()) + "\n")
            rows.append(report.row(results))
            successful = successful and not any(result.seen["errors"] for result in results)
        except LoadError as error:
            rows.append(report.failure_row(case, str(error)))
            successful = False
        print(rows[-1], file=sys.stderr, flush=True)
    return rows, successful


def in_turns(options: argparse.Namespace, target: Target, load: Load) -> tuple[list[str], bool]:
    """Measure both servers in turns; see turns.py."""
    return turns.Turns(
        ours=turns.Side(name="ours", target=target),
        theirs=turns.Side(name="theirs", target=other_server(options)),
        load=load,
        rounds=options.runs,
        seconds=options.seconds,
        warm=options.warm,
        log=options.json,
    ).run(select_cases(options))


def _method(options: argparse.Namespace) -> str:
    if options.against:
        return (
            f"Load from other processes on the same machine, {options.runs} round(s) of {options.seconds:g} s for each "
            "server in turn; the other one is stopped meanwhile. Medians of the rounds; a ratio is the median of the "
            "rounds' ratios, ours to theirs."
        )
    return (
        f"Load from other processes on the same machine, {options.runs} run(s) of {options.seconds:g} s each. "
        "Pace: ms of CPU for a fixed piece of Python just before."
    )


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(sys.argv[1:] if argv is None else argv)
    if options.list:
        print("\n".join(case.name for case in CASES))
        return 0
    load = load_generator(options.load_binary, cores=[int(core) for core in options.load_cores.split(",") if core])
    command = shlex.join(["python", "-m", "kubechronicle.ops.bench", *(sys.argv[1:] if argv is None else argv)])
    if options.server:
        start, (rows, successful) = "", run_cases(options, running_server(options), load)
    else:
        with our_server(options) as (target, start):
            rows, successful = (in_turns if options.against else run_cases)(options, target, load)
    table = turns.table(rows) if options.against else report.table(rows)
    print(report.preamble(command, note=f"{_method(options)}\n{start}"), table, sep="\n\n")
    return 0 if successful else 1


if __name__ == "__main__":
    # Handle SIGTERM, as of a time limit, like Ctrl-C, so that no server stays behind, running or stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
