"""The start of commands: modules that most of them do not need are imported where they are used."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

from kubechronicle.ops.version import program_version

ROOT = Path(__file__).parents[2]
LATE = {
    "importlib.metadata",  # the version is in ops/version.py
    "kubechronicle.api.codecs.yaml_writer",  # -o yaml
    "secrets",
    "subprocess",  # credential plugins
    "tempfile",  # client certificates, where there are no files in memory
    "trio",  # the server's
    "urllib.request",  # proxies
}
SCRIPT = """
import json, sys
before = set(sys.modules)
from kubechronicle.ops.cli import main
from kubechronicle.ops.client import dispatch
from kubechronicle.ops.client.commands import log
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_a_command_starts_without_modules_that_few_need() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, cwd=ROOT)
    imported = set(json.loads(done.stdout))
    assert "kubechronicle.ops.client.transport" in imported
    assert imported & LATE == set()


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert program_version() == project["version"]
