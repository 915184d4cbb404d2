"""The Python part of the benchmark: selection of cases, CPU accounting, and the report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kubechronicle.ops.bench import __main__ as command
from kubechronicle.ops.bench import access, report, turns
from kubechronicle.ops.bench.cases import CASES, QUICK
from kubechronicle.ops.bench.measure import Load, LoadError, Result, Target, median
from kubechronicle.ops.development.server_process import cpu_seconds, descendants, postmaster, stat

BURN = "import time\nend = time.process_time() + {seconds}\nwhile time.process_time() < end: pass\n"


def result(cpu: float, **seen: Any) -> Result:
    document = {"per_second": 1000.0, "ms": {"p50": 1.0, "p99": 2.0}, "errors": 0} | seen
    return Result(case=CASES[0], cpu_us={"server": cpu, "postgres": 10.0}, memory={}, seen=document)


def test_case_names_are_unique_and_include_the_quick_ones() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert set(QUICK) <= set(names)


def test_a_full_name_selects_one_case_and_a_prefix_many() -> None:
    assert [case.name for case in command.select_cases(command.parse_arguments(["get-1"]))] == ["get-1"]
    both = ["get-1", "get-16", "get-64", "get-1-http2", "get-16-http2"]
    assert [case.name for case in command.select_cases(command.parse_arguments(["get"]))] == both
    assert command.select_cases(command.parse_arguments([])) == list(CASES)
    with pytest.raises(SystemExit, match="no such case: nothing"):
        command.select_cases(command.parse_arguments(["nothing"]))


def test_the_median_run_is_reported() -> None:
    assert median([result(30), result(10), result(20)]).cpu_us["server"] == 20
    assert median([result(30), result(10)]).cpu_us["server"] == 10


def test_a_row_has_the_ratio_to_the_reference() -> None:
    row = report.row([result(336)])
    assert "| 336 µs + 10.0 µs |  | 475 µs + 217 µs | 0.50 | 1,000/s | 1.00 | 2.00 |" in row
    assert "errors" not in row


def test_several_runs_have_a_median_and_a_range() -> None:
    row = report.row([result(300, errors=3, problem="refused"), result(420), result(336)])
    assert "| 336 µs + 10.0 µs | 310 µs to 430 µs | 475 µs + 217 µs |" in row
    assert "3 errors: refused" in row
    assert row.partition(" **")[0].count("|") == report.table([]).splitlines()[0].count("|")
    assert report.failure_row(CASES[0], "gone").count("|") == report.table([]).splitlines()[0].count("|")


def test_microseconds_keep_three_digits() -> None:
    assert [report.microseconds(value) for value in (9.04, 150.4, 7800.0, 94000.0, 690000.0)] == [
        "9.0 µs",
        "150 µs",
        "7.8 ms",
        "94.0 ms",
        "690 ms",
    ]


def test_cpu_time_of_a_tree_counts_children_alive_and_reaped() -> None:
    """A child that has ended used 0.2 s, and the running process another 0.2 s."""
    program = (
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {BURN.format(seconds=0.2)!r}])\n"
        f"{BURN.format(seconds=0.2)}"
        "print('done', flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        used = cpu_seconds(descendants(process.pid))
        assert 0.38 <= used < 2.0
        assert process.pid in {each.pid for each in descendants(os.getpid())}
        assert process.pid not in {each.pid for each in descendants(os.getpid(), without=[process.pid])}
        process.communicate()
    assert stat(process.pid) is None


def test_a_pid_file_of_another_process_is_no_postmaster(tmp_path: Path) -> None:
    assert postmaster(tmp_path) is None
    (tmp_path / "postmaster.pid").write_text(f"{os.getpid()}\n{tmp_path}\n")
    assert postmaster(tmp_path) is None


def fake_load(tmp_path: Path, body: str) -> Load:
    script = tmp_path / "load"
    script.write_text(f"#!{sys.executable}\nimport json, sys\n{body}")
    script.chmod(0o755)
    return Load(binary=script)


def test_cpu_is_counted_between_the_marks_only(tmp_path: Path) -> None:
    """The load waits at the first mark for an answer."""
    load = fake_load(
        tmp_path,
        'print(json.dumps({"phase": "measure"}), flush=True)\n'
        "sys.stdin.readline()\n"
        'print(json.dumps({"phase": "end"}), flush=True)\n'
        'print(json.dumps({"operations": 4, "arguments": sys.argv[1:]}), flush=True)\n',
    )
    clock = iter([1.0, 3.0])
    fake = stat(os.getpid())
    assert fake is not None

    def processes() -> list[Any]:
        return [type(fake)(pid=1, parent=0, own=next(clock), reaped=0.0)]

    cpu, seen = load.run(Target(flags=["-server=https://x:1"], groups={"server": processes}), {"mode": "get"})
    assert cpu == {"server": 2.0}
    assert seen == {"operations": 4, "arguments": ["-server=https://x:1", "-mode=get"]}


def test_a_failed_load_has_its_error_message(tmp_path: Path) -> None:
    load = fake_load(tmp_path, 'sys.exit("load: connection refused")\n')
    began = time.monotonic()
    with pytest.raises(LoadError, match="connection refused"):
        load.run(Target(flags=[], groups={}), {"mode": "get"})
    assert time.monotonic() - began < 30


def test_of_two_servers_the_one_without_load_is_stopped(tmp_path: Path) -> None:
    """The load records the stopped servers (T in proc_stat(5)). At the end both run, although the last load failed."""
    with subprocess.Popen(["sleep", "60"]) as ours, subprocess.Popen(["sleep", "60"]) as theirs:
        load = fake_load(
            tmp_path,
            f"stopped = [open(f'/proc/{{pid}}/stat').read().split()[2] == 'T' for pid in ({ours.pid}, {theirs.pid})]\n"
            'print(json.dumps({"phase": "measure"}), flush=True)\n'
            "sys.stdin.readline()\n"
            'print(json.dumps({"phase": "end"}), flush=True)\n'
            "if '-mode=watch' in sys.argv: sys.exit('load: refused')\n"
            'print(json.dumps({"operations": 1, "per_second": 1.0, "errors": 0, "stopped": stopped}))\n',
        )
        sides = {
            name: turns.Side(name=name, target=Target(flags=[], groups={"server": partial(descendants, process.pid)}))
            for name, process in (("ours", ours), ("theirs", theirs))
        }
        log = tmp_path / "log"
        both = turns.Turns(**sides, load=load, rounds=2, seconds=0, warm=0, log=log, settle=0)
        watch = next(case for case in CASES if case.load["mode"] == "watch")
        rows, successful = both.run([CASES[0], watch])
        states = [Path(f"/proc/{process.pid}/stat").read_text().split()[2] for process in (ours, theirs)]
        ours.kill()
        theirs.kill()
    runs = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(run["side"], run["stopped"]) for run in runs] == [("ours", [False, True]), ("theirs", [True, False])] * 2
    assert "T" not in states
    assert not successful
    assert "failed: load: refused" in rows[1]
    assert {row.count("|") for row in rows} == {turns.table([]).splitlines()[0].count("|")}


def test_the_ratio_of_two_servers_is_the_median_of_the_rounds() -> None:
    """The machine became twice as slow, not the servers."""
    row = turns.row([result(90), result(190), result(200)], [result(190), result(390), result(390)])
    assert "| 190 µs + 10.0 µs | 390 µs + 10.0 µs | 0.50 | 0.50 to 0.53 | 1,000/s, 1,000/s | 1.00, 1.00 | 1.00 |" in row
    assert "2 errors: refused" in turns.row([result(90)], [result(90, errors=2, problem="refused")])


def test_another_server_needs_running_processes() -> None:
    with pytest.raises(SystemExit):
        command.parse_arguments(["--against", "https://127.0.0.1:6443"])
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    flags = ["--against", "https://127.0.0.1:6443", "--against-ca", "ca.crt", "--against-pids"]
    with pytest.raises(SystemExit, match="no such process: store"):
        command.other_server(command.parse_arguments([*flags, f"server={os.getpid()},store={gone.pid}"]))
    target = command.other_server(command.parse_arguments([*flags, f"server={os.getpid()}"]))
    assert target.flags == ["-server=https://127.0.0.1:6443", "-ca=ca.crt"]
    assert os.getpid() in {process.pid for process in target.groups["server"]()}


def test_the_cost_of_access_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert access.main(["--rounds", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "certificate",
        "authenticating proxy",
        "token of the file",
        "service account token",
        "cached token",
    ]
    assert all("both" in line and "µs" in line for line in lines)
