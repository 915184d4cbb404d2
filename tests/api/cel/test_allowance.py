"""The CPU time of expressions beside their cost: what counts, what ends it, and what small expressions do not pay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import thread_time

import pytest

from kubechronicle.api.cel import base_environment
from kubechronicle.api.cel.cost_estimate import estimate
from kubechronicle.api.cel.errors import CostExceeded
from kubechronicle.api.cel.evaluation.program import Program
from kubechronicle.api.cel.library import estimates
from kubechronicle.api.cel.types import DYN, STRING
from kubechronicle.api.values.allowance import ALLOWANCE, MOST_MADE, Allowance, InThread

SCOPE = base_environment().extend({"text": STRING, "value": DYN})
LOOPS = "[1,2,3,4,5,6,7,8,9,10].all(x{}, {})"


class UsedUp(Exception):
    """The time is used up."""


@contextmanager
def allowed(allowance: Allowance) -> Iterator[None]:
    token = ALLOWANCE.set(allowance)
    try:
        with allowance:
            yield
    finally:
        ALLOWANCE.reset(token)


def nested(expression: str, depth: int) -> str:
    for level in range(depth):
        expression = LOOPS.format(level, expression)
    return expression


def repeat(program: Program, times: int, variables: dict[str, object]) -> None:
    for _ in range(times):
        program.outcome(variables, 10**9)


DEAR = {
    "cidr(text).containsIP('10.0.0.1')": "10.0.0.0/8",
    "isCIDR(text)": "10.0.0.0/8",
    "ip(text).family() == 4": "10.0.0.1",
    "timestamp(text) < timestamp('2040-01-01T00:00:00Z')": "2021-01-01T00:00:00.5Z",
    "timestamp(text).getFullYear('Europe/Zurich') > 1": "2021-01-01T00:00:00Z",
    "duration(text) > duration('1s')": "100h20m3s4ms",
    "semver(text).isGreaterThan(semver('1.0.0'))": "1.2.3-alpha.1+build.5",
    "isURL(text)": "https://u:p@example.com:8080/a?x=1#f",
    "url(text).getHost() != ''": "https://u:p@example.com:8080/a?x=1#f",
    "quantity(text).isGreaterThan(quantity('1Ki'))": "123.456Mi",
    "!format.dns1123Label().validate(text).hasValue()": "abc-def",
    "'%s %.3f'.format([text, 2.0]) != ''": "x",
    "text.matches(text)": "aaaa",
    "text.find('a+') != ''": "aaab",
    "double(text) > 1.0": "1234.5678",
    "text.replace('a', 'bb') != ''": "aaab",
    "text.split(',').size() > 0": "a,b,c",
    "text.lowerAscii() != ''": "ABC",
    "sets.intersects(['a', 'b'], [text, 'b'])": "x",
    "lists.range(10).sum() > 1": "",
    "[3, 1, 2].sort() == [1, 2, 3]": "",
    "{'a': text} == {'a': text}": "x",
    "optional.of(text).optMap(x, x).hasValue()": "x",
    "['a', text].transformList(i, v, v).size() == 2": "x",
    "text == 'x'": "x",
}


@pytest.mark.parametrize(("expression", "text"), DEAR.items())
@pytest.mark.parametrize("depth", [0, 4])
def test_no_expression_runs_long_beyond_its_allowance(expression: str, text: str, depth: int) -> None:
    """Also in one that has no loop, but repeats a dear function."""
    written = nested(expression, depth) if depth else " && ".join([expression] * 240)
    program = SCOPE.compile(written)
    assert program.evaluate({"text": text}, 10**9) is True or depth == 0
    began = thread_time()
    with pytest.raises(UsedUp), allowed(Allowance(thread_time, 0.002, UsedUp)):
        repeat(program, 1000, {"text": text})
    assert thread_time() - began < 0.02


def test_small_evaluations_share_the_allowance() -> None:
    program = SCOPE.compile("text == 'x' || isURL(text)")
    with pytest.raises(UsedUp), allowed(Allowance(thread_time, 0.002, UsedUp)):
        repeat(program, 10_000, {"text": "https://a.b/c"})


def test_failed_evaluations_count() -> None:
    program = SCOPE.compile("[1, 2, 3, 4].all(x, cidr(text).prefixLength() > 0)")
    began = thread_time()
    with pytest.raises(UsedUp), allowed(Allowance(thread_time, 0.005, UsedUp)):
        repeat(program, 10_000, {"text": "no"})
    assert thread_time() - began < 0.03


def test_a_small_expression_never_reads_the_clock() -> None:
    reads = []

    def clock() -> float:
        reads.append(None)
        return 0.0

    allowance = Allowance(clock, 1.0, UsedUp)
    token = ALLOWANCE.set(allowance)
    SCOPE.compile("text.startsWith('a') && text.size() < 10").evaluate({"text": "abc"})
    ALLOWANCE.reset(token)
    assert not reads


SHARED = "[[text]]" + "".join(f".map(a{level}, [a{level}, a{level}])" for level in range(24))


@pytest.mark.parametrize(
    "expression",
    [
        f"{SHARED} == {SHARED}",
        f"[dyn({SHARED})].indexOf({SHARED}) == 0",
        f"'%s'.format([{SHARED}]) == ''",
        f"sets.contains([{SHARED}], [{SHARED}])",
        f"dyn({SHARED}).flatten(30).size() > 0",
        "lists.range(20000).all(x, true) || sets.contains(lists.range(20000), lists.range(20000))",
        "sets.equivalent(lists.range(3000), lists.range(3000).reverse())",
        "lists.range(900).map(x, -x).sort().size() > 0 && lists.range(900).map(x, -x).distinct().size() > 0",
    ],
    ids=["equality", "index", "format", "set", "flatten", "large-sets", "reverse-sets", "pairs"],
)
def test_one_call_on_shared_or_large_values_ends(expression: str) -> None:
    """A list that holds another one twice, in 24 levels, costs little and has 16 million parts."""
    program = SCOPE.compile(expression)
    began = thread_time()
    with pytest.raises(UsedUp), allowed(Allowance(thread_time, 0.01, UsedUp)):
        repeat(program, 1000, {"text": "x"})
    assert thread_time() - began < 0.1


@pytest.mark.parametrize(
    "expression",
    [
        "lists.range(1000).map(x, value.replace('a', value)).size() > 0",
        "lists.range(1000).map(x, lists.range(10000) + lists.range(10000)).size() > 0",
        "lists.range(1000).map(x, value.split('')).size() > 0",
        "lists.range(1000).map(x, lists.range(1000).map(y, value).join(value)).size() > 0",
        "[dyn(value)]" + ".map(x, x + x)" * 18 + ".size() > 0",
        "[dyn(bytes(value))]" + ".map(x, x + x)" * 18 + ".size() > 0",
        "[dyn([value])]" + ".map(x, x + x)" * 26 + ".size() > 0",
    ],
    ids=["replace", "add", "split", "join", "add-any-texts", "add-any-bytes", "add-any-lists"],
)
def test_the_values_of_one_evaluation_are_bounded(expression: str) -> None:
    program = SCOPE.compile(expression)
    with pytest.raises((UsedUp, CostExceeded)), allowed(InThread(thread_time, 60.0, UsedUp)):
        program.evaluate({"value": "a" * 2000}, 10**9)
    assert MOST_MADE < 100 << 20


def test_a_thread_ends_at_the_next_look_at_the_clock() -> None:
    allowance = InThread(thread_time, 60.0, UsedUp)
    allowance.end()
    with pytest.raises(UsedUp), allowed(allowance):
        SCOPE.compile("text == 'x'")
    program = SCOPE.compile(nested("text == 'x'", 4))
    with pytest.raises(UsedUp), allowed(allowance):
        program.evaluate({"text": "x"})


def test_a_large_expression_is_not_compiled_on_a_small_allowance() -> None:
    began = thread_time()
    with pytest.raises(UsedUp), allowed(Allowance(thread_time, 0.015, UsedUp)):
        SCOPE.check("text.startsWith('abcdefgh') && " * 1450 + "true")
    assert thread_time() - began < 0.005


@pytest.mark.parametrize("macro", ["optMap(x, x)", "optFlatMap(x, optional.of(x))"])
def test_the_estimate_of_repeated_parts_is_linear(macro: str) -> None:
    tree = SCOPE.check("optional.of(" * 40 + "1" + f").{macro}" * 40 + ".hasValue()")
    began = thread_time()
    assert estimate(tree, lambda path: None, estimates.estimate).most > 2**40
    assert thread_time() - began < 1
