"""Measurement of an upgrade: servers of an earlier commit and of this tree on one database, under writes.

    python -m kubechronicle.ops.development.upgrading --former v0.1.0 --revisions 1000000

1. The former version migrates an empty database, which gets the revisions, and serves it. A client keeps writing.
2. This version migrates the database, and starts a server beside it. Each serves the objects of the other.
3. The former server ends, and this version proves the log.
4. The former version is started again, as in a downgrade. It serves, or refuses in one line.
It prints the time of the migration, and the longest time that a write took while it ran.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.ops.development.differential.reference import ROOT, free_ports
from kubechronicle.ops.development.differential.transport import Connection, Target
from kubechronicle.ops.postgres.embedded_postgres import embedded_postgres

RUN: Final = "import sys; sys.path.insert(0, sys.argv.pop(1)); from kubechronicle.ops.cli import main; sys.exit(main())"
CONFIGMAPS: Final = "/api/v1/namespaces/default/configmaps"
READY: Final = 600.0
CHUNK: Final = 1000
UNCHAINED_CHUNK: Final = 250_000
# Through the append of the former version, so that the rows are chained. $1: the names before this chunk.
FILL: Final = f"""
select (kubechronicle.append(gen_random_uuid(), array_agg(n), array_agg(0::bigint), array_agg(1::smallint),
    array_agg('configmaps'::text), array_agg('filled'::text), array_agg('c' || ($1::bigint + n)),
    array_agg('u' || n),
    array_agg(''::text), array_agg(''::text), array_agg('{{}}'::text), array_agg(null::text),
    {", ".join(["array_agg(''::text)"] * 7)},
    array_agg(('{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"c' || ($1::bigint + n) || '","namespace":'
        || '"filled","uid":"u"}},"data":{{"text":"' || repeat('x', 300) || '"}}}}')::json))).head
from generate_series(1, {CHUNK}) n
"""

# Revisions outside of the hash chain. $1: the revision before; $2: the last one; $3: the number of objects, changed in
# turns; $4: the JSON of an object up to its name.
UNCHAINED: Final = """
insert into kubechronicle.log
select r, (r - 1) % $3 + 1, (r - 1) / $3 + 1, greatest(r - $3, 0), now(), case when r <= $3 then 1 else 2 end, 'long',
    'configmaps', 'filled', 'c' || (r - 1) % $3, 'u', '', '', '{}', null, '', '', '', '', '', '', '', '', '',
    ($4::text || (r - 1) % $3 || '"}}')::json
from generate_series($1::bigint + 1, $2::bigint) r, (select $3::bigint) o
"""
OBJECT: Final = (
    f'{{"apiVersion":"v1","kind":"ConfigMap","data":{{"text":"{"x" * 300}"}},"metadata":{{"uid":"u",'
    '"namespace":"filled","name":"c'
)
UNCHAINED_LIVE: Final = """
insert into kubechronicle.live (resource, namespace, name, revision, create_revision, version)
select resource, namespace, name, revision, create_revision, version from kubechronicle.log where revision > $1::bigint
"""


class NotStarted(RuntimeError):
    """A server ended, or was not ready in time."""


def command(tree: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-c", RUN, str(tree), *arguments]


def unpack(revision: str, folder: Path) -> None:
    """Write the tree of a commit into a new folder, whose parent others may read."""
    folder.parent.chmod(0o755)
    folder.mkdir()
    packed = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed, check=True)


@contextlib.contextmanager
def serving(tree: Path, home: Path, name: str, url: str) -> Iterator[Target]:
    """Run a server of a tree."""
    (port,) = free_ports(1)
    (home / "tokens.csv").write_text('upgrade,admin,admin,"system:masters"\n')
    flags = ["--database-url", url, "--data-dir", str(home / name), "--secure-port", str(port), "--controllers", ""]
    with (home / f"{name}.log").open("wb") as log:
        server = subprocess.Popen(
            command(tree, "serve", *flags, "--token-auth-file", str(home / "tokens.csv")), stdout=log, stderr=log
        )
    target = Target(f"https://127.0.0.1:{port}", "upgrade")
    try:
        until = time.monotonic() + READY
        while Connection(target).ask("GET", "/readyz").status != 200:
            if server.poll() is not None or time.monotonic() > until:
                raise NotStarted(f"the server {name} did not start: {(home / f'{name}.log').read_text()[-500:]}")
            time.sleep(0.2)
        yield target
    finally:
        server.terminate()
        server.wait(60)


@dataclass(slots=True)
class Writer:
    """A client that writes without a pause. ``slowest``: seconds of its slowest write. ``failed``: statuses."""

    target: Target
    prefix: str
    writes: int = 0
    slowest: float = 0.0
    failed: list[int] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join()

    def _run(self) -> None:
        connection = Connection(self.target)
        while not self._stopped.wait(0.005):
            began = time.monotonic()
            body = json.dumps({"metadata": {"name": f"{self.prefix}{self.writes}"}}).encode()
            status = connection.ask("POST", CONFIGMAPS, body, {"Content-Type": "application/json"}).status
            self.slowest = max(self.slowest, time.monotonic() - began)
            if status != 201:
                self.failed.append(status)
            self.writes += 1


async def fill(url: str, revisions: int) -> None:
    async with open_session(url) as session:
        for first in range(0, revisions, CHUNK):
            await session.fetch(FILL, first)


async def fill_unchained(url: str, revisions: int, objects: int) -> None:
    """Fill the log by SQL alone, in a tenth of the time. Such a log cannot be verified."""
    async with open_session(url) as session:
        await session.execute("set statement_timeout = 0")
        await session.fetch("select kubechronicle.make_partitions_until($1::bigint)", revisions + 1)
        for first in range(0, revisions, UNCHAINED_CHUNK):
            await session.fetch(UNCHAINED, first, min(first + UNCHAINED_CHUNK, revisions), objects, OBJECT)
        await session.fetch(UNCHAINED_LIVE, revisions - objects)
        await session.fetch("update kubechronicle.head set revision = $1::bigint", revisions)


def run(tree: Path, *arguments: str) -> str:
    """Run a command of a tree and return its output."""
    done = subprocess.run(command(tree, *arguments), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{arguments[0]} ended with exit code {done.returncode}: {done.stderr[-500:]}")
    return done.stdout


def downgrade(former: Path, home: Path, url: str) -> str:
    """Start the former version on the present schema; return what happens. RuntimeError: it serves other objects."""
    with serving(ROOT, home, "newer", url) as new:
        objects = len(Connection(new).get_json(CONFIGMAPS)["items"])
        try:
            with serving(former, home, "older", url) as old:
                if len(Connection(old).get_json(CONFIGMAPS)["items"]) != objects:
                    raise RuntimeError("the former version lists other objects after the downgrade")
        except NotStarted:
            lines = (home / "older.log").read_text().strip().splitlines()
            return f"refuses: {lines[-1]}"
    return f"serves the same {objects} objects"


def upgrade(former: Path, home: Path, url: str, chained: bool) -> bool:
    """Upgrade under writes; print the figures, and return whether every write succeeded."""
    with serving(former, home, "former", url) as old:
        first = Writer(old, "a")
        with first.running():
            time.sleep(3)
            before, first.slowest = first.slowest, 0.0
            began = time.monotonic()
            print(run(ROOT, "migrate", "--database-url", url).strip())
            took, stalled = time.monotonic() - began, first.slowest
            print(
                f"migration: {took:.1f} s; slowest write meanwhile {stalled:.2f} s, before {before:.2f} s", flush=True
            )
            with serving(ROOT, home, "present", url) as new:
                second = Writer(new, "b")
                with second.running():
                    time.sleep(3)
                found = [len(Connection(target).get_json(CONFIGMAPS)["items"]) for target in (old, new)]
    print(f"beside each other: {first.writes} and {second.writes} writes, lists of {found[0]} and {found[1]} objects")
    print(f"failed writes: {first.failed + second.failed}")
    if chained:
        print(run(ROOT, "verify", "--database-url", url).strip())
    print(f"the former version, started again: {downgrade(former, home, url)}")
    return not first.failed and not second.failed


async def measure(arguments: argparse.Namespace) -> bool:
    with tempfile.TemporaryDirectory(prefix="kubechronicle-upgrading-") as directory:
        home, former = Path(directory), Path(directory) / "tree"
        unpack(arguments.former, former)
        async with embedded_postgres(home / "database") as url:
            await trio.to_thread.run_sync(run, former, "migrate", "--database-url", url)
            if arguments.unchained:
                await fill_unchained(url, arguments.revisions, arguments.unchained)
            else:
                await fill(url, arguments.revisions)
            return await trio.to_thread.run_sync(upgrade, former, home, url, not arguments.unchained)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure an upgrade from an earlier commit, under writes.")
    parser.add_argument("--former", required=True, help="a commit or tag")
    parser.add_argument("--revisions", type=int, default=1_000_000)
    parser.add_argument("--unchained", type=int, metavar="OBJECTS", help="fill by SQL, with this number of objects")
    os.environ.pop("DATABASE_URL", None)
    return 0 if trio.run(measure, parser.parse_args(arguments)) else 1


if __name__ == "__main__":
    sys.exit(main())
