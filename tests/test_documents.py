"""ARCHITECTURE.md names each folder in the words of its docstring, and texts in Markdown name files that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOPS = ("api", "eventlog", "actors", "http", "ops")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
# Names of files in texts, such as `eventlog/log.py`. A released change may name a file that has moved since.
FILE = re.compile(r"(?<![\w/.-])((?:api|eventlog|actors|http|ops|tests|migrations)/[\w/]+\.(?:py|sql|sh))")


def folders() -> list[Path]:
    """Return the folders with a sentence of their own: two levels, and three except in api/builtin."""
    found = [path.parent for top in TOPS for path in sorted((ROOT / top).rglob("__init__.py"))]
    levels = [(folder, len(folder.relative_to(ROOT).parts)) for folder in found]
    return [folder for folder, level in levels if level == 2 or (level == 3 and "builtin" not in folder.parts)]


@pytest.mark.parametrize("folder", folders(), ids=lambda folder: folder.relative_to(ROOT).as_posix())
def test_the_architecture_page_says_what_the_folders_docstring_says(folder: Path) -> None:
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    sentence = " ".join(docstring.split("\n\n")[0].split())
    row = f"| `{folder.relative_to(ROOT).as_posix()}/` | {sentence} |"
    assert row in (ROOT / "ARCHITECTURE.md").read_text().splitlines()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_name_files_that_exist(page: Path) -> None:
    if page.name != "CHANGELOG.md":
        assert [name for name in FILE.findall(page.read_text()) if not (ROOT / name).exists()] == []
