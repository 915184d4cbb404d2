"""Declared dependencies equal imported ones: read from pyproject.toml and from the source.

The shipped code needs the runtime dependencies, the tests also the extra `test` and the clients of brokers, and the
developers' tools in ops/bench and ops/development also the group `bench`.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TOOLS = ("ops/bench", "ops/development")
SHIPPED = ("api", "eventlog", "actors", "http", "migrations", "ops")

# Import names of distributions that may not be installed here.
IMPORT_NAMES = {
    "cel_expr_python": "cel-expr-python",
    "confluent_kafka": "confluent-kafka",
    "duckdb": "duckdb",
    "matplotlib": "matplotlib",
    "nats": "nats-py",
    "pandas": "pandas",
}
# Declared distributions that no module imports, and why they are needed.
NOT_IMPORTED = {
    "build": "program of ops/release.sh",
    "cyclonedx-bom": "program of ops/release.sh",
    "mkdocs-material": "program of `make site`",
    "mypy": "program of tests/run.py",
    "py-spy": "program of ops/bench/stacks.py",
    "pytest-rerunfailures": "plugin of pytest: the mark `flaky` of tests/conftest.py",
    "pytest-trio": "plugin of pytest: runs async tests",
    "pytest-xdist": "plugin of pytest: the options -n and --dist of tests/run.py",
    "ruff": "program of tests/run.py",
    "towncrier": "program of ops/release.sh",
    "types-protobuf": "types for mypy",
    "types-pyyaml": "types for mypy",
}
# Functions that import a module, or find its files, by name.
IMPORTERS = {"import_module", "find_spec", "importorskip"}


def normal(name: str) -> str:
    """Return the name of a distribution as PEP 503 normalizes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def names_of(requirements: list[str]) -> set[str]:
    names = set()
    for requirement in requirements:
        found = re.match(r"[A-Za-z0-9][\w.-]*", requirement)
        assert found, requirement
        names.add(normal(found[0]))
    return names


RUNTIME = names_of(PROJECT["project"]["dependencies"])
TEST = names_of(PROJECT["project"]["optional-dependencies"]["test"])
BROKERS = set().union(*(names_of(PROJECT["project"]["optional-dependencies"][extra]) for extra in ("kafka", "nats")))
CLIENTS = {"kopf", "kr8s", "kubernetes", "kubernetes-asyncio", "lightkube"}
"""Those that the pytest plugin makes for users who have installed them. Our tests of the plugin need all."""
OPTIONAL = CLIENTS.union(
    *(names_of(PROJECT["project"]["optional-dependencies"][extra]) for extra in ("witness", "pytest", "parquet"))
)
"""Of the extras whose modules are imported by statements."""
GROUPS = {group: names_of(members) for group, members in PROJECT["dependency-groups"].items()}


def files(area: str) -> list[Path]:
    tops = {"runtime": SHIPPED, "tests": ("tests",), "tools": TOOLS}[area]
    found = [path for top in tops for path in sorted((ROOT / top).rglob("*.py"))]
    if area == "runtime":
        found = [path for path in found if not path.relative_to(ROOT).as_posix().startswith(TOOLS)]
    return found


def imported(path: Path) -> Iterator[str]:
    """Yield the top-level name of every module that a file imports, or names in a call of an importer."""
    tree = ast.parse(path.read_text(), str(path))
    constants = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                constants[target.id] = node.value.value
    for node in ast.walk(tree):
        names: list[object] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module]
        elif isinstance(node, ast.Call) and node.args and getattr(node.func, "attr", "") in IMPORTERS:
            argument = node.args[0]
            if isinstance(argument, ast.Constant):
                names = [argument.value]
            elif isinstance(argument, ast.Name):
                names = [constants.get(argument.id)]
        yield from (name.partition(".")[0] for name in names if isinstance(name, str))


def own_modules() -> set[str]:
    """Return the names of this project's own modules: the package, and the helpers on the tests' path."""
    helpers = PROJECT["tool"]["pytest"]["ini_options"]["pythonpath"]
    return {"kubechronicle", "tests", *(path.stem for folder in helpers for path in (ROOT / folder).iterdir())}


@cache
def foreign_imports(area: str) -> dict[str, Path]:
    """Return the imported modules of other distributions, each with a file that imports it."""
    skipped = own_modules() | sys.stdlib_module_names
    return {name: path for path in files(area) for name in imported(path) if name not in skipped}


@cache
def providers() -> Mapping[str, list[str]]:
    return packages_distributions()


def distributions(module: str) -> set[str]:
    """Return the distributions that may provide a module: several share a namespace such as `google`."""
    if module in IMPORT_NAMES:
        return {IMPORT_NAMES[module]}
    return {normal(name) for name in providers().get(module, ())}


@pytest.mark.parametrize(
    ("area", "declared"),
    [("runtime", RUNTIME | OPTIONAL), ("tests", RUNTIME | TEST | BROKERS), ("tools", RUNTIME | TEST | GROUPS["bench"])],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_import_is_declared(area: str, declared: set[str]) -> None:
    undeclared = [
        f"{path.relative_to(ROOT)} imports {module}"
        for module, path in foreign_imports(area).items()
        if not distributions(module) & declared
    ]
    assert not undeclared, "\n".join(undeclared)


@pytest.mark.parametrize(
    ("area", "declared"),
    [("runtime", RUNTIME | OPTIONAL), ("tests", (TEST | BROKERS) - CLIENTS), ("tools", set().union(*GROUPS.values()))],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_declared_distribution_is_imported(area: str, declared: set[str]) -> None:
    used = {name for module in foreign_imports(area) for name in distributions(module)}
    assert declared - used <= NOT_IMPORTED.keys()


def test_the_exceptions_are_declared_and_not_imported() -> None:
    declared = RUNTIME | TEST | set().union(*GROUPS.values())
    used = {
        name
        for area in ("runtime", "tests", "tools")
        for module in foreign_imports(area)
        for name in distributions(module)
    }
    assert NOT_IMPORTED.keys() <= declared - used


def test_test_dependencies_are_not_declared_twice() -> None:
    assert not RUNTIME & TEST
