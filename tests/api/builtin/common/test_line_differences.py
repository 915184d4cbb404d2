"""Unified diffs: those of difflib for short texts, and correct ones for long texts."""

from __future__ import annotations

import difflib
import random

import pytest

from kubechronicle.api.builtin.common.line_differences import MOST_LINES, unified


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
