"""Differences of printed records.

Unified diffs: those of difflib for short texts, and correct ones for long texts.
"""

from __future__ import annotations

import difflib
import random
from typing import Any

import pytest

from kubechronicle.api.builtin.common.go_shapes import (
    MOST_LINES,
    difference,
    printed_metadata,
    record,
    selector,
    unified,
)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ({"A": 1}, {"A": 1}, ""),
        ({"A": 1}, {"A": 2}, '@@ -1,3 +1,3 @@\n {\n- "A": 1\n+ "A": 2\n }\n'),
        (None, {"A": "<"}, '@@ -1 +1,3 @@\n-null\n+{\n+ "A": "\\u003c"\n+}\n'),
    ],
)
def test_difference(old: Any, new: Any, text: str) -> None:
    assert difference(old, new) == text


def test_metadata_is_printed_in_the_order_of_its_types() -> None:
    owner = {"uid": "u", "name": "n", "kind": "k", "apiVersion": "v1"}
    entry = {"subresource": "s", "time": "t", "manager": "m"}
    printed = printed_metadata({"managedFields": [entry], "ownerReferences": [owner], "labels": {"b": "1", "a": "2"}})
    assert str(printed) == str(
        {
            "labels": {"a": "2", "b": "1"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "k", "name": "n", "uid": "u"}],
            "managedFields": [{"manager": "m", "time": "t", "subresource": "s"}],
        }
    )


def test_internal_types_print_empty_lists_and_selectors_omit_them() -> None:
    assert record({"values": []}, "NodeSelectorRequirement") == {"Key": "", "Operator": "", "Values": []}
    assert record({}, "NodeSelectorRequirement") == {"Key": "", "Operator": "", "Values": None}
    assert selector({"matchLabels": {}, "matchExpressions": [{"key": "a", "operator": "In", "values": []}]}) == {
        "matchExpressions": [{"key": "a", "operator": "In"}]
    }


def lines(*texts: object) -> list[str]:
    return [f"{text}\n" for text in texts]


def expected(old: list[str], new: list[str]) -> str:
    return "".join(list(difflib.unified_diff(old, new, n=3))[2:])


@pytest.mark.parametrize("seed", range(60))
def test_short_texts_differ_as_in_difflib(seed: int) -> None:
    chance = random.Random(seed)
    old, new = (lines(*(chance.choice("abcdefgh") for _ in range(chance.randint(0, 40)))) for _ in range(2))
    assert unified(old, new) == expected(old, new)


def test_a_change_of_many_values_in_a_long_text_differs_as_in_difflib() -> None:
    old = [line for number in range(600) for line in lines("{", f"name {number}", f"value {number}", "},")]
    new = [line if number % 40 != 2 else line.replace("value", "x") for number, line in enumerate(old)]
    assert len(old) > MOST_LINES
    assert unified(old, new) == expected(old, new)
    assert unified(old, old) == ""


def patched(old: list[str], difference: str) -> list[str]:
    """Return the new text of a unified diff."""
    result, place = [], 0
    for line in difference.splitlines(keepends=True):
        if line.startswith("@@"):
            first, _, count = line.split()[1].removeprefix("-").partition(",")
            start = int(first) - (count != "0")
            result += old[place:start]
            place = start
        else:
            if line[0] in " -":
                assert old[place] == line[1:]
                place += 1
            if line[0] in " +":
                result.append(line[1:])
    return result + old[place:]


@pytest.mark.parametrize("seed", range(30))
def test_a_difference_of_long_texts_turns_the_old_into_the_new(seed: int) -> None:
    chance = random.Random(seed)
    letters = chance.choice((3, 50, 3000))
    old = lines(*(chance.randrange(letters) for _ in range(MOST_LINES + 200)))
    new = list(old)
    for _ in range(chance.choice((1, 20, 2000))):
        place = chance.randrange(len(new))
        new[place : place + chance.randrange(3)] = lines(
            *(chance.randrange(letters) for _ in range(chance.randrange(3)))
        )
    assert patched(old, unified(old, new)) == new
