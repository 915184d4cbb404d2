"""Match conditions of webhook authorizers: CEL expressions that select the requests a webhook is asked about
(k8s.io/apiserver/pkg/authorization/cel).

    request.user, .uid, .groups, .extra
    request.resourceAttributes       namespace verb group version resource subresource name fieldSelector labelSelector
    request.nonResourceAttributes    path verb

One of the two attributes is present, and selectors only where the request has them. Every other field is present.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any, Final

from kubechronicle.actors.evaluation import bounded
from kubechronicle.api import cel
from kubechronicle.api.cel.types import BOOL, STRING, list_of, map_of, object_type
from kubechronicle.api.values.caches import remembered
from kubechronicle.http.authorization.metrics import MatchConditionMetrics
from kubechronicle.http.authorization.webhook import MatchFailed

BUDGET: Final = 100_000
"""Cost limit of one evaluation. Kubernetes' PerCallLimit is ten times as much and takes 0.1 s there; here an evaluation
blocks all other tasks."""
SECONDS: Final = 0.05
"""CPU of all conditions of one decision. Beyond, a condition fails as one that costs too much."""
TOGETHER: Final = 250_000
"""Cost limit of all conditions of one decision: 2.5 times that of one, as in Kubernetes' admission."""

_STRINGS: Final = list_of(STRING)
_SELECTOR: Final = {
    "rawSelector": STRING,
    "requirements": list_of(
        object_type("kubernetes.SelectorRequirement", {"key": STRING, "operator": STRING, "values": _STRINGS})
    ),
}
RESOURCE_FIELDS: Final = ("namespace", "verb", "group", "version", "resource", "subresource", "name")
PATH_FIELDS: Final = ("path", "verb")
SELECTORS: Final = ("fieldSelector", "labelSelector")
_RESOURCE: Final = object_type(
    "kubernetes.ResourceAttributes",
    {
        **dict.fromkeys(RESOURCE_FIELDS, STRING),
        "fieldSelector": object_type("kubernetes.FieldSelectorAttributes", _SELECTOR),
        "labelSelector": object_type("kubernetes.LabelSelectorAttributes", _SELECTOR),
    },
)
REQUEST: Final = object_type(
    "kubernetes.SubjectAccessReviewSpec",
    {
        "resourceAttributes": _RESOURCE,
        "nonResourceAttributes": object_type("kubernetes.NonResourceAttributes", dict.fromkeys(PATH_FIELDS, STRING)),
        "user": STRING,
        "groups": _STRINGS,
        "extra": map_of(STRING, _STRINGS),
        "uid": STRING,
    },
)


@remembered(1024)
def compiled(expression: str) -> cel.Program:
    """Return the program of a condition. Raises ValueError, whose text may have several lines."""
    try:
        program = _environment().compile(expression)
    except cel.InstantiationError as error:
        raise ValueError(f"program instantiation failed: {error}") from None
    except cel.CompileError as error:
        raise ValueError(f"compilation failed: {error}") from None
    if program.result_type != BOOL:
        raise ValueError(f"must evaluate to bool but got {program.result_type}")
    return program


@functools.cache
def _environment() -> cel.Environment:
    return cel.base_environment().extend(variables={"request": REQUEST})


def request_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``request`` variable for a SubjectAccessReviewSpec (v1), whose empty fields may be missing."""
    request: dict[str, Any] = {
        "user": spec.get("user") or "",
        "groups": spec.get("groups") or [],
        "uid": spec.get("uid") or "",
        "extra": spec.get("extra") or {},
    }
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None:
        attributes: dict[str, Any] = {name: resource.get(name) or "" for name in RESOURCE_FIELDS}
        for name in SELECTORS:
            selector = _selector(resource.get(name) or {})
            if selector:
                attributes[name] = selector
        request["resourceAttributes"] = attributes
    if path is not None:
        request["nonResourceAttributes"] = {name: path.get(name) or "" for name in PATH_FIELDS}
    return request


def _selector(selector: Mapping[str, Any]) -> dict[str, Any]:
    if selector.get("rawSelector"):
        return {"rawSelector": selector["rawSelector"]}
    requirements = [
        {"key": each.get("key") or "", "operator": each.get("operator") or "", "values": each.get("values") or []}
        for each in selector.get("requirements") or ()
    ]
    return {"requirements": requirements} if requirements else {}


class AuthorizerConditions:
    """All conditions of one authorizer. Each expression is one that ``compiled`` accepts."""

    def __init__(self, expressions: Sequence[str], name: str, metrics: MatchConditionMetrics) -> None:
        self._conditions = [(expression, compiled(expression)) for expression in expressions]
        self._metrics = metrics.of(name)

    def matches(self, spec: Mapping[str, Any]) -> bool:
        """Return whether every condition is true for this SubjectAccessReviewSpec.

        A false condition outweighs conditions that fail. Raises MatchFailed if some fail and none is false.
        """
        started = perf_counter()
        metrics = self._metrics
        try:
            with bounded(SECONDS):
                matches = self._evaluate({"request": request_of(spec)})
        except MatchFailed:
            metrics.errors += 1
            raise
        finally:
            metrics.seconds.add(perf_counter() - started)
        metrics.exclusions += not matches
        return matches

    def _evaluate(self, variables: Mapping[str, Any]) -> bool:
        failed: list[str] = []
        room = TOGETHER
        for expression, program in self._conditions:
            budget = min(BUDGET, room)
            try:
                value, cost = program.evaluate_with_cost(variables, budget=budget)
                if not value:
                    return False
                room -= cost
            except cel.EvaluationError as error:
                room -= budget if isinstance(error, cel.CostExceeded) else 0
                failed.append(f"cel evaluation error: expression '{expression}' resulted in error: {error}")
        if failed:
            raise MatchFailed(failed[0] if len(failed) == 1 else f"[{', '.join(failed)}]")
        return True
