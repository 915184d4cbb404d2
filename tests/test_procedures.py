"""Every block of a page that a reader types or copies, and every list of steps, is run by something.

documents/pages.py describes the comments of the pages. The consoles without one are run by tests/clients/documents.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from documents.pages import PAGES, ROOT, Part, parts

UNTYPED = {"text", "before"}
LANGUAGES = {"console", "go", "http", "json", "list", "python", "sh", "sql", "yaml"} | UNTYPED


@cache
def functions_in(file: Path) -> frozenset[str]:
    names = (node.name for node in ast.walk(ast.parse(file.read_text())) if hasattr(node, "name"))
    return frozenset(name for name in names if isinstance(name, str) and name.startswith("test_"))


def is_a_test(name: str) -> bool:
    file, _, function = name.partition("::")
    path = ROOT / file
    return path.is_file() and (not function or function in functions_in(path))


def fault(part: Part) -> str:
    """Return the reason why nothing runs a part of a page; empty if something does."""
    if part.kind == "indented":
        return "put the block between fences, with its language"
    if part.kind not in LANGUAGES:
        return f"the language is one of {', '.join(sorted(LANGUAGES - {'before', 'list'}))}"
    if part.kind in UNTYPED or part.is_run or "no procedure" in part.markers:
        return ""
    if part.markers.get("not run") or part.markers.get("file"):
        return ""
    tests = re.split(r",\s*", part.markers.get("test", ""))
    if missing := [name for name in tests if not is_a_test(name)]:
        return (
            f"nothing runs it: {', '.join(missing) or 'no comment names its test'} (tests/support/documents/pages.py)"
        )
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_procedure_is_run(page: Path) -> None:
    faults = [f"{part.place}: {reason}" for part in parts(page) if (reason := fault(part))]
    assert not faults, "\n".join(faults)


def test_a_new_block_that_nothing_runs_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\nmake x\n```\n\n    kubectl get x\n\n1. Do it.\n2. Again.\n\n```console\n$ x\n```\n"
        "<!-- test: tests/test_procedures.py::test_nothing -->\n```sh\nmake y\n```\n"
        "<!-- not run: it needs x -->\n```yaml\na: b\n```\n```\nx\n```\n"
    )
    found = [(part.line, part.kind, bool(fault(replace(part, page=ROOT / "README.md")))) for part in parts(page)]
    assert found == [
        (1, "sh", True),
        (5, "indented", True),
        (7, "list", True),
        (10, "console", False),
        (14, "sh", True),
        (18, "yaml", False),
        (21, "text", False),
    ]
