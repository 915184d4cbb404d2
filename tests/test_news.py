"""News fragments: each has a kind in its name, by which a release sorts them, and a text."""

from __future__ import annotations

from pathlib import Path

import pytest

KINDS = ("feature", "fix", "change", "removal")
FRAGMENTS = sorted((Path(__file__).resolve().parents[1] / "newsfragments").glob("*"))


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=lambda path: path.name)
def test_a_fragment_has_a_kind_and_ends_a_sentence(fragment: Path) -> None:
    _, kind, suffix = fragment.name.rsplit(".", 2)
    assert kind in KINDS
    assert suffix == "md"
    assert fragment.read_text().rstrip().endswith(".")
