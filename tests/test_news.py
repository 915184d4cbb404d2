"""News fragments have names that towncrier can sort, and end with a full stop."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("feature", "change", "fix", "removal")
FRAGMENTS = sorted(path for path in (ROOT / "newsfragments").glob("*") if path.name != "README.md")


def test_towncrier_knows_the_kinds() -> None:
    types = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]["type"]
    assert tuple(each["directory"] for each in types) == KINDS


def test_the_changelog_has_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"\n## {version} (" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=lambda path: path.name)
def test_a_fragment_has_a_kind_and_ends_a_sentence(fragment: Path) -> None:
    _, kind, suffix = fragment.name.rsplit(".", 2)
    assert kind in KINDS
    assert suffix == "md"
    assert fragment.read_text().rstrip().endswith(".")
