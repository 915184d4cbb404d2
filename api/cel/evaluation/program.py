"""Programs: compiled expressions, evaluated with variables within a cost budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.cel.errors import CostExceeded, EvaluationError
from kubechronicle.api.cel.evaluation.code import Closure, Context, beyond
from kubechronicle.api.cel.types import CelType
from kubechronicle.api.values.allowance import ALLOWANCE, UNLIMITED

PER_CALL_LIMIT: Final = 1_000_000
"""The cost limit of one evaluation (k8s.io/apiserver ``PerCallLimit``)."""


class Program:
    """A compiled expression, made by `Environment.compile`. Immutable; concurrent use is safe.

    ``result_type``: the static type.
    ``reads``: dotted paths of the variables' fields in use, such as ``claims.email``. A variable used as a whole is
    listed by its name.
    ``source``: the expression.
    """

    __slots__ = ("_cost", "_run", "_slots", "reads", "result_type", "source")

    def __init__(
        self, source: str, run: Closure, cost: int, slots: int, result_type: CelType, reads: frozenset[str]
    ) -> None:
        self.source = source
        self.result_type = result_type
        self.reads = reads
        self._run = run
        self._cost = cost
        self._slots: Context = [None] * slots

    def evaluate(self, variables: Mapping[str, Any], budget: int = PER_CALL_LIMIT) -> Any:
        """Return the value. EvaluationError if it fails, CostExceeded if it costs more than ``budget``.

        The value may be part of a variable or of the program: copy it before changing it.
        """
        return self._evaluated(self._context(variables, budget))

    def evaluate_with_cost(self, variables: Mapping[str, Any], budget: int = PER_CALL_LIMIT) -> tuple[Any, int]:
        """Return (value, its cost). Errors as in `evaluate`."""
        context = self._context(variables, budget)
        return self._evaluated(context), context[1]

    def outcome(self, variables: Mapping[str, Any], budget: int = PER_CALL_LIMIT) -> tuple[Any, int]:
        """Return (value, its cost). An EvaluationError is returned in place of the value, with the cost so far."""
        context = self._context(variables, budget)
        try:
            return self._evaluated(context), context[1]
        except EvaluationError as error:
            return error, context[1]

    def _context(self, variables: Mapping[str, Any], budget: int) -> Context:
        allowance = ALLOWANCE.get()
        room = allowance.room
        return [variables, self._cost, room if room < budget else budget, budget, allowance, *self._slots]

    def _evaluated(self, context: Context) -> Any:
        try:
            value = self._run(context)
            if context[1] > context[2]:
                beyond(context)
        except EvaluationError:
            if context[1] > context[3]:
                raise CostExceeded from None
            raise
        except RecursionError as error:  # values nested deeper than Python's stack
            raise EvaluationError("expression recursion limit exceeded") from error
        except (AttributeError, TypeError) as error:  # a variable has not its declared type
            raise EvaluationError("no such overload") from error
        finally:
            allowance = context[4]
            if allowance is not UNLIMITED:
                allowance.room = context[2] - context[1]
        return value
