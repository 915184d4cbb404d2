"""Sessions with containers in the log (--record): who entered which container with which command, and until when."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import postgres_fixture
import pytest
from harness import BINARIES, ROOT, Server, eventually, prepare
from programs import Kubectl

from tests.clients.nodes.session_pods import SPDY, Pod, kubelet_in, pod_on

POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- {level: Metadata}\n"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    place = tmp_path_factory.mktemp("record")
    (place / "policy.yaml").write_text(POLICY)
    flags = ["--record", str(place / "policy.yaml")]
    server = Server(place / "data", arguments=flags, port=postgres_fixture.free_port())
    try:
        yield server.start()
    finally:
        server.close()


@pytest.fixture(scope="module")
def kubectl(recording: Server, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    prepare("kubectl")
    recording.api().namespace("rooms")
    return Kubectl(str(BINARIES / "kubectl"), recording, tmp_path_factory.mktemp("home"), "rooms")


def sessions(server: Server) -> list[dict[str, Any]]:
    path = "/apis/history.kubechronicle.dev/v1/accessrecords?labelSelector=history.kubechronicle.dev/type=Session"
    found: list[dict[str, Any]] = server.api().request("GET", path).expect(200)["items"]
    return [each["spec"] for each in found]


@pytest.mark.parametrize("environment", [{}, SPDY], ids=["websocket", "spdy"])
def test_who_entered_a_pod_with_which_command_and_until_when(
    recording: Server, kubectl: Kubectl, environment: dict[str, str], tmp_path: Path
) -> None:
    def of(pod: Pod) -> list[dict[str, Any]]:
        return [each for each in sessions(recording) if each["name"] == pod.name]

    with kubelet_in(tmp_path) as (_, port), pod_on(kubectl, environment, port) as pod:
        with pod.running("exec", pod.name, "-c", "c", "--", "sh", "-c", "echo up; exec tail -f /dev/null") as lines:
            lines.until(lambda line: "up" in line)
            (spec,) = eventually(lambda: of(pod), "the session is recorded")
            assert (spec["user"], spec["namespace"], spec["container"]) == ("kubernetes-admin", "rooms", "c")
            assert spec["command"] == "sh -c echo up; exec tail -f /dev/null"
            assert "ended" not in spec
        eventually(lambda: "ended" in of(pod)[0], "the end is recorded")
        assert pod.exec("true").returncode == 0
        eventually(lambda: len([each for each in of(pod) if "ended" in each]) == 2, "the other session is recorded")
        printed = chronicle(recording, "who", "entered", f"pod/{pod.name}", "-n", "rooms")
        had = f"kubernetes-admin had an exec session with pod/{pod.name} -n rooms (container c)"
        assert printed.stdout.count(had) == 2
        assert "command   sh -c true" in printed.stdout


def chronicle(server: Server, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / ".venv" / "bin" / "kubectl-chronicle"), *arguments, "--kubeconfig", str(server.kubeconfig)]
    return subprocess.run(command, capture_output=True, text=True, check=True)
