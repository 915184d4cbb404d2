"""Copies of a new database cluster, as initdb takes ten times as long as a copy.

A cluster is made at its first use by a process, and copied from then on. All have the same system identifier, which
nothing here looks at.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final


class Copies:
    """Copies of what ``make`` makes in a folder that does not exist, but whose parent does."""

    def __init__(self, make: Callable[[Path], None]) -> None:
        self._make = make
        self._original: Path | None = None

    def copy(self, folder: Path) -> None:
        """Make ``folder``, which must not exist."""
        if self._original is None:
            home = Path(tempfile.mkdtemp(prefix="kubechronicle-cluster-"))
            atexit.register(shutil.rmtree, home, ignore_errors=True)
            home.chmod(0o755)  # Postgres does not run as root
            original = home / "original"
            self._make(original)
            self._original = original
        # cp keeps the owner, and shares the blocks where the file system can.
        subprocess.run(["cp", "-a", "--reflink=auto", str(self._original), str(folder)], check=True)


def _make_embedded(folder: Path) -> None:
    from kubechronicle.ops.postgres import cluster

    cluster.prepare(folder.parent)
    (folder.parent / "postgres").rename(folder)


EMBEDDED: Final = Copies(_make_embedded)
"""DATA_DIR/postgres of servers that have not started yet."""
