"""Fixtures of sessions with containers: pods on a stand-in of a kubelet, over WebSocket and over SPDY."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from programs import Kubectl

from tests.clients.nodes.session_pods import SPDY, Pod, kubelet_in, pod_on


@pytest.fixture(scope="module")
def kubelet_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with kubelet_in(tmp_path_factory.mktemp("kubelet")) as (_, port):
        yield port


@pytest.fixture(params=[{}, SPDY], ids=["websocket", "spdy"])
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    return dict(request.param)


@pytest.fixture
def pod(kubectl: Kubectl, environment: dict[str, str], kubelet_port: int) -> Iterator[Pod]:
    with pod_on(kubectl, environment, kubelet_port) as pod:
        yield pod
