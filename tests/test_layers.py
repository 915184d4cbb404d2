"""The import direction, read from the source: api and eventlog import no sibling, actors those two, http the three, ops
all, and nobody ops. And the packaging rules that keep ``http/`` from hiding the standard library's."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "kubechronicle"

MAY_IMPORT = {
    "api": {"api"},
    "eventlog": {"eventlog", "migrations"},
    "migrations": {"migrations"},
    "actors": {"actors", "api", "eventlog"},
    "http": {"http", "actors", "api", "eventlog"},
    "ops": {"ops", "http", "actors", "api", "eventlog", "migrations"},
}
# The one file that talks to the driver.
DRIVER = {"asyncpg"}
DRIVER_FILE = Path("eventlog/postgres/connection.py")


def files(folder: str) -> list[Path]:
    return [path for path in sorted((ROOT / folder).rglob("*.py")) if "__pycache__" not in path.parts]


@cache
def read(path: Path) -> tuple[tuple[tuple[int, str], ...], tuple[int, ...]]:
    """Of a file: line and dotted name of everything it imports, relative imports made absolute; lines with an async
    function or an await."""
    here = [PACKAGE, *path.relative_to(ROOT).with_suffix("").parts]
    imports: list[tuple[int, str]] = []
    waits: list[int] = []
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            imports += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(here[: -node.level]) if node.level else ""
            module = ".".join(part for part in (base, node.module or "") if part)
            imports += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
        elif isinstance(node, ast.AsyncFunctionDef | ast.Await):
            waits.append(node.lineno)
    return tuple(imports), tuple(waits)


def imported(path: Path) -> tuple[tuple[int, str], ...]:
    return read(path)[0]


@pytest.mark.parametrize("folder", sorted(MAY_IMPORT))
def test_imports_run_the_allowed_way(folder: str) -> None:
    wrong = []
    for path in files(folder):
        for line, name in imported(path):
            parts = name.split(".")
            if parts[0] == PACKAGE and parts[1] in MAY_IMPORT and parts[1] not in MAY_IMPORT[folder]:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", sorted(MAY_IMPORT))
def test_nobody_imports_a_second_copy_of_a_module(folder: str) -> None:
    """``import actors.x`` beside ``kubechronicle.actors.x`` makes two modules with two states."""
    own = set(MAY_IMPORT) - {"http"}  # plain ``http`` is the standard library's
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in files(folder)
        for line, name in imported(path)
        if name.split(".")[0] in own
    ]
    assert not wrong, "\n".join(wrong)


def test_one_file_imports_the_driver() -> None:
    found = {
        path.relative_to(ROOT)
        for folder in MAY_IMPORT
        for path in files(folder)
        for _, name in imported(path)
        if name.split(".")[0] in DRIVER
    }
    assert found == {DRIVER_FILE}


def test_api_does_nothing_but_compute() -> None:
    """No waiting, no clock, no randomness, no I/O: what it needs of these arrives as arguments."""
    forbidden = {"trio", "asyncio", "socket", "time", "random", "secrets", "subprocess", "threading"}
    wrong = []
    for path in files("api"):
        wrong += [
            f"{path.relative_to(ROOT)}:{line} imports {name}"
            for line, name in imported(path)
            if name.split(".")[0] in forbidden
        ]
        wrong += [f"{path.relative_to(ROOT)}:{line} is async" for line in read(path)[1]]
    assert not wrong, "\n".join(wrong)


def test_http_has_no_init() -> None:
    assert not (ROOT / "http" / "__init__.py").exists()


def test_the_standard_librarys_http_is_found_from_the_root() -> None:
    script = "import http.client, sys; sys.exit(not hasattr(http.client, 'HTTPSConnection'))"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


def test_the_package_is_made_of_links_to_the_folders() -> None:
    for folder in MAY_IMPORT:
        link = ROOT / PACKAGE / folder
        assert link.is_symlink()
        assert link.readlink() == Path("..", folder)
