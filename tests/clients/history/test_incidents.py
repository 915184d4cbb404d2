"""Public threads in which somebody lost objects (incidents/*.sh): one or two commands bring everything back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import BINARIES, HERE, Server, home, prepare, server_in

SCRIPTS = sorted(each for each in (HERE / "incidents").glob("*.sh") if each.name != "common.sh")
PATIENCE = 300.0


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """Start a server of these scripts alone, which delete cluster-wide objects. Return the environment for kubectl."""
    prepare("kubectl")
    with home("incidents") as directory:
        server = server_in(directory / "data")
        try:
            yield _environment(server.start(), directory)
        finally:
            server.close()


def _environment(server: Server, directory: Path) -> dict[str, str]:
    kubeconfig = server.data_dir / "admin.kubeconfig"
    view = [str(BINARIES / "kubectl"), "--kubeconfig", str(kubeconfig), "config", "view", "--raw", "-o", "json"]
    nobody = json.loads(subprocess.run(view, capture_output=True, text=True, check=True).stdout)
    nobody["users"] = []
    for each in nobody["contexts"]:
        each["context"].pop("user", None)
    (directory / "nobody.kubeconfig").write_text(json.dumps(nobody))
    programs = [str(BINARIES), str(Path(sys.executable).parent), os.environ["PATH"]]
    return {
        "PATH": os.pathsep.join(programs),
        "HOME": str(directory),
        "KUBECONFIG": str(kubeconfig),
        "ANONYMOUS": str(directory / "nobody.kubeconfig"),
    }


def test_there_are_fifteen_threads_and_each_script_names_its_own() -> None:
    threads = [script.read_text().splitlines()[1].partition(": ")[0] for script in SCRIPTS]
    assert len(set(threads)) == len(threads) >= 15
    assert all(each.startswith("# https://github.com/") for each in threads)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_the_state_before_the_loss_comes_back(script: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(["bash", script], capture_output=True, text=True, timeout=PATIENCE, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("as before the loss\n")
