"""Shard selectors: their texts, refusals and hashes."""

from __future__ import annotations

import re

import pytest

from kubechronicle.api.cel.shards import parse
from kubechronicle.api.selectors.shard_selectors import UID, fnv

LOW, HALF, HIGH = "0x0000000000000000", "0x8000000000000000", "0x10000000000000000"


def text(start: str = LOW, end: str = HIGH, field: str = UID) -> str:
    return f"shardRange({field}, '{start}', '{end}')"


def test_the_hash_is_fnv_1a() -> None:
    assert fnv("") == 0xCBF29CE484222325
    assert fnv("a") == 0xAF63DC4C8601EC8C
    assert fnv("foobar") == 0x85944171F73967E8


def test_shares_divide_all_objects() -> None:
    halves = parse(text(LOW, HALF)), parse(text(HALF, HIGH))
    for number in range(100):
        assert sum(half.matches("n", f"uid-{number}") for half in halves) == 1
        assert parse(f"{text(LOW, HALF)} || {text(HALF, HIGH)}").matches("n", f"uid-{number}")
    by_namespace = parse(text(LOW, HALF, "object.metadata.namespace"))
    assert by_namespace.matches("b", "x") is (fnv("b") < 2**63)


def test_the_text_of_a_selector() -> None:
    assert (
        str(parse(f'  shardRange( {UID} , "{LOW}", "{HALF}")||{text(HALF)} ')) == f"{text(LOW, HALF)} || {text(HALF)}"
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (" ", "empty shard selector is not allowed; omit the parameter for unfiltered lists"),
        ("x", "unexpected expression kind 3; expected shardRange() call or || operator"),
        ("f(1)", 'unsupported function "f"; only shardRange() and || are allowed'),
        ("shardRange(1)", "shardRange() requires exactly 3 arguments, got 1"),
        (text(field="object.metadata.name"), 'unsupported field path "object.metadata.name"; supported: '),
        (text(HALF, LOW), f"shard range start {HALF} must be less than end {LOW}"),
        (
            text("0x8"),
            'hexStart must be a 0x-prefixed 16-digit hex value, got "0x8" (did you mean "0x0000000000000008"?)',
        ),
        (
            "shardRange(f(), '', '')",
            "shardRange() first argument: expected field path (e.g. object.metadata.uid), got ",
        ),
        (f"shardRange({UID}, 1, '')", "hexStart must be a string literal, got int64"),
        (f"shardRange({UID}, [], '')", "hexStart must be a string literal (e.g. '0xff'), got expression kind 4"),
        (text("8"), "hexStart must have '0x' prefix, got \"8\""),
        (text(end="0x"), "hexEnd: hex value is required after '0x'"),
        (text(end="0x20000000000000000"), f"hexEnd: 17-digit hex value must be '{HIGH}' (2^64), got "),
        (text(end="0x" + "f" * 18), "hexEnd: hex value too long (18 chars, max 17): "),
        (text("0xg000000000000000"), 'hexStart: invalid hex character "g" in "0xg000000000000000"'),
        (f"{text()} || {text(field='object.metadata.namespace')}", "all shard ranges must use the same field, got "),
        ("shardRange(", "CEL parse error: "),
    ],
)
def test_refusals(given: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        parse(given)
