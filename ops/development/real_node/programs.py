"""The programs of a real node, built from their Go modules into .cache/node/bin.

A program is built again after a change of its module's version. ``python -m kubechronicle.ops.development.real_node``
calls ``programs``; so do the tests. Machines differ in what they offer, so each requirement that is missing becomes one
line of text: ``Unavailable``.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kubechronicle.api.kinds import RELEASE
from kubechronicle.ops.cluster.programs import version_flags
from kubechronicle.ops.development.differential.reference import (
    find_go,
    go_environment,
    kubernetes_module,
)

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / ".cache" / "node"
BIN = CACHE / "bin"
BUILD_TIMEOUT = 7200.0  # the first build on a small machine

STAGING_MODULE = "kubernetes"  # the module whose go.mod is generated: k8s.io/kubernetes replaces its own libraries
MODULES = {
    "containerd": ("github.com/containerd/containerd/v2", "v2.2.2"),
    "plugins": ("github.com/containernetworking/plugins", "v1.9.1"),
    "coredns": ("github.com/coredns/coredns", "v1.14.7"),
    "metrics-server": ("sigs.k8s.io/metrics-server", "v0.9.0"),
}
"""Module and version by the folder in .cache/node/src."""


class Unavailable(Exception):
    """A real node cannot run here; the message is one line that says why, and how to change it."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program in .cache/node/bin. ``static``: for images without a C library; ``test``: built by `go test -c`."""

    name: str
    module: str
    package: str
    static: bool = False
    test: bool = False


def _kubernetes(*names: str) -> list[Program]:
    return [Program(name, STAGING_MODULE, f"k8s.io/kubernetes/cmd/{name}") for name in names]


def _plugins(*paths: str) -> list[Program]:
    module = MODULES["plugins"][0]
    return [Program(path.rpartition("/")[2], "plugins", f"{module}/plugins/{path}") for path in paths]


def _containerd(*names: str) -> list[Program]:
    return [Program(name, "containerd", f"{MODULES['containerd'][0]}/cmd/{name}") for name in names]


NODE = (
    *_kubernetes("kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy"),
    *_containerd("containerd", "containerd-shim-runc-v2", "ctr"),
    *_plugins("main/bridge", "main/loopback", "ipam/host-local", "meta/portmap"),
    Program("agnhost", STAGING_MODULE, "k8s.io/kubernetes/test/images/agnhost", static=True),
    Program("coredns", "coredns", MODULES["coredns"][0], static=True),
    Program("metrics-server", "metrics-server", f"{MODULES['metrics-server'][0]}/cmd/metrics-server", static=True),
)
SPECS = (
    Program("e2e.test", STAGING_MODULE, "k8s.io/kubernetes/test/e2e", test=True),
    Program("ginkgo", STAGING_MODULE, "github.com/onsi/ginkgo/v2/ginkgo"),
    Program("sample-apiserver", STAGING_MODULE, "k8s.io/sample-apiserver", static=True),
    Program("nonewprivs", STAGING_MODULE, "k8s.io/kubernetes/test/images/nonewprivs", static=True),
)
"""Programs that only the upstream end-to-end tests need."""

# Programs of the machine, with the Debian packages that contain them.
MACHINE = {
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "busybox": "busybox",
    "bash": "bash",
    "gcc": "gcc libc6-dev",
}


def check_machine() -> None:
    """Raise Unavailable for the first thing that this machine lacks."""
    if os.geteuid() != 0:
        raise Unavailable("a real node needs root: for network namespaces, mounts and cgroups")
    for program, package in MACHINE.items():
        if shutil.which(program) is None:
            raise Unavailable(f"a real node needs {program}, which is not installed: apt-get install {package}")
    if not Path("/sys/fs/cgroup").is_dir() or "cgroup" not in Path("/proc/mounts").read_text():
        raise Unavailable("a real node needs cgroups, and none are mounted at /sys/fs/cgroup")


def build(wanted: Sequence[Program]) -> None:
    """Build the programs that are missing or of another version. Another process that builds is waited for.

    Raises Unavailable with the last line of the build's output.
    """
    check_machine()
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [program for program in wanted if not _is_built(program)]
        if not missing:
            return
        try:
            go = find_go()
            for module in dict.fromkeys(program.module for program in missing):
                _write_module(go, module)
            for program in missing:
                _compile(go, program)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            detail = getattr(error, "stderr", None) or str(error)
            raise Unavailable(f"a program of the node was not built: {str(detail).strip().splitlines()[-1]}") from error


def version_of(module: str) -> str:
    return RELEASE if module == STAGING_MODULE else MODULES[module][1]


def module_folder(go: str, module: str) -> Path:
    """Return the folder with the sources of a module, such as the C file of the pause image."""
    path = "k8s.io/kubernetes" if module == STAGING_MODULE else MODULES[module][0]
    folder = _run(go, "list", "-m", "-f", "{{.Dir}}", path, folder=CACHE / "src" / module)
    return Path(folder.strip())


def _is_built(program: Program) -> bool:
    stamp = BIN / f".{program.name}.version"
    return (BIN / program.name).is_file() and stamp.is_file() and stamp.read_text() == version_of(program.module)


def _write_module(go: str, name: str) -> None:
    """Write a module that requires the wanted one, and imports every program of it, so that one go.sum fits all."""
    folder = CACHE / "src" / name
    folder.mkdir(parents=True, exist_ok=True)
    stamp = folder / "version"
    packages = sorted(program.package for program in (*NODE, *SPECS) if program.module == name)
    wanted = "\n".join([version_of(name), *packages])
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    if name == STAGING_MODULE:
        text = kubernetes_module(go)
    else:
        path, version = MODULES[name]
        text = f"module tools\n\ngo 1.26.0\n\nrequire {path} {version}\n"
    (folder / "go.mod").write_text(text)
    imports = "".join(f'import _ "{package}"\n' for package in packages)
    (folder / "tools.go").write_text(f"//go:build tools\n\npackage tools\n\n{imports}")
    _run(go, "mod", "tidy", folder=folder)
    stamp.write_text(wanted)


def _compile(go: str, program: Program) -> None:
    began = time.monotonic()
    new = BIN / f".{program.name}.new"
    flags = "-s -w"
    if program.module == STAGING_MODULE:
        flags += f" {version_flags()}"
    if program.static:
        flags += " -linkmode external -extldflags -static"
    command = ["test", "-c", "-vet=off"] if program.test else ["build"]
    _run(go, *command, "-ldflags", flags, "-o", str(new), program.package, folder=CACHE / "src" / program.module)
    new.rename(BIN / program.name)
    (BIN / f".{program.name}.version").write_text(version_of(program.module))
    print(f"real node: {program.name} built in {time.monotonic() - began:.0f} s", flush=True)


def _run(go: str, *arguments: str, folder: Path) -> str:
    BIN.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["nice", go, *arguments],
        cwd=folder, env=go_environment(), capture_output=True, text=True, check=True, timeout=BUILD_TIMEOUT,
    )  # fmt: skip
    return done.stdout
