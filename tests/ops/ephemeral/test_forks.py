"""Forks that stand for servers in tests (ops/ephemeral): their output, ends and environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from starting.forks import FORKS, Fork

COMMAND = str(Path(sys.executable).with_name("kubechronicle"))
PATIENCE = 60.0


def fork(folder: Path, *arguments: str, **environment: str) -> Fork:
    with (folder / "log").open("a") as log:
        return FORKS.start([COMMAND, *arguments], {**os.environ, **environment}, stderr=log)


def test_a_fork_prints_and_exits_as_the_command_does(tmp_path: Path) -> None:
    command = subprocess.run([COMMAND, "--version"], capture_output=True, text=True, check=True)
    process = fork(tmp_path, "--version")
    assert (process.stdout.read(), process.wait(PATIENCE)) == (command.stdout, 0)

    arguments = ["serve", "--secure-port", "many"]
    refused = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False)
    done = FORKS.run([COMMAND, *arguments])
    assert (done.returncode, done.stdout, done.stderr) == (refused.returncode, "", refused.stderr)


def test_a_fork_has_its_own_environment(tmp_path: Path) -> None:
    process = fork(tmp_path, "log", "configmap", "x", KUBECONFIG="/none")
    assert process.wait(PATIENCE) == 2
    assert "/none" in (tmp_path / "log").read_text()
    assert os.environ.get("KUBECONFIG") != "/none"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_ends_a_fork(tmp_path: Path, number: signal.Signals) -> None:
    # Port 9 of this machine is closed, so the server waits for its database.
    where = ["--data-dir", str(tmp_path / "data"), "--database-url", "postgresql://127.0.0.1:9/none"]
    process = fork(tmp_path, "serve", *where, "--secure-port", "0")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.0)
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait(PATIENCE) == (-number if number == signal.SIGKILL else process.poll())
    process.kill()  # does nothing
    assert process.stdout.read() == ""
