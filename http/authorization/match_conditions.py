"""The match conditions of an authorizer that is asked outside: CEL over the request it would be asked about, by which
it is asked about fewer (k8s.io/apiserver/pkg/authorization/cel).

    request.user, .uid, .groups, .extra
    request.resourceAttributes       namespace verb group version resource subresource name fieldSelector labelSelector
    request.nonResourceAttributes    path verb

One of the two attributes is there, and a selector only where the request has one; everything else always is.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any, Final

from kubechronicle.api import cel
from kubechronicle.api.cel.types import BOOL, STRING, list_of, map_of, object_type
from kubechronicle.http.authorization.match_condition_metrics import MatchConditionMetrics
from kubechronicle.http.authorization.webhook import MatchFailed

BUDGET: Final = 100_000
"""What one evaluation may cost: some 50 ms. Kubernetes' PerCallLimit, ten times as much, stands for 0.1 s there; here
nothing else is done meanwhile."""
TOGETHER: Final = 250_000
"""What all conditions of one decision may cost together: 2.5 times as much as one, as Kubernetes' for admission."""

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


@functools.lru_cache(maxsize=1024)
def compiled(expression: str) -> cel.Program:
    """The program of a condition. ValueError, perhaps in several lines: it can't be one."""
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
    """What conditions see of a SubjectAccessReviewSpec (v1, what is empty may be left out)."""
    found: dict[str, Any] = {
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
        found["resourceAttributes"] = attributes
    if path is not None:
        found["nonResourceAttributes"] = {name: path.get(name) or "" for name in PATH_FIELDS}
    return found


def _selector(selector: Mapping[str, Any]) -> dict[str, Any]:
    if selector.get("rawSelector"):
        return {"rawSelector": selector["rawSelector"]}
    requirements = [
        {"key": each.get("key") or "", "operator": each.get("operator") or "", "values": each.get("values") or []}
        for each in selector.get("requirements") or ()
    ]
    return {"requirements": requirements} if requirements else {}


class MatchConditions:
    """All conditions of one authorizer, each an expression that can be ``compiled``."""

    def __init__(self, expressions: Sequence[str], name: str, metrics: MatchConditionMetrics) -> None:
        self._conditions = [(expression, compiled(expression)) for expression in expressions]
        self._metrics = metrics.of(name)

    def matches(self, spec: Mapping[str, Any]) -> bool:
        """Whether the authorizer is to be asked about this SubjectAccessReviewSpec: every condition is true. One that
        is false counts for more than those that fail. MatchFailed."""
        started = perf_counter()
        metrics = self._metrics
        try:
            matches = self._evaluate({"request": request_of(spec)})
        except MatchFailed:
            metrics.errors += 1
            raise
        finally:
            metrics.took(perf_counter() - started)
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
