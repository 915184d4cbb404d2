"""`kubechronicle up` with stand-ins for the programs beside the server, and how programs are found."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubechronicle.api.simulation.scheduling import new_node
from kubechronicle.ops.cluster import programs
from kubechronicle.ops.cluster.builds import Builds, Stopped
from kubechronicle.ops.cluster.up import OF_CLUSTER, Api, components
from kubechronicle.ops.development.server_process import ServerProcess
from kubechronicle.ops.errors import OperatorError

PATIENCE = 120.0
SLEEPER = """#!/bin/sh
case "$1" in --version) echo Kubernetes v1.37.2; exit;; esac
exec sleep 1000
"""
# Makes nodes ready, as kwok does.
STAND_IN = f"""#!{sys.executable}
import sys, time
from pathlib import Path
from kubechronicle.ops.cluster.up import Api
flags = dict(each.lstrip("-").split("=", 1) for each in sys.argv[1:])
api, done = Api(Path(flags["kubeconfig"])), set()
while True:
    for item in api.ask("GET", "/api/v1/nodes")[1]["items"]:
        if item["metadata"]["name"] not in done:
            item["status"]["conditions"] = [{{"type": "Ready", "status": "True"}}]
            api.ask("PUT", "/api/v1/nodes/" + item["metadata"]["name"] + "/status", item)
            done.add(item["metadata"]["name"])
    time.sleep(0.1)
"""


def script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with stand-ins for all programs."""
    made = tmp_path / "programs"
    made.mkdir()
    for name in programs.OF_KUBERNETES:
        script(made / name, SLEEPER)
    script(made / "kwok", STAND_IN)
    return made


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that the user of the embedded Postgres can enter. Those of pytest close when another pytest starts."""
    with tempfile.TemporaryDirectory(prefix="kubechronicle-up-") as made:
        Path(made).chmod(0o755)
        yield Path(made) / "cluster"


def up(home: Path, folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    command = [*ServerProcess.command(), "up", "--data-dir", str(home), "--secure-port", "0", "--programs", str(folder)]
    own = {"PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(home.parent / "cache")}
    others = {name: value for name, value in os.environ.items() if name not in ("BROWSER", "DISPLAY")}
    return subprocess.Popen(
        [*command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**others, **own, **environment},
    )


def line_of(process: subprocess.Popen[str], start: str) -> str:
    """Return the next line, which begins so."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith(start), (line, process.communicate(timeout=PATIENCE) if not line else "")
    return line


def test_a_cluster_without_programs_runs_pods_and_opens_its_page(home: Path, tmp_path: Path) -> None:
    script(tmp_path / "browser", f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    process = up(home, tmp_path / "none", "--no-build", "--nodes", "2", BROWSER=str(tmp_path / "browser"))
    try:
        line_of(process, "the API server is ready")
        line_of(process, "2 simulated nodes are ready; stop the cluster with Ctrl-C")
        assert str(home / "admin.kubeconfig") in line_of(process, "  export KUBECONFIG=")
        assert line_of(process, "  kubectl run web --image nginx")
        line_of(process, "  kubectl get pods --watch")
        url = line_of(process, "the page that tells the history: http://127.0.0.1:").split()[-1]
        line_of(
            process, "there is no kube-controller-manager: Deployments, StatefulSets, DaemonSets and Jobs get no pods."
        )
        assert (tmp_path / "opened").read_text().strip() == url
        api = Api(home / "admin.kubeconfig")
        assert len(api.ask("GET", "/api/v1/nodes")[1]["items"]) == 2
        pod = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "example.com/image"}]}}
        assert api.ask("POST", "/api/v1/namespaces/default/pods", pod)[0] == 201
        watched = "/api/v1/namespaces/default/pods?fieldSelector=status.phase%3DRunning"
        until = time.monotonic() + PATIENCE
        while not api.ask("GET", watched)[1]["items"]:
            assert time.monotonic() < until
            time.sleep(0.1)
        assert {path.stem for path in (home / "logs").iterdir()} == {"kube-apiserver", "ui"}
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        with pytest.raises(OSError, match="refused"):
            api.ask("GET", "/readyz")
    finally:
        process.kill()
        process.communicate()


def test_a_cluster_with_all_programs(home: Path, folder: Path) -> None:
    process = up(home, folder, "--nodes", "2", "--kwok", "--no-ui")
    try:
        line_of(process, "the API server is ready")
        line_of(process, "2 simulated nodes are ready")
        line_of(process, "  export KUBECONFIG=")
        line_of(process, "  kubectl create deployment web")
        assert {path.stem for path in (home / "logs").iterdir()} == {"kube-apiserver", *OF_CLUSTER}
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_chosen_program_that_is_not_there(home: Path, tmp_path: Path) -> None:
    process = up(home, tmp_path / "none", "--no-build", "--kwok")
    errors = process.communicate(timeout=PATIENCE)[1]
    assert (process.returncode, errors) == (
        2, "kubechronicle: --kwok: there is no such program; put it on PATH or into --programs\n"
    )  # fmt: skip


def test_the_end_of_a_component_stops_the_cluster(home: Path, folder: Path) -> None:
    script(folder / "kube-scheduler", SLEEPER.replace("exec sleep 1000", "echo no such flag >&2; exit 3"))
    process = up(home, folder)
    output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2, output
    assert errors.startswith("kubechronicle: kube-scheduler has ended with code 3: no such flag (")
    assert errors.count("\n") == 1


@pytest.mark.parametrize("nodes", ["0", "1001"])
def test_a_wrong_number_of_nodes(home: Path, folder: Path, nodes: str) -> None:
    process = up(home, folder, "--nodes", nodes)
    errors = process.communicate(timeout=PATIENCE)[1]
    assert (process.returncode, errors) == (2, f"kubechronicle: --nodes: must be between 1 and 1000, got {nodes}\n")


def test_programs_of_another_version_are_not_taken(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(folder))
    said: list[str] = []
    found = programs.find_or_build(None, Builds(said.append), programs.PACKAGES)
    assert found == {name: folder / name for name in programs.PACKAGES}
    script(folder / "kube-scheduler", SLEEPER.replace("v1.37.2", "v1.30.1"))
    monkeypatch.setattr(programs, "find_go", _no_go)
    with pytest.raises(OperatorError, match="kube-scheduler could not be built"):
        programs.find_or_build(folder, Builds(said.append), programs.PACKAGES)
    assert said == ["building kube-scheduler from its Go module (1 of 1): minutes, the first time"]


def _no_go(folder: Path, builds: Builds) -> str:
    raise ValueError("there is no Go here")


def test_the_objects_of_nodes() -> None:
    assert new_node(3)["metadata"]["name"] == "node-3"
    assert json.dumps(new_node(3))
    paths = {name: Path("/p") / name for name in programs.PACKAGES}
    assert [each.name for each in components(paths, paths, Path("/pki"))] == list(OF_CLUSTER)


def test_environment_without_a_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert programs.environment()["GOCACHE"].startswith(str(tmp_path))


# A `go` that fetches and compiles for as long as nobody stops it, with a compiler of its own.
SLOW_GO = """#!/bin/sh
case "$1 $2" in
"env GOVERSION") echo go1.26.1 ;;
"mod tidy") echo "go: downloading example.com/one v1.0.0" >&2 ;;
"list -deps") printf '.\\n.\\n.\\n.\\n' ;;
"build -v") for each in 1 2 3 4; do echo "example.com/$each" >&2; done; echo $$ > "$PIDS"; sleep 1000 & wait ;;
esac
"""


def build_slowly(folder: Path, tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    """Run `up --kwok` without kwok, with a build that does not end."""
    (folder / "kwok").unlink(missing_ok=True)
    script(tmp_path / "go", SLOW_GO)
    environment = {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [
        *ServerProcess.command(),
        "up",
        "--kwok",
        "--data-dir",
        str(tmp_path / "home"),
        "--programs",
        str(folder),
    ]
    return subprocess.Popen(
        [*command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment, "PIDS": str(tmp_path / "pids")},
    )


def test_a_build_shows_progress_a_second_one_waits_and_ctrl_c_ends_both(folder: Path, tmp_path: Path) -> None:
    first = build_slowly(folder, tmp_path, "--secure-port", "0")
    assert first.stdout is not None
    assert first.stdout.readline() == "building kwok from its Go module (1 of 1): minutes, the first time\n"
    assert [first.stdout.readline() for _ in range(4)] == [
        f"kwok: compiling: {count} of 4 packages\n" for count in (1, 2, 3, 4)
    ]
    second = build_slowly(folder, tmp_path, "--secure-port", "0")
    assert second.stdout is not None
    assert second.stdout.readline().startswith(f"waiting for process {first.pid}, which builds the programs in ")
    for process in (second, first):
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0, process.communicate()
        process.communicate()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pids").read_text()), 0)


def test_a_port_in_use_is_told_before_a_build(folder: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = build_slowly(folder, tmp_path, "--secure-port", str(taken.getsockname()[1]))
        output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output) == (2, "")
    assert "of 127.0.0.1 is in use; stop the program that uses it or choose another --secure-port" in errors


def test_builds_that_were_stopped_run_nothing_more(tmp_path: Path) -> None:
    builds = Builds(print)
    assert builds.run(["echo", "done"], tmp_path, os.environ) == "done\n"
    with pytest.raises(subprocess.CalledProcessError) as failed:
        builds.run(["sh", "-c", "echo why >&2; exit 3"], tmp_path, os.environ)
    assert (failed.value.returncode, failed.value.stderr) == (3, "why\n")
    builds.stop()
    with pytest.raises(Stopped):
        builds.run(["echo"], tmp_path, os.environ)


def test_a_cluster_runs_while_the_controller_manager_is_built(home: Path, folder: Path, tmp_path: Path) -> None:
    """The build of this `go` makes a stand-in, which the cluster starts."""
    manager = folder / "kube-controller-manager"
    manager.rename(tmp_path / "stand-in")
    script(
        tmp_path / "go",
        SLOW_GO.replace(
            "sleep 1000 & wait ;;", f'while [ "$1" != -o ]; do shift; done; cp {tmp_path}/stand-in "$2" ;;'
        ),
    )
    module = tmp_path / "module"
    module.mkdir()
    (module / "go.mod").write_text("module k8s.io/kubernetes\n\ngo 1.26.0\n\nk8s.io/api => ./staging/src/k8s.io/api\n")
    with (tmp_path / "go").open("a") as added:
        added.write(f'case "$1 $2" in "mod download") echo \'{{"Dir": "{module}"}}\' ;; esac\n')
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PIDS": str(tmp_path / "pids")}
    process = up(home, folder, "--nodes", "1", "--no-ui", **environment)
    try:
        line_of(process, "the API server is ready")
        line_of(process, "1 simulated nodes are ready")
        for _ in range(3):
            line_of(process, "  ")
        line_of(process, "kube-controller-manager is being built, while everything else runs. Until then, Deployments,")
        line_of(process, "building kube-controller-manager from its Go module (1 of 1): minutes, the first time")
        for count in (1, 2, 3, 4):
            line_of(process, f"kube-controller-manager: compiling: {count} of 4 packages")
        line_of(process, "kube-controller-manager runs; try: kubectl create deployment web --image nginx --replicas 3")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_build_that_fails_leaves_the_cluster_running(home: Path, tmp_path: Path) -> None:
    script(
        tmp_path / "go", SLOW_GO.replace('"mod tidy")', '"mod download") echo "no network" >&2; exit 1 ;;\n"mod tidy")')
    )
    process = up(home, tmp_path / "none", "--no-ui", PATH=f"{tmp_path}:/usr/bin:/bin")
    try:
        for start in (
            "the API server",
            "3 simulated",
            "  ",
            "  ",
            "  ",
            "kube-controller-manager is being built",
            "building",
        ):
            line_of(process, start)
        assert line_of(process, "kube-controller-manager could not be built (no network)").endswith(
            "; the cluster runs on without it\n"
        )
        assert Api(home / "admin.kubeconfig").ask("GET", "/api/v1/namespaces")[0] == 200
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
