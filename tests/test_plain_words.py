"""Plain English in docstrings and comments, as far as a program can check it (CONTRIBUTING.md).

A docstring opens with a verb or a noun, not with a clause ("What…", "Whether…"). The words that make such clauses are
counted: Trio has 2.5 "what" and no "told" in 1,000 lines.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("api", "eventlog", "actors", "http", "ops", "tests")
CLAUSES = {
    "how",
    "of",
    "that",
    "what",
    "whatever",
    "when",
    "where",
    "whether",
    "which",
    "who",
    "whoever",
    "whom",
    "whose",
}
MOST = {"what": 2.0, "told": 0.2, "whoever": 0.2}
"""Occurrences of a word in 1,000 lines, at most."""


@cache
def sources(folder: str) -> tuple[Path, ...]:
    return tuple(path for path in sorted((ROOT / folder).rglob("*.py")) if path != Path(__file__))


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_open_with_a_verb_or_a_noun(folder: str) -> None:
    wrong = []
    for path in sources(folder):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                first = re.match(r"\w+", ast.get_docstring(node) or "")
                if first and first[0].lower() in CLAUSES:
                    wrong.append(f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)} opens with {first[0]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", FOLDERS)
def test_words_of_free_clauses_are_rare(folder: str) -> None:
    text = "\n".join(path.read_text() for path in sources(folder))
    lines = text.count("\n") / 1000
    counts = {word: len(re.findall(rf"\b{word}\b", text, re.IGNORECASE)) / lines for word in MOST}
    assert {word: count for word, count in counts.items() if count > MOST[word]} == {}
