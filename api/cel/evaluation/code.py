"""Planned code: closures over a context, with their fixed costs.

A context is a list, which Python indexes fastest: [variables, cost so far, next check, budget, allowance, slot, …].
Slots hold loop variables and kept values. A closure takes the context and returns the value, or raises EvaluationError.
At the cost of the next check, `beyond` compares the cost with the budget, and the time with the allowance.

A closure does not count its fixed cost (`Code.cost`). Its evaluator counts that together with its own cost, so that an
expression without branches adds once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from kubechronicle.api.cel.errors import CostExceeded, EvaluationError, no_such_overload
from kubechronicle.api.cel.syntax.ast import Node
from kubechronicle.api.values.allowance import STEP

Context = list[Any]
Closure = Callable[[Context], Any]

SLOTS: Final = 5
"""The index of the first slot."""


class ConstantError(Exception):
    """A conversion of a constant that fails at planning time."""


class Code:
    """A planned part.

    ``cost``: the fixed cost, which ``run`` does not count.
    ``attribute``: the part is a chain of selections and indexes from a variable or value.
    ``base``: the share of the chain's beginning in ``cost``, 0 or 1. As in cel-go, a branch of ``?:`` or an index does
    not pay it.
    ``constant``: ``value`` is known, and costs nothing.
    """

    __slots__ = ("attribute", "base", "constant", "cost", "run", "value")

    def __init__(self, run: Closure, cost: int = 0, *, attribute: bool = False, base: int = 0) -> None:
        self.run = run
        self.cost = cost
        self.attribute = attribute
        self.base = base
        self.constant = False
        self.value: Any = None

    def counted(self) -> Closure:
        """Return a closure that counts the fixed cost, too."""
        return counting(self.run, self.cost)

    def chained(self) -> Closure:
        """Return a closure that counts the fixed cost without ``base``."""
        return counting(self.run, self.cost - self.base)


def counting(run: Closure, cost: int) -> Closure:
    if not cost:
        return run

    def counted(c: Context) -> Any:
        c[1] += cost
        if c[1] > c[2]:
            beyond(c)
        return run(c)

    return counted


def constant(value: Any) -> Code:
    code = Code(lambda _: value)
    code.constant = True
    code.value = value
    return code


def check_budget(c: Context) -> None:
    if c[1] > c[2]:
        beyond(c)


def beyond(c: Context) -> None:
    """Check the budget and the allowance, and set the cost of the next check. CostExceeded; the allowance's error."""
    if c[1] > c[3]:
        raise CostExceeded
    c[4].check()
    c[2] = min(c[3], c[1] + STEP)


class PlansParts(Protocol):
    """The planner's interface for the modules that plan one kind of node each."""

    def plan(self, node: Node) -> Code: ...

    def new_slot(self) -> int: ...

    def push(self, names: dict[str, int]) -> None: ...

    def pop(self) -> None: ...


# -- logic ------------------------------------------------------------------------------------------------------------


def logic(terms: list[Code], absorbing: bool) -> Code:
    """Plan ``&&`` (absorbing: False) and ``||`` (True). A term with the absorbing value decides, even if others fail.

    Terms are evaluated from the left until one decides. If none does, the first error is raised.
    """
    runs = [terms[0].run, *(term.counted() for term in terms[1:])]
    if len(runs) == 2:
        return Code(_two(runs[0], runs[1], absorbing), terms[0].cost)

    neutral = not absorbing

    def run(c: Context) -> bool:
        failed: EvaluationError | None = None
        for term in runs:
            try:
                value = term(c)
            except CostExceeded:
                raise
            except EvaluationError as error:
                failed = failed or error
                continue
            if value is absorbing:
                return not neutral
            if value is not True and value is not False:
                failed = failed or no_such_overload()
        if failed is not None:
            raise failed
        return neutral

    return Code(run, terms[0].cost)


def _two(first: Closure, second: Closure, absorbing: bool) -> Closure:
    neutral = not absorbing

    def run(c: Context) -> bool:
        try:
            value = first(c)
        except CostExceeded:
            raise
        except EvaluationError as error:
            failed = error
        else:
            if value is absorbing:
                return not neutral
            if value is neutral:
                value = second(c)
                if value is True or value is False:
                    return bool(value)
                raise no_such_overload()
            failed = no_such_overload()
        if decides(c, second, absorbing):
            return absorbing
        raise failed

    return run


def decides(c: Context, term: Closure, absorbing: bool) -> bool:
    """Return whether a term has the absorbing value, which cancels an earlier error."""
    try:
        return bool(term(c) is absorbing)
    except CostExceeded:
        raise
    except EvaluationError:
        return False


def conditional(condition: Code, first: Code, second: Code) -> Code:
    """Plan ``?:``. It may begin a chain, at no cost."""
    test, yes, no = condition.run, first.chained(), second.chained()

    def run(c: Context) -> Any:
        value = test(c)
        if value is True:
            return yes(c)
        if value is False:
            return no(c)
        raise no_such_overload()

    return Code(run, condition.cost, attribute=True)
