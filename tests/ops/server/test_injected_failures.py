"""An exception in every task of a running server: each is logged, counted, named in /readyz?verbose and started again.

The tasks are found by walking Trio's tree of tasks, so a new one is tested without being listed here. One that nobody
supervises ends the server, and so the test. The server has its own Postgres, and most optional parts.
"""

from __future__ import annotations

import http.client
import json
import logging
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from kubechronicle.eventlog.restarts import TaskFailures
from kubechronicle.ops.server import serve
from kubechronicle.ops.server.assembly import Assembly
from kubechronicle.ops.server.shutdown import Shutdown
from kubechronicle.ops.settings import settings

PATIENCE = 60.0
POLICY = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}
ENCRYPTION = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "EncryptionConfiguration",
    "resources": [{"resources": ["secrets"], "providers": [{"identity": {}}]}],
}
TRACING = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "TracingConfiguration",
    "samplingRatePerMillion": 10,
    "endpoint": "127.0.0.1:1",
}
WEBHOOK = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1/"}}],
    "users": [{"name": "a", "user": {}}],
    "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    "current-context": "a",
}
EXPECTED = {
    "signals", "postgres", "log-listener", "encryption", "layout-guard", "certificates", "sole-appender", "retention",
    "clocks", "size", "tail", "appender", "resource actors", "outgoing", "egress", "rereading", "kept-connections",
    "aggregated-discovery", "branches", "reads", "reads-policy", "tracing", "trace-collector", "bootstrap",
    "rbac-bootstrap", "flow-control", "garbage-collector", "namespace", "resourcequota", "event-ttl", "reaper",
}  # fmt: skip


class Injected(Exception):
    """The bug that strikes."""


def strike() -> None:
    raise Injected


def descendants(task: trio.lowlevel.Task, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every task below with its path: names of supervised tasks, and of functions."""
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            function = child.name.removeprefix("kubechronicle.").rpartition(".<locals>.")[2]
            values = child.coro.cr_frame.f_locals if child.coro.cr_frame is not None else {}
            name = function
            if function.endswith("keep_running"):
                name = values["name"]
            elif function.endswith("Supervisor._run_child"):
                name = values["self"]._children[values["position"]].name
            yield (*path, name), child
            yield from descendants(child, (*path, name))


def is_work(path: tuple[str, ...]) -> bool:
    """Return False for tasks that only start and stop others, and for those of one connection."""
    own = path[-1]
    if any("_run_connection" in part for part in path):
        return False
    return own not in ("log", "outside", "loops") and not own.endswith(("_run_then_stop", "Tasks.run"))


def write(folder: Path, name: str, content: object) -> str:
    file = folder / name
    file.write_text(json.dumps(content))
    return str(file)


async def ask(assembly: Assembly, path: str) -> tuple[int, str]:
    """Send a request on a new connection to the listener."""

    def request() -> tuple[int, str]:
        assert assembly.server is not None
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection("127.0.0.1", assembly.server.port, context=context, timeout=PATIENCE)
        try:
            connection.request("GET", path, headers={"authorization": "Bearer t"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    return await trio.to_thread.run_sync(request)


async def strike_all(root: trio.lowlevel.Task, assembly: Assembly) -> list[tuple[str, ...]]:
    """Strike every task once. Return their paths, and check the server after each."""
    failures, struck = assembly.tree.failures, list[tuple[str, ...]]()
    while True:
        candidates = [
            (path, task)
            for path, task in descendants(root)
            if path not in struck and is_work(path) and task._abort_func is not None  # it waits
        ]
        if not candidates:
            return struck
        path, task = candidates[0]
        struck.append(path)
        before = dict(failures.totals)
        task._attempt_abort(strike)
        await trio.testing.wait_all_tasks_blocked()
        failed = [name for name, count in failures.totals.items() if count > before.get(name, 0)]
        if failed:
            await check(assembly, failures, failed[0], path)
        else:  # it is between two states, or a thread runs for it; a handled error is as good
            assert (await ask(assembly, "/livez"))[0] == 200, path


async def check(assembly: Assembly, failures: TaskFailures, name: str, path: tuple[str, ...]) -> None:
    with trio.fail_after(PATIENCE):
        while any(each.restarted is None for each in failures.failing()):  # noqa: ASYNC110 - there is no event
            await trio.sleep(0.01)
        status, page = await ask(assembly, "/readyz?verbose")
    assert f"task/{name} failed: reason withheld" in page, (path, name, page)
    essential = next(each.essential for each in failures.failing() if each.name == name)
    assert status == (500 if any(each.essential for each in failures.failing()) else 200), (path, page)
    assert (f"[-]task/{name}" if essential else f"[!]task/{name}") in page


async def test_no_task_of_a_server_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tokens.csv").write_text('t,admin,1,"system:masters"\n')
    loaded = settings.load(
        {
            "data-dir": str(tmp_path / "data"),
            "bind-address": "127.0.0.1",
            "advertise-address": "10.1.0.1",
            "secure-port": "0",
            "token-auth-file": str(tmp_path / "tokens.csv"),
            "audit-policy-file": write(tmp_path, "audit", POLICY),
            "audit-log-path": str(tmp_path / "audit.log"),
            "audit-webhook-config-file": write(tmp_path, "audit-webhook", WEBHOOK),
            "audit-reads-policy-file": write(tmp_path, "reads", POLICY),
            "encryption-provider-config": write(tmp_path, "encryption", ENCRYPTION),
            "encryption-provider-config-automatic-reload": "true",
            "tracing-config-file": write(tmp_path, "tracing", TRACING),
        }
    )
    shutdown = Shutdown(loaded)
    monkeypatch.setattr(serve, "Shutdown", lambda _: shutdown)
    tasks = list[trio.lowlevel.Task]()

    async def run() -> None:
        tasks.append(trio.lowlevel.current_task())
        await serve._serve_alone(loaded)

    with caplog.at_level(logging.ERROR):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            with trio.fail_after(PATIENCE):
                while shutdown.assembly is None:  # noqa: ASYNC110 - there is no event for it
                    await trio.sleep(0.01)
            assembly = shutdown.assembly
            assert (await ask(assembly, "/readyz"))[0] == 200
            struck = await strike_all(tasks[0], assembly)
            assert (await ask(assembly, "/livez"))[0] == 200
            assert {name for name, count in assembly.tree.failures.totals.items() if count} >= EXPECTED
            page = (await ask(assembly, "/metrics"))[1]
            assert re.search(r'kubechronicle_restarts_total\{task="garbage-collector"\} [1-9]', page)
            nursery.cancel_scope.cancel()
    print(f"{len(struck)} tasks were struck")
    assert len(struck) > len(EXPECTED)
    said = [record for record in caplog.records if record.message == "A task failed and is started again"]
    assert all(record.exc_info for record in said)
