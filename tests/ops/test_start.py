"""The start of commands: modules that most of them do not need are imported where they are used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kubechronicle.ops.version import program_version

ROOT = Path(__file__).parents[2]
COMMAND = Path(sys.executable).with_name("kubectl-chronicle")
TYPICAL = ("log", "who", "can_i", "tree", "blame", "diff", "between", "incident", "bisect", "export", "tag")
LATE = {
    "difflib",  # suggestions
    "email",  # http.client imports it
    "hashlib",
    "http.client",
    "importlib.metadata",  # the version is in ops/version.py
    "kubechronicle.api.codecs.yaml_writer",  # -o yaml
    "kubechronicle.api.registry.registry",
    "kubechronicle.api.registry.resources",
    "kubechronicle.api.values.names",
    "kubechronicle.ops.client.credential_plugins",
    "kubechronicle.ops.reporting",
    "kubechronicle.ops.settings.settings",
    "logging",
    "msgspec",
    "secrets",
    "shutil",  # the width of a terminal
    "subprocess",  # credential plugins
    "tempfile",  # client certificates, where there are no files in memory
    "traceback",
    "trio",  # the server's
    "urllib.request",  # proxies
    "yaml",  # kubeconfigs that are not plain
}
# Of these commands alone.
NEEDED = {
    "blame": {"hashlib"},  # masks of Secrets
    "diff": {"difflib"},
    "tag": {"kubechronicle.api.values.names"},
}
SCRIPT = """
import json, sys
before = set(sys.modules)
from kubechronicle.ops.cli import main
from kubechronicle.ops.client import dispatch
for name in sys.argv[1:]:
    dispatch.make_parser(name.replace("_", "-"))
from kubechronicle.ops.client import session
print(json.dumps(sorted(set(sys.modules) - before)))
"""
MOST_CPU = 0.25
"""Seconds of CPU, three times those of a quiet machine."""


@pytest.mark.parametrize("command", TYPICAL)
def test_a_command_starts_without_modules_that_few_need(command: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, command], capture_output=True, text=True, check=True, cwd=ROOT)
    imported = set(json.loads(done.stdout))
    assert "kubechronicle.ops.client.transport" in imported
    assert imported & LATE <= NEEDED.get(command, set())


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["log", "web"]])
def test_help_and_mistakes_start_without_the_server(arguments: list[str]) -> None:
    script = f"import sys; from kubechronicle.ops.cli import main\ntry: main({arguments})\nexcept SystemExit: pass\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{script}print('modules', *sys.modules)"],
        capture_output=True, text=True, check=True, cwd=ROOT, env={**os.environ, "KUBECONFIG": "/none"},
    )  # fmt: skip
    imported = set(done.stdout.rpartition("modules")[2].split())
    assert not imported & {"msgspec", "logging", "yaml", "trio", "kubechronicle.ops.settings.settings"}


@pytest.mark.alone
def test_a_command_starts_soon() -> None:
    used = []
    for _ in range(5):
        before = os.times()
        subprocess.run([COMMAND, "log", "--help"], stdout=subprocess.DEVNULL, check=True)
        after = os.times()
        used.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(used) < MOST_CPU


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert program_version() == project["version"]
