"""Servers of the benchmark's own, one after another on one data directory, and a load on them."""

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
from kubechronicle.ops.development.server_process import ServerProcess, Stat, descendants, running

# A server's memory is read after what start-up left behind has settled.
SETTLE_SECONDS = 2.0
LONGEST_START = 600.0  # seconds: a million objects on a machine that has other things to do
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A load's measured part. ``memory``: in MiB when it ended; ``seen``: the load generator's own document."""

    usage: Usage
    memory: Mapping[str, float]
    seen: Mapping[str, Any]

    def cpu_us(self) -> dict[str, float]:
        """Microseconds per operation of server and Postgres."""
        operations = max(1, self.seen["operations"])
        return {group: self.usage.cpu[group] / operations * 1e6 for group in ("server", "postgres")}


@dataclass(slots=True, kw_only=True)
class Running:
    """A server that runs, and who may load it."""

    server: ServerProcess
    token: Path
    load: Load
    settle: float = SETTLE_SECONDS
    workers: int = 1
    sampler: Sampler = field(init=False)

    def __post_init__(self) -> None:
        postmaster = self.server.embedded_postgres()
        others = [self.server.pid] + ([] if postmaster is None else [postmaster])
        self.sampler = Sampler(
            groups={
                "server": self.processes,
                "postgres": list if postmaster is None else partial(descendants, postmaster),
                "load": partial(ourselves, without=lambda: others),
            },
            cluster=self.server.data_dir / "postgres",
        )

    def put(self, **flags: str | int | float) -> Measured:
        """This load, to its end. LoadError."""
        self.sampler.samples.clear()
        target = Target(flags=[*self.where(), f"-token-file={self.token}"], groups={"all": self.sampler})
        _, seen = self.load.run(target, flags)
        before, after = self.sampler.samples[-2:]
        return Measured(usage=between(before, after), memory=after.memory, seen=seen)

    def processes(self) -> list[Stat]:
        """Of the server, or all servers."""
        return self.server.processes()

    def where(self) -> list[str]:
        """The load generator's flags that say where it is."""
        return [f"-server={self.server.url}", f"-ca={self.server.data_dir / 'pki' / 'ca.crt'}"]

    def memory(self) -> Mapping[str, float]:
        """MiB of server and Postgres at rest."""
        time.sleep(self.settle)
        self.sampler()
        return self.sampler.samples[-1].memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A data directory, and the token of one who may do everything."""

    data_dir: Path
    token: Path
    load: Load
    settle: float = SETTLE_SECONDS

    def arguments(self) -> list[str]:
        """Of each server. A namespace is to hold what was put there, and no ConfigMap of the server's own."""
        return ["--token-auth-file", str(self.token.with_name("tokens.csv")), "--controllers=*,-root-ca-cert-publisher"]

    @contextlib.contextmanager
    def serving(
        self, *arguments: str, workers: int = 1, environment: Mapping[str, str] | None = None
    ) -> Iterator[Running]:
        """A server on it."""
        several = ["--workers", str(workers)] if workers > 1 else []
        given = [*self.arguments(), *several, *arguments]
        server = ServerProcess(self.data_dir, arguments=given, environment=environment)
        with running(server, timeout=LONGEST_START):
            yield Running(server=server, token=self.token, load=self.load, settle=self.settle, workers=workers)


@contextlib.contextmanager
def place(
    load: Load, *, directory: Path | None = None, kept: Path | None = None, settle: float = SETTLE_SECONDS
) -> Iterator[Place]:
    """A new one below ``directory`` (default: where temporary files are), which is gone afterwards; or ``kept``, which
    stays, and may be there from last time."""
    if kept is not None:
        home = kept.absolute()
        home.mkdir(parents=True, exist_ok=True)
    else:
        home = Path(tempfile.mkdtemp(prefix="kubechronicle-bench-", dir=directory))
    home.chmod(0o755)  # started by root, Postgres runs as another user and has to get in
    token = home / "token"
    token.write_text(secrets.token_hex(16))
    (home / "tokens.csv").write_text(f'{token.read_text()},bench,bench,"system:masters"\n')
    try:
        yield Place(data_dir=home / "data", token=token, load=load, settle=settle)
    finally:
        if kept is None:
            shutil.rmtree(home, ignore_errors=True)


def load_generator(binary: Path | None = None, *, cores: Sequence[int] = ()) -> Load:
    """The binary named, or the one built from this checkout into .cache/bin."""
    if binary is not None:
        return Load(binary=binary, cores=cores)
    prepare = ROOT / "tests" / "clients" / "prepare.sh"
    if not prepare.exists():
        raise SystemExit(
            "the load generator is built from a checkout of the repository; or name one with --load-binary"
        )
    subprocess.run([prepare, "load"], check=True)
    return Load(binary=ROOT / ".cache" / "bin" / "load", cores=cores)
