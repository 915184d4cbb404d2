"""Fixtures of the real-client tests. The yielded objects are in harness.py and programs.py."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from harness import BINARIES, SERVERS, Cluster, Server, cluster_in, home, prepare, server_in
from programs import Kubectl

LOG_SHOWN = 6000  # characters of each server's log shown with a failure


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect combinations of kubectl and kind that a test file does not want (its function ``wanted``)."""

    def is_wanted(item: pytest.Item) -> bool:
        parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        wanted = getattr(getattr(item, "module", None), "wanted", None)
        if wanted is None or not parameters.keys() >= {"kubectl_binary", "kind"}:
            return True
        every_kind = item.get_closest_marker("every_kind") is not None
        return bool(wanted(parameters["kubectl_binary"], parameters["kind"], every_kind))

    unwanted = [item for item in items if not is_wanted(item)]
    if unwanted:
        items[:] = [item for item in items if is_wanted(item)]
        config.hook.pytest_deselected(items=unwanted)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the log lines of the servers with a failed test."""
    report = yield
    if Path(__file__).parent in item.path.parents and report.when == "call":
        for server in SERVERS:
            logged = server.new_log()
            if report.failed and logged:
                report.sections.append((f"log of {server.data_dir.name}", logged[-LOG_SHOWN:]))
    return report


@pytest.fixture(scope="session", autouse=True)
def end_in_order() -> Iterator[None]:
    """Stop the servers when the run gets SIGTERM (the time limit of a CI job), as with Ctrl-C."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One server on its embedded Postgres, shared by tests that leave it healthy."""
    with home("server") as directory:
        server = server_in(directory / "data")
        try:
            yield server.start()
        finally:
            server.close()


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server for one test that kills it; not started yet."""
    with home("own") as directory:
        server = server_in(directory / "data")
        try:
            yield server
        finally:
            server.close()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Two servers on one Postgres, for one test."""
    with home("cluster") as directory, cluster_in(directory) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def informers() -> Path:
    prepare("informers")
    return BINARIES / "informers"


@pytest.fixture(scope="session", params=["kubectl of the served version", "kubectl on PATH"])
def kubectl_binary(request: pytest.FixtureRequest) -> str:
    """The kubectl of the served API version, and the one installed on PATH."""
    if request.param == "kubectl of the served version":
        prepare("kubectl")
        return str(BINARIES / "kubectl")
    path = shutil.which("kubectl", path=os.environ.get("PATH", os.defpath))
    if path is None or Path(path).parent == BINARIES:
        pytest.skip("no kubectl on PATH")
    return path


@pytest.fixture(scope="session")
def kubectl(kubectl_binary: str, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """kubectl with a namespace of its own. Tests remove the cluster-scoped objects they create."""
    api = server.api()
    name = "kubectl-served" if str(BINARIES) in kubectl_binary else "kubectl-path"
    api.namespace(name)
    yield Kubectl(kubectl_binary, server, tmp_path_factory.mktemp("kubectl-home"), name)
    api.close()
