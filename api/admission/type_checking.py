"""Type checking of ValidatingAdmissionPolicies: warnings of expressions that do not fit the objects they match.

Source: k8s.io/apiserver ``pkg/admission/plugin/policy/validating/typechecking.go``.

Policies are compiled without the types of their objects. So an expression that names a missing field is accepted, and
fails at each request. Here the expressions are checked once more for each kind that the policy names without wildcards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kubechronicle.api.cel import CompileError, Environment, base_environment
from kubechronicle.api.cel.admission import NAMESPACE, REQUEST, VARIABLES, as_variable
from kubechronicle.api.cel.library.authorization import AUTHORIZER
from kubechronicle.api.cel.schemas import built_in_type
from kubechronicle.api.cel.types import DYN, CelType, object_type
from kubechronicle.api.pipeline import bodies
from kubechronicle.api.registry.registry import Registry, ResourceType
from kubechronicle.api.values.objects import Object, ReadOnlyObject

MAX_KINDS: Final = 10
"""Kinds for which one rule is checked."""


class CheckedKind(NamedTuple):
    """A kind, in the order of Kubernetes' own type. ``name``: as in warnings."""

    group: str
    version: str
    kind: str

    @property
    def name(self) -> str:
        return f"{self.group}/{self.version}, Kind={self.kind}"


def warnings(policy: ReadOnlyObject, registry: Registry) -> list[Object]:
    """Return the expressionWarnings of a policy's status, in the order of its expressions."""
    spec = policy["spec"]
    scopes = [
        (kind, _scope(spec, of, params))
        for params in (_params(spec, registry),)
        for kind, of in sorted(_kinds(spec, registry).items())
    ]
    found: list[Object] = []
    for field, expression in _expressions(spec):
        problems = [f"{kind.name}: {problem}\n" for kind, scope in scopes if (problem := _problem(expression, scope()))]
        if problems:
            found.append({"fieldRef": field, "warning": "\n".join(problems)})
    return found


def _expressions(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for index, validation in enumerate(spec.get("validations") or ()):
        for name in ("expression", "messageExpression"):
            if name == "expression" or validation.get(name):
                yield f"spec.validations[{index}].{name}", validation.get(name, "")


def _problem(expression: str, scope: Environment) -> str:
    try:
        scope.check(expression)
    except CompileError as error:
        return str(error.report)
    return ""


def _scope(spec: Mapping[str, Any], of: CelType, params: CelType | None) -> Callable[[], Environment]:
    """Return a function that makes the environment of the expressions at its first call."""
    made: list[Environment] = []

    def scope() -> Environment:
        if not made:
            made.append(_environment(spec.get("variables") or (), of, params))
        return made[0]

    return scope


def _environment(variables: Sequence[Mapping[str, Any]], of: CelType, params: CelType | None) -> Environment:
    names = {"object": of, "oldObject": of, "namespaceObject": NAMESPACE, "request": REQUEST, "authorizer": AUTHORIZER}
    if params is not None:
        names["params"] = params
    declared: dict[str, CelType] = {}
    scope = base_environment().extend(variables={**names, "variables": object_type(VARIABLES, declared)})
    for each in variables:
        try:
            kind = scope.check(each.get("expression", "")).type
        except CompileError:
            kind = DYN
        declared[each.get("name", "")] = as_variable(kind)
    return scope


def _params(spec: Mapping[str, Any], registry: Registry) -> CelType | None:
    kind = spec.get("paramKind")
    if kind is None:
        return None
    rt = registry.by_api_version(kind.get("apiVersion", ""), kind.get("kind", ""))
    return DYN if rt is None else _type(rt)


def _type(rt: ResourceType) -> CelType:
    structure = bodies.kind_type(rt)
    return DYN if structure is None else built_in_type(structure, rt.kind)


def _kinds(spec: Mapping[str, Any], registry: Registry) -> dict[CheckedKind, CelType]:
    """Return the kinds that the rules name without wildcards. A rule with too many ends the search."""
    found: dict[CheckedKind, CelType] = {}
    for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
        for count, rt in enumerate(_named(rule, registry), 1):
            found.setdefault(CheckedKind(rt.group, rt.version, rt.kind), _type(rt))
            if count == MAX_KINDS:
                return found
    return found


def _named(rule: Mapping[str, Any], registry: Registry) -> Iterator[ResourceType]:
    groups, versions = rule.get("apiGroups") or (), rule.get("apiVersions") or ()
    if any("*" in each for each in (*groups, *versions)):
        return
    resources = sorted(each for each in rule.get("resources") or () if "*" not in each and "/" not in each)
    for group in sorted(groups):
        for version in sorted(versions):
            for resource in resources:
                rt = registry.lookup(group, version, resource)
                if rt is not None:
                    yield rt
