"""The fixtures of `pip install "kubechronicle[pytest]"` (docs/testing.md). pytest finds this module by its entry point.

Every run of pytest imports it, so it imports next to nothing.

    kubernetes             the cluster of a test, clean at its beginning
    kubernetes_server      the server of the session; each process of pytest-xdist has its own
    kubernetes_manifests   override it: definitions and other objects that every test finds
    kubernetes_flags       override it: further flags of `kubechronicle serve`
    kubernetes_nodes       override it: the number of simulated nodes, on which pods run
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from kubechronicle.ops.testing.cluster import Cluster
    from kubechronicle.ops.testing.server import TestServer

FIXTURE: Final = "kubernetes"
READ_AT_IMPORT: Final = ("kubernetes.config.kube_config", "kubernetes_asyncio.config.kube_config")
"""Modules that read KUBECONFIG when they are imported, mostly before the first test."""
INCIDENTS: Final = "--kubernetes-incidents"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kubernetes", "tests on a Kubernetes API server (kubechronicle)")
    group.addoption(INCIDENTS, metavar="DIR", default="", help="where a failed test's history is written as HTML")


@pytest.fixture(scope="session")
def kubernetes_manifests() -> Sequence[str | Path]:
    """Return the YAML files, or patterns of them, of objects that every test finds."""
    return ()


@pytest.fixture(scope="session")
def kubernetes_flags() -> Sequence[str]:
    """Return further flags of the server."""
    return ()


@pytest.fixture(scope="session")
def kubernetes_nodes() -> int | None:
    """Return the number of simulated nodes. None: nothing is simulated, so pods stay Pending."""
    return None


@pytest.fixture(scope="session")
def kubernetes_server(
    kubernetes_manifests: Sequence[str | Path], kubernetes_flags: Sequence[str], kubernetes_nodes: int | None
) -> Iterator[TestServer]:
    """Yield the server of the session."""
    from kubechronicle.ops.testing.cluster import Cluster, is_ready
    from kubechronicle.ops.testing.server import TestServer

    simulated = [] if kubernetes_nodes is None else [f"--simulated-nodes={kubernetes_nodes}"]
    server = TestServer([*simulated, *kubernetes_flags])
    try:
        cluster = Cluster(server)
        for number in range(kubernetes_nodes or 0):
            cluster.wait_for(f"node/node-{number}", is_ready)
        cluster.apply(*kubernetes_manifests)
        server.keep()
        yield server
    finally:
        server.close()


@pytest.fixture
def kubernetes(kubernetes_server: TestServer, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Return a clean cluster. KUBECONFIG names its kubeconfig, so that clients and programs find it by themselves."""
    from kubechronicle.ops.testing.cluster import Cluster

    kubernetes_server.reset()
    file = str(kubernetes_server.kubeconfig)
    monkeypatch.setenv("KUBECONFIG", file)
    for name in READ_AT_IMPORT:
        if name in sys.modules:
            monkeypatch.setattr(sys.modules[name], "KUBE_CONFIG_DEFAULT_LOCATION", file)
    return Cluster(kubernetes_server)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the incident of a failed test to its report."""
    report = yield
    cluster: Any = getattr(item, "funcargs", {}).get(FIXTURE)
    if report.when == "call" and report.failed and cluster is not None and hasattr(cluster, "history"):
        from kubechronicle.ops.testing.incident import incident_of

        folder = item.config.getoption(INCIDENTS)
        place = Path(folder) if folder else Path(item.config.cache.mkdir("kubernetes"))
        report.sections.append(incident_of(cluster, item.nodeid, str(report.longreprtext), place))
    return report
