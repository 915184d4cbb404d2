"""docs/folders.md has the words of docstrings, ARCHITECTURE.md is short, and texts in Markdown name existing files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kubechronicle.ops.development import folders

ROOT = Path(__file__).resolve().parents[1]
MOST_WORDS = 2800
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
# Names of files in texts, such as `eventlog/log.py`. A released change may name a file that has moved since.
FILE = re.compile(r"(?<![\w/.-])((?:api|eventlog|actors|http|ops|tests|migrations)/[\w/]+\.(?:py|sql|sh))")


def test_the_page_of_folders_is_made_from_their_docstrings() -> None:
    assert (ROOT / "docs" / "folders.md").read_text() == folders.page(), "make docs"
    assert all(folders.sentence(folder) for folder in folders.folders())


def test_the_architecture_page_is_read_in_one_sitting() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().split()) <= MOST_WORDS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_name_files_that_exist(page: Path) -> None:
    if page.name != "CHANGELOG.md":
        assert [name for name in FILE.findall(page.read_text()) if not (ROOT / name).exists()] == []
