"""Fixtures of the tests with a real node. `make test` leaves them out; `make test-node` runs them.

One cluster serves all tests. A test that stops a part of it starts it again.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import pytest
from harness import prepare, unique

from kubechronicle.ops.development.real_node.node import Node, running_node
from kubechronicle.ops.development.real_node.programs import Unavailable
from kubechronicle.ops.development.real_node.servers import our_server

if not os.environ.get("KUBECHRONICLE_REAL_NODE"):
    collect_ignore_glob = ["test_*.py"]

SPDY = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false", "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false"}
_clusters: list[Node] = []


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    """A cluster of one real node."""
    prepare("kubectl")
    try:
        with running_node(our_server) as node:
            _clusters.append(node)
            yield node
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(params=[{}, SPDY], ids=["websocket", "spdy"])
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment that makes kubectl use one of the two protocols of sessions."""
    return dict(request.param)


@pytest.fixture
def namespace(node: Node) -> Iterator[str]:
    """A namespace with its service account, for one test."""
    name = unique("test")
    node.kubectl("create", "namespace", name)
    node.kubectl("wait", f"--namespace={name}", "--for=create", "serviceaccount/default", "--timeout=60s")
    yield name
    node.kubectl("delete", "namespace", name, "--wait=false")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the ends of the components' logs with a failed test."""
    report = yield
    if report.failed and report.when == "call":
        report.sections += [("logs of the node", cluster.logs()) for cluster in _clusters]
    return report
