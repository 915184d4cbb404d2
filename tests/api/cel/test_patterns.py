"""Patterns of clients: the estimate of their work, the bound of their compilation and of all compiled ones."""

from __future__ import annotations

from time import thread_time

import pytest

from kubechronicle.api.cel.operations import patterns
from kubechronicle.api.cel.operations.pattern_work import work_of
from kubechronicle.api.cel.operations.patterns import PatternError, Patterns, compiled
from kubechronicle.api.values.allowance import ALLOWANCE, Allowance


def alternatives(count: int, most: int = 900) -> str:
    return "(" + "|".join([f"(a?){{0,{most}}}"] * count) + ")"


TOO_LARGE = {
    alternatives(800),
    alternatives(100, 90),
    r"\p{L}{100}",
    r"[\p{L}\p{M}\p{N}\p{P}\p{S}]{60}",
    "(?:" + "|".join(["[a-z]{0,1000}"] * 100) + ")",
    "(?i)" + "(ſ{0,1000})" * 50,
    "x" * 100_001,
    "|".join(["a{1000}"] * 500),
    "(?:a{0,10}b{0,10}c{0,10}){0,99}" * 30,
}


@pytest.mark.parametrize("pattern", sorted(TOO_LARGE), ids=lambda pattern: pattern[:24])
def test_a_pattern_that_takes_long_is_refused_before_it_is_compiled(pattern: str) -> None:
    began = thread_time()
    with pytest.raises(PatternError, match="expression too large"):
        compiled(pattern)
    assert thread_time() - began < 0.25  # the estimate itself, which others can interrupt


@pytest.mark.parametrize(
    ("pattern", "error"),
    [
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("((a{100}){10}){10}", "invalid repeat count: `{10}`"),
        ("(" * 1001 + ")" * 1001, "expression nests too deeply: ``"),
    ],
    ids=["one", "nested", "deep"],
)
def test_the_limits_of_go_are_kept(pattern: str, error: str) -> None:
    with pytest.raises(PatternError) as caught:
        compiled(pattern)
    assert str(caught.value) == f"error parsing regexp: {error}"


@pytest.mark.parametrize(
    "pattern",
    [
        alternatives(2),
        alternatives(9, 90),
        r"\p{L}{20}",
        r"[^\pL]{20}",
        r"(?i)[k-s]{0,1000}",
        r"\W{500}",
        "(?i)[^k]{300}",
        ".{0,999}",
        "[a-z]{1000}",
        "a{900}|b{900}",
        r"\Qa{9000}\E",
        r"[{}(|]{3}",
        "(?i)ß{500}",
        "(?s).{500}",
        r"[\x{100}-\x{fff}x]{200}",
        "[[:^alpha:]]{300}",
    ],
    ids=lambda pattern: pattern[:24],
)
def test_the_estimate_is_at_least_the_program(pattern: str) -> None:
    assert compiled(pattern).size <= work_of(pattern).instructions * 1.5 + 20


@pytest.mark.parametrize(
    "pattern",
    [
        r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        r"^[\p{L}\p{N}._-]{1,63}$",
        r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
        r"^.{0,1000}$",
        r"^(([1-9]?\d|1\d\d|2[0-4]\d|25[0-5])\.){3}([1-9]?\d|1\d\d|2[0-4]\d|25[0-5])(/(3[0-2]|[12]?\d))?$",
    ],
)
def test_usual_patterns_are_compiled(pattern: str) -> None:
    assert compiled(pattern).size > 0


class UsedUp(Exception):
    """The time is used up."""


def test_a_compilation_and_a_long_match_tell_their_time_first() -> None:
    pattern = compiled(alternatives(1))
    token = ALLOWANCE.set(Allowance(thread_time, 0.01, UsedUp))
    try:
        with pytest.raises(UsedUp):
            compiled(alternatives(3, 899))
        assert pattern.matches("ab" * 20)
        for use in (pattern.matches, pattern.find, pattern.find_all):
            with pytest.raises(UsedUp):
                use("ab" * 5000)
    finally:
        ALLOWANCE.reset(token)


def test_a_match_beyond_any_allowance_is_refused() -> None:
    with pytest.raises(PatternError, match="too large for a text of"):
        compiled(alternatives(2)).matches("b" * 1_000_000)


def test_all_compiled_patterns_are_bounded_and_can_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "MOST_BYTES", 1 << 20)
    kept = Patterns()
    for index in range(40):
        kept.compiled(f"a{index}")
    assert 0 < kept.bytes <= 1 << 20
    assert 0 < len(kept) < 10
    kept.forget()
    assert (len(kept), kept.bytes) == (0, 0)


def test_the_matches_of_all_are_those_of_go() -> None:
    assert compiled("a|").find_all("éaéb") == ["", "a", "", ""]
    assert compiled("(a)(b)").find("xab") == "ab"
