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
    "dataclasses",  # with inspect and ast; records on the way of most commands are NamedTuples
    "difflib",  # suggestions
    "email",  # http.client imports it
    "encodings.idna",  # of host names that are not ASCII
    "hashlib",  # masks of Secrets
    "http.client",
    "importlib.metadata",  # the version is in ops/version.py
    "kubechronicle.api.codecs.yaml_writer",  # -o yaml
    "kubechronicle.api.registry.registry",
    "kubechronicle.api.registry.resources",
    "kubechronicle.api.values.names",
    "kubechronicle.http.outgoing.credential_plugins",
    "kubechronicle.ops.reporting",
    "kubechronicle.ops.settings.settings",
    "logging",
    "msgspec",
    "orjson",  # with dataclasses, uuid and zoneinfo; long answers, and -o json
    "queue",  # -f
    "secrets",
    "shutil",  # the width of a terminal
    "signal",
    "subprocess",  # credential plugins
    "tempfile",  # client certificates, where there are no files in memory
    "traceback",
    "trio",  # the server's
    "urllib.request",  # proxies
    "uuid",
    "yaml",  # kubeconfigs that are not plain
}
# Of these commands alone.
NEEDED = {
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


def test_values_of_fields_are_printed_without_modules_that_few_need() -> None:
    """`log` and `blame` print them as YAML."""
    script = "import sys; from kubechronicle.ops.terminal import yaml_text; yaml_text({'a': [1, 'x: y']})"
    done = subprocess.run(
        [sys.executable, "-c", f"{script}; print(*sys.modules)"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert set(done.stdout.split()) & LATE == {"kubechronicle.api.codecs.yaml_writer"}


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["log", "web"]])
def test_help_and_mistakes_start_without_the_server(arguments: list[str]) -> None:
    script = f"import sys; from kubechronicle.ops.cli import main\ntry: main({arguments})\nexcept SystemExit: pass\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{script}print('modules', *sys.modules)"],
        capture_output=True, text=True, check=True, cwd=ROOT, env={**os.environ, "KUBECONFIG": "/none"},
    )  # fmt: skip
    imported = set(done.stdout.rpartition("modules")[2].split())
    assert not imported & {"dataclasses", "logging", "orjson", "yaml", "trio", "kubechronicle.ops.settings.settings"}


@pytest.mark.parametrize(("output", "code"), [("/dev/stdout", 3), ("/dev/full", 120)])
def test_the_end_of_a_command_loses_no_output(output: str, code: int) -> None:
    """The process ends without its interpreter. If the output cannot be written, the interpreter says so."""
    script = "import sys; from kubechronicle.ops import cli; cli.main = lambda: (print('text'), 3)[1]; cli.program()"
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" log > {output}', sys.executable, script],
        capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, "PYTHONUNBUFFERED": ""},
    )  # fmt: skip
    assert done.returncode == code
    assert (done.stdout, "No space left" in done.stderr) == (("text\n", False) if code == 3 else ("", True))


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
