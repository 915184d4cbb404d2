"""One run of a test: a process of its own, whose servers and databases are removed afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kubechronicle.ops.development.differential import reference
from kubechronicle.ops.development.integration import databases, outcomes
from kubechronicle.ops.development.integration.databases import Databases
from kubechronicle.ops.development.integration.outcomes import Outcome
from kubechronicle.ops.development.integration.programs import PLAN, Package
from kubechronicle.ops.development.integration.sources import CACHE
from kubechronicle.ops.pki import Pki, serving_names

PORTS: Final = (20600, 20789)
"""Ports of the servers, below those that Linux gives to connections."""
PATIENCE: Final = 60.0
"""Seconds for a test program to end after its own time-out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The parts that all runs share. ``flags``: those of ``program``. ``etcd``: its folder, for servers in process."""

    databases: Databases
    program: str
    flags: tuple[str, ...]
    etcd: Path | None = None

    @property
    def logs(self) -> Path:
        return CACHE / ("logs" if self.etcd is None else "logs-in-process")


def make_keys() -> None:
    """Make the keys and certificates of all servers, once."""
    home, key = CACHE / "home", CACHE / "home" / "accounts.key"
    home.mkdir(parents=True, exist_ok=True)
    Pki(home).ensure(serving_names(addresses=[ip_address("127.0.0.1")]))
    if not key.exists():
        made = ec.generate_private_key(ec.SECP256R1())
        key.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def flags_of(program: str) -> tuple[str, ...]:
    """Return the names of the flags of a server."""
    from kubechronicle.ops.development.kinds.running import flags_of as flags_in

    shown = subprocess.run([program, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    return tuple(flags_in(shown))


def run(site: Site, package: Package, test: str, *, number: int, timeout: int) -> Outcome:
    """Run a test, and return its outcome. ``number``: of the run, so that names of databases differ."""
    logs = site.logs / package.name.replace("/", "_") / test
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    prefix = f"kc_{os.getpid()}_{number}_"
    temporary = tempfile.mkdtemp(prefix=prefix)  # its path is short enough for sockets of tests
    environment = site.databases.environment | {"TMPDIR": temporary}
    if site.etcd is not None:
        environment["PATH"] = f"{site.etcd}:{os.environ['PATH']}"
    else:
        (logs / "plan.json").write_text(json.dumps(plan(site, logs, prefix)))
        environment[PLAN] = str(logs / "plan.json")
    began = time.monotonic()
    code = _finished(package, test, environment, logs / "output.txt", timeout)
    seconds = time.monotonic() - began
    text = (logs / "output.txt").read_text(errors="replace")
    site.databases.drop(prefix)
    shutil.rmtree(temporary, ignore_errors=True)
    return outcomes.read(text, package=package.name, test=test, code=code, seconds=seconds)


def plan(site: Site, logs: Path, prefix: str) -> Mapping[str, Any]:
    """Return what the overlay reads (overlay/chronicle/plan.go)."""
    home = CACHE / "home"
    return {
        "Program": site.program, "PKI": str(home / "pki"), "Key": str(home / "accounts.key"), "Flags": site.flags,
        "Logs": str(logs), "Ports": PORTS, "Prefix": prefix, "Template": databases.TEMPLATE,
        "Database": site.databases.url("{}"), "Psql": site.databases.psql,
    }  # fmt: skip


def _finished(package: Package, test: str, environment: Mapping[str, str], output: Path, timeout: int) -> int:
    """Wait for the end of a test program, and return its exit code. Its servers end with it."""
    command = [str(package.program), f"-test.run=^{test}$", "-test.v", f"-test.timeout={timeout}s"]
    with output.open("w") as file:
        child = subprocess.Popen(
            command, cwd=package.folder, env=environment, stdout=file, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            return child.wait(timeout + PATIENCE)
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def etcd_folder() -> Path:
    """Return the folder of etcd. Unavailable: there is none, and it cannot be built."""
    return reference.programs()[1].parent
