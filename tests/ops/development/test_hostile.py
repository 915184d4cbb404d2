"""The attacks of `make hostile`: two of them are sent to a server, and their rows are written into a page."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kubechronicle.ops.development.hostile import __main__ as command
from kubechronicle.ops.development.hostile.attacks import ATTACKS
from kubechronicle.ops.development.hostile.light_client import Silence, process_seconds
from kubechronicle.ops.development.hostile.table import BEGIN, END, Measured, rows_of


def test_attacks_are_sent_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{BEGIN}\n{END}\n\nThe end.\n")
    names = ["HTTP/1.1: 100,000 fields", "old: bad labels"]
    code = command.main(["--only", *names, "--write", "--page", str(page)])
    assert code == 0, capsys.readouterr().out
    rows = rows_of(page.read_text())
    assert list(rows) == names
    assert [row.answers for row in rows.values()] == ["431", "413 × 4"]
    assert all(row.cpu.endswith(" ms") and row.their_wall == "" for row in rows.values())
    assert page.read_text().endswith("The end.\n")


def test_new_figures_leave_the_others(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n| attack |\n|---|\n| a | anybody | 1 ms | 2 ms | 3 ms | 4 ms | 200 | 404 |\n{END}\n")
    rows = rows_of(page.read_text())
    rows["a"].take(Measured(Silence(wall=1.5, main=0.01, process=0.02), "429"), None)
    assert rows["a"].line() == "| a | anybody | 10 ms | 20 ms | 1,500 ms | 4 ms | 429 | 404 |"


def test_a_server_that_ended_is_above_every_limit() -> None:
    assert Measured(Silence(), "closed", ended=True).above(1000)
    assert not Measured(Silence(main=0.09, process=0.09), "200").above(command.MOST)
    assert Measured(Silence(main=0.01, process=0.2), "200").above(command.MOST)


def test_the_page_has_the_attacks_of_the_table() -> None:
    names = [each.name for each in ATTACKS]
    assert len(names) == len(set(names))
    assert set(rows_of(command.PAGE.read_text())) <= set(names)


def test_an_unknown_name_is_the_operators_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--only", "nonesuch"]) == 2
    assert capsys.readouterr().err == "hostile: no attack has a name with nonesuch\n"


def test_a_process_that_has_ended_has_no_time_even_if_nobody_waited_for_it() -> None:
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as process:
        assert process_seconds(os.getpid()) > 0
        assert process.stdout is not None
        process.stdout.read()  # to its end
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert process_seconds(process.pid) == 0
    assert process_seconds(process.pid) == 0
