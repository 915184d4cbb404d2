"""The container image: built from the Containerfile, and run as the manifests run it.

`make test-image` runs it, as root, with podman, buildah, runc and debootstrap. The base image is a Debian that
debootstrap makes, as no registry of images is asked. It trusts the certificate authorities of this machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import eventually, home

from kubechronicle.ops.version import VERSION

ROOT = Path(__file__).resolve().parents[3]
BASE, IMAGE = "localhost/kubechronicle-test-base", "localhost/kubechronicle-test"
AUTHORITIES = Path("etc/ssl/certs/ca-certificates.crt")
INCLUDED = "python3,python3-venv,ca-certificates"
NEEDED = ("podman", "buildah", "runc", "debootstrap")
PATIENCE = 120.0
# runc also takes a machine with cgroups of both versions. podman's own limits exceed the hard ones of some machines.
RUN = (
    "podman", "--runtime", "runc", "run", "--network", "host", "--read-only", "--ulimit", "nofile=8192:8192",
    "--ulimit", "nproc=4096:4096",
)  # fmt: skip

if not os.environ.get("KUBECHRONICLE_IMAGE"):
    pytest.skip("make test-image runs it", allow_module_level=True)


def run(*command: str | Path, check: bool = True) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout.strip()


@pytest.fixture(scope="module")
def image() -> str:
    missing = [name for name in NEEDED if not shutil.which(name)]
    assert not missing, f"apt-get install {' '.join(missing)}"
    assert os.geteuid() == 0, "debootstrap must be run by root"
    if not run("buildah", "images", "--quiet", "--filter", f"reference={BASE}"):
        make_base()
    run(
        "podman", "build", "--isolation", "chroot", "--network", "host", "--build-arg", f"BASE={BASE}",
        "--file", "ops/install/Containerfile", "--tag", IMAGE, ".",
    )  # fmt: skip
    return IMAGE


def make_base() -> None:
    with home("image") as folder:
        run("debootstrap", "--variant=minbase", f"--include={INCLUDED}", "bookworm", folder / "root")
        shutil.copy("/" / AUTHORITIES, folder / "root" / AUTHORITIES)
        container = run("buildah", "from", "scratch")
        run("buildah", "copy", "--quiet", container, folder / "root", "/")
        run("buildah", "config", "--env", f"PIP_CERT=/{AUTHORITIES}", container)
        run("buildah", "commit", "--quiet", container, BASE)
        run("buildah", "rm", container)


@pytest.fixture
def data(image: str) -> Iterator[str]:
    name = f"kubechronicle-test-{os.getpid()}"
    run("podman", "volume", "create", name)
    yield name
    run("podman", "volume", "rm", "--force", name)


def start(image: str, data: str, *flags: str) -> str:
    """Run the server in a container, and return the container once it is ready."""
    container = run(
        *RUN, "--detach", "--tmpfs", "/tmp", "--cap-drop", "all", "--security-opt", "no-new-privileges",
        "--volume", f"{data}:/data", image, "--secure-port", "0", *flags,
    )  # fmt: skip
    eventually(lambda: "is ready at" in logs(container), "a ready server", timeout=PATIENCE)
    return container


def logs(container: str) -> str:
    assert run("podman", "inspect", "--format", "{{.State.Running}}", container) == "true", run(
        "podman", "logs", container, check=False
    )
    done = subprocess.run(["podman", "logs", container], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def test_a_server_without_rights_keeps_its_data(image: str, data: str) -> None:
    """Embedded Postgres, all in /data: a second container finds the first one's objects."""
    containers = [start(image, data)]
    try:
        ask = ("podman", "exec", containers[0])
        assert run(*ask, "id", "-u") == "65532"
        assert "Read-only file system" in shell(containers[0], "touch /opt/kubechronicle/x 2>&1 || true")
        client = "/opt/kubechronicle/bin/kubectl-chronicle"
        kubeconfig = ("--kubeconfig", "/data/admin.kubeconfig")
        assert "namespaces/default" in run(*ask, client, "log", "namespace/default", *kubeconfig)
        began = time.monotonic()
        run("podman", "stop", "--time", "60", containers[0])
        assert time.monotonic() - began < 50, "SIGTERM drains the server"
        assert run("podman", "inspect", "--format", "{{.State.ExitCode}}", containers[0]) == "0"
        containers.append(start(image, data))
        found = run("podman", "exec", containers[1], client, "log", "namespace/default", *kubeconfig)
        assert "create" in found.lower()
        assert "verified revisions 1 to" in shell(containers[1], "kubechronicle verify --data-dir /data")
    finally:
        for container in containers:
            run("podman", "rm", "--force", "--time", "5", container)


def shell(container: str, command: str) -> str:
    return run("podman", "exec", container, "sh", "-c", command)


def test_the_labels(image: str) -> None:
    form = '{{index .Config.Labels "org.opencontainers.image.%s"}}'
    labels = {
        name: run("podman", "inspect", "--format", form % name, image) for name in ("licenses", "version", "title")
    }
    assert labels == {"licenses": "Apache-2.0", "version": VERSION, "title": "kubechronicle"}


def test_two_builds_are_equal(image: str) -> None:
    """All layers of two builds from one commit have equal digests."""
    digests = []
    for number in range(2):
        tag = f"{IMAGE}-{number}"
        run(
            "podman", "build", "--isolation", "chroot", "--network", "host", "--no-cache", "--timestamp", "1700000000",
            "--build-arg", f"BASE={BASE}", "--file", "ops/install/Containerfile", "--tag", tag, ".",
        )  # fmt: skip
        digests.append(run("podman", "inspect", "--format", "{{.RootFS.Layers}}", tag))
    assert digests[0] == digests[1]


def test_a_mistake_of_the_operator_is_one_line(image: str) -> None:
    done = subprocess.run([*RUN, "--rm", image, "--no-such-flag"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
