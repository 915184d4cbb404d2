"""The direction of imports, read from the source, and the packaging rules.

api and eventlog import no sibling folder, actors imports those two, http imports the three, ops imports all, and no
folder imports ops. No import circle exists, and within api and eventlog the folders form a staircase. Imports within
functions and for type checking count like all others.
"""

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
# The modules of actors and eventlog that http may import: the store interface, and the read side of the log.
HTTP_MAY_IMPORT = (
    "actors.admission.chain",
    "actors.branches",
    "actors.errors",
    "actors.eviction",
    "actors.evaluation",
    "actors.external_answers",
    "actors.fair_share",
    "actors.history",
    "actors.large_work",
    "actors.pauses",
    "actors.loops.service_account_tokens",
    "actors.reading",
    "actors.store",
    "actors.supervisor",
    "actors.writing.targets",
    "actors.writing.together",
    "actors.writing.writes",
    "eventlog.entries",
    "eventlog.errors",
    "eventlog.measures",
    "eventlog.log",
    "eventlog.queries.branches",
    "eventlog.queries.reads",
    "eventlog.records",
    "eventlog.request_parts",
    "eventlog.reset",
    "eventlog.restarts",
    "eventlog.views",
)
# The client is a program of its own: it knows the API, and shares leaves with the command line and the server's client.
CLIENT_MAY_IMPORT = (
    "api",
    "http.outgoing.answers",
    "http.outgoing.credential_plugins",
    "http.outgoing.kubeconfig",
    "http.outgoing.remote_server",
    "ops.client",
    "ops.errors",
    "ops.terminal",
    "ops.version",
)
# Tools of developers, which the wheel leaves out.
NOT_SHIPPED = ("ops.bench", "ops.development")
# Folders from the ground up: each imports only folders before it, and modules directly in the top folder.
STAIRCASES = {
    "api": (
        "errors", "values", "kinds", "schema", "codecs", "meta", "managed_fields", "features", "registry", "selectors",
        "cel", "declarative", "strategy", "history", "patch", "custom", "builtin", "pipeline", "subresources",
        "admission", "quota", "simulation", "access", "explaining", "flow_control", "configuration", "audit", "tables",
        "openapi",
    ),
    "eventlog": (
        "queries", "encryption", "postgres", "integrity", "retention", "erasure", "transfer", "views",
        "sharing", "memory",
    ),
    "actors": ("reading", "admission", "writing", "allocation", "history", "loops", "definitions",
               "branches"),
    "http": (
        "wire", "streaming", "outgoing", "proxying", "representation", "authentication", "authorization",
        "audit", "flow_control", "aggregation", "handlers",
    ),
    "ops": (
        "settings", "postgres", "server", "ephemeral", "maintenance", "cluster", "client", "testing", "migration",
        "development", "bench",
    ),
}  # fmt: skip
MAX_MODULES = 25
"""Modules in one folder, beside its ``__init__``."""

# The one file that talks to the driver.
DRIVER = {"asyncpg"}
DRIVER_FILE = Path("eventlog/postgres/connection.py")


def files(folder: str) -> list[Path]:
    return [path for path in sorted((ROOT / folder).rglob("*.py")) if "__pycache__" not in path.parts]


@cache
def read(path: Path) -> tuple[tuple[tuple[int, str], ...], tuple[int, ...]]:
    """Return (line, dotted name) of everything that a file imports, and the lines with an async function or an await.

    Relative imports are made absolute.
    """
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


@cache
def modules() -> dict[str, Path]:
    """Return the path of every module by its dotted name below the package."""
    found = {}
    for folder in MAY_IMPORT:
        for path in files(folder):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports_of(module: str) -> frozenset[str]:
    """Return the modules of this project that ``module`` imports."""
    found = set()
    for _, name in imported(modules()[module]):
        parts = name.split(".")
        if parts[0] == PACKAGE:
            whole, parent = ".".join(parts[1:]), ".".join(parts[1:-1])
            found.add(whole if whole in modules() else parent)
    return frozenset((found & modules().keys()) - {module})


def below(module: str, prefixes: tuple[str, ...]) -> bool:
    return any(module == prefix or module.startswith(prefix + ".") for prefix in prefixes)


def arrows(origin: tuple[str, ...], allowed: tuple[str, ...]) -> list[str]:
    """Return the imports of modules below ``origin`` that lead elsewhere than ``allowed``."""
    return [
        f"{module} imports {name}"
        for module in modules()
        if below(module, origin)
        for name in sorted(imports_of(module))
        if not below(name, allowed)
    ]


def test_no_module_imports_itself_in_a_circle() -> None:
    """Remove modules that import nothing left, until only circles remain."""
    left = {module: set(imports_of(module)) for module in modules()}
    while free := {module for module, names in left.items() if not names & left.keys()}:
        for module in free:
            del left[module]
    # A module that only imports a circle is no part of it.
    while free := {module for module in left if not any(module in names for names in left.values())}:
        for module in free:
            del left[module]
    assert not left


def test_http_imports_the_store_interface_and_the_read_side() -> None:
    assert not arrows(("http",), ("http", "api", *HTTP_MAY_IMPORT))


def test_the_client_imports_nothing_of_the_server() -> None:
    assert not arrows(("ops.client",), CLIENT_MAY_IMPORT)


def test_no_shipped_module_imports_a_developers_tool() -> None:
    shipped = tuple(module for module in modules() if not below(module, NOT_SHIPPED))
    assert not [
        f"{module} imports {name}" for module in shipped for name in imports_of(module) if below(name, NOT_SHIPPED)
    ]


def test_a_server_starts_without_pytest() -> None:
    """trio.testing imports pytest where it is installed, and so for each server of the tests."""
    imports = "import sys, kubechronicle.ops.server.preparation; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", imports], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("folder", sorted(STAIRCASES))
def test_folders_form_a_staircase(folder: str) -> None:
    stairs = STAIRCASES[folder]
    named = {path.relative_to(ROOT / folder).parts[0] for path in files(folder) if path.parent != ROOT / folder}
    assert named == set(stairs)
    outside = tuple(other for other in MAY_IMPORT if other != folder)  # checked above
    top = tuple(module for module, path in modules().items() if path.parent == ROOT / folder and module != folder)
    wrong = []
    for height, stair in enumerate(stairs):
        lower = tuple(f"{folder}.{each}" for each in stairs[: height + 1])
        wrong += arrows((f"{folder}.{stair}",), (*lower, *top, *outside))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("top", sorted({*MAY_IMPORT, "tests"}))
def test_a_folder_holds_few_modules_and_says_what_they_are(top: str) -> None:
    """A folder with more modules holds two ideas. Its docstring says in a sentence which idea it holds."""
    for folder in {path.parent for path in files(top)}:
        assert len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) <= MAX_MODULES, folder
        if top != "tests" and folder != ROOT / "http":
            assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text())), folder


@pytest.mark.parametrize("folder", sorted(MAY_IMPORT))
def test_no_file_imports_a_second_copy_of_a_module(folder: str) -> None:
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
