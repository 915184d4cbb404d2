"""Match conditions of webhooks: CEL expressions that must all be true for a write to be sent.

Source: k8s.io/apiserver ``pkg/admission/plugin/webhook/matchconditions``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubechronicle.api.admission.policy_programs import CONDITIONS_BUDGET, Compiler, Failed, OutOfBudget, Stage
from kubechronicle.api.cel.admission import CONDITION


class ConditionsFailed(Exception):
    """Some conditions fail on a write, and none is false."""


class Conditions:
    """The match conditions of one webhook, compiled at the first write that its rules match."""

    def __init__(self, specs: Sequence[Mapping[str, Any]]) -> None:
        compiler = Compiler({})
        self._expressions = [compiler.compile(each.get("expression", ""), CONDITION) for each in specs]

    def match(self, values: Mapping[str, Any]) -> bool:
        """Tell whether all are true. One that is false outweighs those that fail. Raises ConditionsFailed."""
        stage = Stage(values, {}, CONDITIONS_BUDGET)
        failures: list[str] = []
        for expression in self._expressions:
            try:
                if stage.evaluate(expression) is False:
                    return False
            except Failed as error:
                failures.append(str(error))
            except OutOfBudget as error:
                raise ConditionsFailed(str(error)) from None
        if failures:
            raise ConditionsFailed(failures[0] if len(failures) == 1 else f"[{', '.join(dict.fromkeys(failures))}]")
        return True
