"""`kubechronicle up` with the real programs, if they have been built: a Deployment runs, and a Job completes."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubechronicle.ops.cluster import programs
from kubechronicle.ops.cluster.up import Api
from kubechronicle.ops.development.server_process import ServerProcess

PATIENCE = 60.0
APPS, BATCH = "/apis/apps/v1/namespaces/default", "/apis/batch/v1/namespaces/default"


def eventually(look: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not look():
        assert time.monotonic() < end
        time.sleep(0.2)


def template(name: str) -> dict[str, Any]:
    container = {"name": "c", "image": "example.com/image"}
    return {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}


@pytest.mark.parametrize(
    ("chosen", "needed"),
    [
        ((), ("kube-controller-manager",)),
        (("--kube-scheduler", "--kwok"), ("kube-controller-manager", "kube-scheduler", "kwok")),
    ],
    ids=["simulated by the server", "real scheduler and kwok"],
)
def test_a_deployment_runs_and_a_job_completes(
    tmp_path: Path, chosen: tuple[str, ...], needed: tuple[str, ...]
) -> None:
    if not all((programs.cache() / name).is_file() for name in needed):
        pytest.skip("the programs have not been built; `kubechronicle up` does that")
    for folder in (tmp_path, *tmp_path.parents):
        if str(folder).startswith("/tmp/pytest") and folder.owner() == tmp_path.owner():
            folder.chmod(0o755)  # for the user of the embedded Postgres
    home = tmp_path / "cluster"
    command = [*ServerProcess.command(), "up", "--data-dir", str(home), "--secure-port", "0", "--nodes", "2", *chosen]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        assert lines[1].startswith("2 simulated nodes are ready"), lines
        api = Api(home / "admin.kubeconfig")
        web = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template("web")}
        deployment = {"metadata": {"name": "web"}, "spec": web}
        assert api.ask("POST", f"{APPS}/deployments", deployment)[0] == 201
        eventually(lambda: api.ask("GET", f"{APPS}/deployments/web")[1]["status"].get("availableReplicas") == 3)
        pods = api.ask("GET", "/api/v1/namespaces/default/pods")[1]["items"]
        assert {pod["status"]["phase"] for pod in pods} == {"Running"}
        job = template("once")
        job["spec"]["restartPolicy"] = "Never"
        made = {"metadata": {"name": "once"}, "spec": {"template": job}}
        assert api.ask("POST", f"{BATCH}/jobs", made)[0] == 201
        eventually(lambda: api.ask("GET", f"{BATCH}/jobs/once")[1]["status"].get("succeeded") == 1)
        api.ask("DELETE", f"{APPS}/deployments/web")
        eventually(
            lambda: len(api.ask("GET", "/api/v1/namespaces/default/pods?labelSelector=app=web")[1]["items"]) == 0
        )
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.communicate()
