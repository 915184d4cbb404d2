"""The staged pages of the docs site: all are in its navigation, and their links lead to files and headings.

`make site` builds the site, and MkDocs checks the same of its pages.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from kubechronicle.ops.development import site

_HEADING = re.compile(r"^#+ (.+)$", re.M)
_FENCED = re.compile(r"^ *```.*?^ *```$", re.S | re.M)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    site.stage(folder)
    return folder


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as Python-Markdown makes them."""
    text = _FENCED.sub("", page.read_text())
    names = (re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower() for heading in _HEADING.findall(text))
    return {re.sub(r"[-\s]+", "-", name) for name in names}


def test_every_page_is_in_the_navigation_once(staged: Path) -> None:
    text = (staged / "mkdocs.yml").read_text()
    navigation = re.findall(r"[\w.-]+\.md", text[text.index("\nnav:") :])
    assert sorted(navigation) == sorted(path.name for path in (staged / "docs").glob("*.md"))
    assert yaml.safe_load(text)["theme"]["name"] == "material"


def test_links_lead_to_files_and_headings(staged: Path) -> None:
    wrong = []
    for page in (staged / "docs").glob("*.md"):
        for target in _LINK.findall(_FENCED.sub("", page.read_text())):
            place, _, anchor = target.partition("#")
            file = page.parent / place if place else page
            if "://" in target:
                continue
            if not file.is_file() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
                wrong.append(f"{page.name}: {target}")
    assert not wrong


def test_readers_see_no_comments_about_tests(staged: Path) -> None:
    assert "<!-- test:" in (site.ROOT / "docs" / "install.md").read_text()
    assert "<!-- test:" not in (staged / "docs" / "install.md").read_text()
