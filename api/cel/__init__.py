"""The Common Expression Language as Kubernetes offers it: parser, checker, closures, and a cost budget.

program = base_environment().extend(variables={"request": REQUEST}).compile("request.user == 'x'", result=BOOL)
program.evaluate({"request": {"user": "x"}}, budget=1_000_000)
"""

from kubechronicle.api.cel.environment import Environment, base_environment
from kubechronicle.api.cel.errors import CompileError, CostExceeded, EvaluationError, InstantiationError
from kubechronicle.api.cel.evaluation.program import Program

__all__ = [
    "CompileError",
    "CostExceeded",
    "Environment",
    "EvaluationError",
    "InstantiationError",
    "Program",
    "base_environment",
]
