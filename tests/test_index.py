"""docs/README.md lists every page, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"


def test_every_page_is_in_the_index() -> None:
    linked = set(re.findall(r"\]\(([\w.-]+\.md)\)", (DOCS / "README.md").read_text()))
    assert linked == {path.name for path in DOCS.glob("*.md")} - {"README.md"}


def test_links_between_pages_lead_to_files() -> None:
    broken = []
    for page in (*DOCS.glob("*.md"), DOCS.parent / "README.md"):
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text()):
            if not (page.parent / target).exists():
                broken.append(f"{page.name}: {target}")
    assert broken == []
