"""The recipe for Testcontainers in docs/testing.md, with a stand-in for Docker: the command runs on this machine.

The stand-in does as Docker does: the server has a directory of its own at /data, and its port is another one outside.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import yaml
from documents.pages import ROOT, parts
from postgres_fixture import free_port

from kubechronicle.ops.cluster.up import Api

COMMAND = str(Path(sys.executable).with_name("kubechronicle"))


class DockerContainer:
    """A container of testcontainers, as far as the recipe uses it."""

    folder: Path

    def __init__(self, image: str) -> None:
        assert image == "kubechronicle"

    def with_command(self, command: str) -> DockerContainer:
        self.command = command
        return self

    def with_exposed_ports(self, port: int) -> DockerContainer:
        assert port == 6443
        self.port = free_port()
        return self

    def __enter__(self) -> DockerContainer:
        entry = [COMMAND, "serve", f"--data-dir={self.folder}"]  # the image's, with /data
        arguments = [*entry, *self.command.split(), f"--secure-port={self.port}"]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.communicate(timeout=60)

    def exec(self, command: str) -> Any:
        words = command.replace("/data", str(self.folder)).split()
        return types.SimpleNamespace(output=subprocess.run(words, capture_output=True, check=True).stdout)

    def get_exposed_port(self, port: int) -> int:
        assert port == 6443
        return self.port


def wait_for_logs(container: DockerContainer, text: str) -> None:
    assert container.process.stdout is not None
    assert re.search(text, container.process.stdout.readline())


def test_the_recipe_of_the_page(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    DockerContainer.folder = tmp_path
    for name, content in (("container", DockerContainer), ("waiting_utils", wait_for_logs)):
        module: Any = types.ModuleType(f"testcontainers.core.{name}")
        setattr(module, content.__name__, content)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    for name in ("testcontainers", "testcontainers.core"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    page = ROOT / "docs" / "testing.md"
    recipe = next(part.text for part in parts(page) if part.kind == "python" and "DockerContainer" in part.text)
    found: dict[str, Any] = {}
    exec(compile(recipe, str(page), "exec"), found)
    making = inspect.unwrap(found["kubeconfig"])(tmp_path_factory)
    file = next(making)
    try:
        assert yaml.safe_load(file.read_text())["clusters"][0]["cluster"]["server"].startswith("https://localhost:")
        assert Api(file).ask("GET", "/api/v1/nodes")[0] == 200
    finally:
        assert list(making) == []
