"""One server for all of these tests, in another thread and without sockets; commands are run as from a shell."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from in_process import ADMIN
from server_in_thread import InThread, Running, server_in_thread

from kubechronicle.ops import cli
from kubechronicle.ops.client import completion, session
from kubechronicle.ops.client.commands import at
from kubechronicle.ops.client.kubeconfig import Target


@pytest.fixture(scope="session")
def running() -> Iterator[Running]:
    with server_in_thread() as running:
        yield running


@dataclass
class Said:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.code in (0, 1), self.err
        return json.loads(self.out)


@pytest.fixture
def chronicle(
    running: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Said]:
    """`kubechronicle …` against the server; ``token`` says as whom."""

    def connect(target: Target) -> InThread:
        return InThread(running, target.server.token, target.headers)

    monkeypatch.setattr(session, "CONNECT", [connect])
    for module in (completion, at):
        monkeypatch.setattr(module, "CONNECT", [connect])
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))

    def run(*arguments: str, token: str = ADMIN) -> Said:
        # What follows the moment of `at` is kubectl's.
        name, *rest = arguments
        code = cli.main([name, "--server", "https://in.process", "--token", token, *rest])
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return run
