"""The causes of drawn objects are those of kube-apiserver's generated validation, in its words and order.

`reference/answers.jsonl` has the objects with what kube-apiserver v1.37.2 found, written by `reference/record.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kubechronicle.api.declarative.enforcement import TagCompiler
from kubechronicle.api.declarative.functions import BETA, ENFORCED, STANDARD
from kubechronicle.api.declarative.rules import RuleOperation
from kubechronicle.api.kinds import reading

ANSWERS = Path(__file__).parent / "reference" / "answers.jsonl"
BELOW_BETA = frozenset((STANDARD,))


@cache
def compiler(levels: frozenset[str]) -> TagCompiler:
    return TagCompiler(reading.release("1.37"), levels)


def answers() -> Iterator[dict[str, Any]]:
    for line in ANSWERS.read_text().splitlines():
        yield json.loads(line)


def found(answer: dict[str, Any], levels: frozenset[str]) -> list[tuple[str, str, str]]:
    rule = compiler(levels).rule(name(answer))
    op = RuleOperation(update=answer["old"] is not None, option=lambda name: name in answer["options"])
    causes = () if rule is None else rule(op, "", answer["object"], answer["old"])
    return [(cause.reason, cause.field, cause.message) for cause in causes]


@cache
def packages() -> dict[tuple[str, str], str]:
    return {(each.group, each.version): each.name for each in reading.release("1.37").packages.values()}


def name(answer: dict[str, Any]) -> str:
    return f"{packages()[answer['group'], answer['version']]}.{answer['kind']}"


@pytest.mark.parametrize(
    ("levels", "named"), [(ENFORCED, {STANDARD, BETA}), (BELOW_BETA, {STANDARD})], ids=["beta", "without beta"]
)
def test_the_causes_are_those_of_the_reference(levels: frozenset[str], named: set[str]) -> None:
    checked = 0
    for answer in answers():
        expected = [tuple(cause[:3]) for cause in answer["causes"] if cause[3] in named]
        assert found(answer, levels) == expected, (name(answer), answer["object"], answer["old"])
        checked += len(expected)
    assert checked > 100
