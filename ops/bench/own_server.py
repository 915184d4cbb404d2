"""Servers that the benchmark starts on a data directory, one after another, loads on them, and a second Postgres."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kubechronicle.ops.bench.measure import Load, Target
from kubechronicle.ops.bench.usage import Sampler, Usage, between, ourselves
from kubechronicle.ops.development.server_process import ServerProcess, Stat, descendants, postmaster, running
from kubechronicle.ops.postgres.cluster import environment, launch_command, prepare, socket_url

# Seconds of rest before memory is read.
SETTLE_SECONDS = 2.0
START_TIMEOUT = 600.0  # seconds: for a million objects on a busy machine
POSTGRES_TIMEOUT = 60.0  # seconds
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class SecondDatabase:
    """``postmaster``: its process id. ``flags``: of a server that has Events and Leases in it."""

    postmaster: int
    flags: tuple[str, ...]


@contextlib.contextmanager
def second_database(directory: Path | None = None) -> Iterator[SecondDatabase]:
    """Run another embedded Postgres within the block, for --database-url-overrides.

    It is below ``directory`` (default: for temporary files).
    """
    home = Path(tempfile.mkdtemp(prefix="kubechronicle-second-", dir=directory))
    home.chmod(0o755)  # under root, Postgres runs as another user, who needs access
    try:
        cluster = prepare(home)
        command = launch_command(cluster.directory, cluster.account, cluster.programs.postgres, "-D", "{cluster}")
        with subprocess.Popen(command, env=environment(), start_new_session=True) as process:
            try:
                url = socket_url(cluster.directory)
                flag = f"/events#{url},coordination.k8s.io/leases#{url}"
                yield SecondDatabase(_wait_ready(cluster.directory), ("--database-url-overrides", flag))
            finally:
                process.terminate()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _wait_ready(cluster: Path) -> int:
    deadline = time.monotonic() + POSTGRES_TIMEOUT
    while time.monotonic() < deadline:
        pid = postmaster(cluster)
        if pid is not None and "ready" in (cluster / "postmaster.pid").read_text():
            return pid
        time.sleep(0.05)
    raise SystemExit("the second Postgres does not start")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The measured part of a load.

    ``memory``: MiB per group at its end
    ``seen``: the result of the load generator
    """

    usage: Usage
    memory: Mapping[str, float]
    seen: Mapping[str, Any]

    def cpu_us(self) -> dict[str, float]:
        """Return microseconds per operation of server and Postgres."""
        operations = max(1, self.seen["operations"])
        return {group: self.usage.cpu[group] / operations * 1e6 for group in ("server", "postgres")}


@dataclass(slots=True, kw_only=True)
class Running:
    """A running server, and the token and generator for loads on it."""

    server: ServerProcess
    token: Path
    load: Load
    settle: float = SETTLE_SECONDS
    workers: int = 1
    second: SecondDatabase | None = None
    sampler: Sampler = field(init=False)

    def __post_init__(self) -> None:
        postmaster = self.server.embedded_postgres()
        server_roots = [self.server.pid] + ([] if postmaster is None else [postmaster])
        server_roots += [] if self.second is None else [self.second.postmaster]
        self.sampler = Sampler(
            groups={
                "server": self.processes,
                "postgres": list if postmaster is None else partial(descendants, postmaster),
                "second": list if self.second is None else partial(descendants, self.second.postmaster),
                "load": partial(ourselves, without=lambda: server_roots),
            },
            cluster=self.server.data_dir / "postgres",
        )

    def run_load(self, **flags: str | int | float) -> Measured:
        """Run a load with these flags to its end. LoadError."""
        self.sampler.samples.clear()
        target = Target(flags=[*self.server_flags(), f"-token-file={self.token}"], groups={"all": self.sampler})
        _, seen = self.load.run(target, flags)
        before, after = self.sampler.samples[-2:]
        return Measured(usage=between(before, after), memory=after.memory, seen=seen)

    def processes(self) -> list[Stat]:
        """Return the processes of the server, or of all servers."""
        return self.server.processes()

    def server_flags(self) -> list[str]:
        """Return the load generator's flags for the address of the server."""
        return [f"-server={self.server.url}", f"-ca={self.server.data_dir / 'pki' / 'ca.crt'}"]

    def memory(self) -> Mapping[str, float]:
        """Return the MiB of server and Postgres at rest."""
        time.sleep(self.settle)
        self.sampler()
        return self.sampler.samples[-1].memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A data directory, and the token of an administrator."""

    data_dir: Path
    token: Path
    load: Load
    settle: float = SETTLE_SECONDS

    def arguments(self) -> list[str]:
        """Return arguments for each server. Namespaces must contain only the benchmark's ConfigMaps."""
        return ["--token-auth-file", str(self.token.with_name("tokens.csv")), "--controllers=*,-root-ca-cert-publisher"]

    @contextlib.contextmanager
    def serving(
        self,
        *arguments: str,
        workers: int = 1,
        environment: Mapping[str, str] | None = None,
        second: SecondDatabase | None = None,
    ) -> Iterator[Running]:
        """Run a server on the data directory. ``second``: the database of its Events and Leases."""
        workers_flag = ["--workers", str(workers)] if workers > 1 else []
        all_arguments = [*self.arguments(), *workers_flag, *(second.flags if second is not None else ()), *arguments]
        server = ServerProcess(self.data_dir, arguments=all_arguments, environment=environment)
        with running(server, timeout=START_TIMEOUT):
            yield Running(
                server=server, token=self.token, load=self.load, settle=self.settle, workers=workers, second=second
            )


@contextlib.contextmanager
def workspace(
    load: Load, *, directory: Path | None = None, kept: Path | None = None, settle: float = SETTLE_SECONDS
) -> Iterator[Workspace]:
    """Make a workspace below ``directory`` (default: for temporary files) and remove it afterwards.

    Or use ``kept``, which may exist, and stays.
    """
    if kept is not None:
        home = kept.absolute()
        home.mkdir(parents=True, exist_ok=True)
    else:
        home = Path(tempfile.mkdtemp(prefix="kubechronicle-bench-", dir=directory))
    home.chmod(0o755)  # under root, Postgres runs as another user, who needs access
    token = home / "token"
    token.write_text(secrets.token_hex(16))
    (home / "tokens.csv").write_text(f'{token.read_text()},bench,bench,"system:masters"\n')
    try:
        yield Workspace(data_dir=home / "data", token=token, load=load, settle=settle)
    finally:
        if kept is None:
            shutil.rmtree(home, ignore_errors=True)


def load_generator(binary: Path | None = None, *, cores: Sequence[int] = ()) -> Load:
    """Return the load generator at ``binary``, or build it from this checkout into .cache/bin."""
    if binary is not None:
        return Load(binary=binary, cores=cores)
    prepare = ROOT / "tests" / "clients" / "prepare.sh"
    if not prepare.exists():
        raise SystemExit(
            "the load generator is built from a checkout of the repository; or name one with --load-binary"
        )
    subprocess.run([prepare, "load"], check=True)
    return Load(binary=ROOT / ".cache" / "bin" / "load", cores=cores)
