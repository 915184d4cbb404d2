"""Fixtures: one server for all tests, in a thread and without sockets, and a function that runs commands."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
from in_process import ADMIN
from server_in_thread import InThread, Running, server_in_thread

from kubechronicle.actors.loops.garbage.collector import GarbageCollector
from kubechronicle.ops import cli
from kubechronicle.ops.client import session
from kubechronicle.ops.client.kubeconfig import ClusterTarget

_namespaces = (f"shop-{number}" for number in itertools.count(1))


@pytest.fixture(scope="session")
def running() -> Iterator[Running]:
    with server_in_thread() as running:
        yield running


@pytest.fixture
def collector(running: Running) -> Iterator[None]:
    """Run the garbage collector, which ends the deletions that orphan dependents."""
    scope = trio.CancelScope()

    async def collect() -> None:
        with scope:
            await GarbageCollector(running.server.store).run()

    async def start() -> None:
        running.server.nursery.start_soon(collect)

    async def stop() -> None:
        scope.cancel()

    running.run(start)
    yield
    running.run(stop)


@dataclass
class Output:
    """Exit code, stdout and stderr of a command."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.code in (0, 1, 3), self.err
        return json.loads(self.out)


@pytest.fixture
def chronicle(
    running: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Output]:
    """Return a function that runs `kubechronicle …` against the server, as the user of ``token``."""

    def make_transport(target: ClusterTarget) -> InThread:
        return InThread(running, target.server.token, target.headers)

    monkeypatch.setattr(session, "make_transport", make_transport)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))

    def run(*arguments: str, token: str = ADMIN) -> Output:
        # The flags come first: `at` passes those after the moment to kubectl.
        name, *rest = arguments
        code = cli.main([name, "--server", "https://in.process", "--token", token, *rest])
        printed = capsys.readouterr()
        return Output(code, printed.out, printed.err)

    return run


@pytest.fixture
def shop(running: Running) -> tuple[str, int]:
    """Return a namespace with a Deployment, a ConfigMap and a Secret, and the revision at which they exist.

    Later the Deployment is scaled and gets another image, the ConfigMap is deleted, the Secret is changed, and another
    ConfigMap is created.
    """
    name = next(_namespaces)
    space, apps = f"/api/v1/namespaces/{name}", f"/apis/apps/v1/namespaces/{name}/deployments"
    running.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    container = {"name": "web", "image": "web:1"}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    running.ask("POST", apps, {"metadata": {"name": "web"}, "spec": spec})
    running.ask("POST", f"{space}/configmaps", {"metadata": {"name": "settings"}, "data": {"color": "blue"}})
    secret = running.ask("POST", f"{space}/secrets", {"metadata": {"name": "key"}, "stringData": {"a": "hush"}})
    running.ask("PATCH", f"{apps}/web?fieldManager=hand", {"spec": {"replicas": 5}})
    container = {"name": "web", "image": "web:2"}
    running.ask("PATCH", f"{apps}/web", {"spec": {"template": {"spec": {"containers": [container]}}}})
    running.ask("DELETE", f"{space}/configmaps/settings")
    running.ask("PATCH", f"{space}/secrets/key", {"stringData": {"a": "quiet"}})
    running.ask("POST", f"{space}/configmaps", {"metadata": {"name": "new"}})
    return name, int(secret["metadata"]["resourceVersion"])
