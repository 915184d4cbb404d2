"""Warnings of expressions that do not fit the kinds that a policy names."""

from __future__ import annotations

from typing import Any

from kubechronicle.api.admission.type_checking import warnings
from kubechronicle.api.registry.registry import known_registry

DEPLOYMENTS = {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}


def checked(*validations: dict[str, Any], rule: dict[str, Any] = DEPLOYMENTS, **spec: Any) -> list[dict[str, Any]]:
    policy = {"spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": list(validations), **spec}}
    return warnings(policy, known_registry())


def test_a_missing_field_is_named_for_each_kind() -> None:
    rule = {**DEPLOYMENTS, "resources": ["replicasets", "deployments", "deployments/status"]}
    (warning,) = checked({"expression": "object.foo > 1"}, rule=rule)
    problem = "ERROR: <input>:1:7: undefined field 'foo'\n | object.foo > 1\n | ......^\n"
    kinds = ("Deployment", "ReplicaSet")
    assert warning["fieldRef"] == "spec.validations[0].expression"
    assert warning["warning"] == "\n".join(f"apps/v1, Kind={kind}: {problem}" for kind in kinds)


def test_expressions_that_fit_have_no_warning() -> None:
    good = "object.spec.template.spec.containers.all(c, c.image != 'x') && oldObject == null"
    assert checked({"expression": good, "messageExpression": "object.metadata.name"}) == []


def test_variables_have_the_types_of_their_expressions() -> None:
    variables = [{"name": "r", "expression": "object.spec.replicas"}, {"name": "s", "expression": "variables.r"}]
    (warning,) = checked({"expression": "true", "messageExpression": "variables.s + 'x'"}, variables=variables)
    assert warning["fieldRef"] == "spec.validations[0].messageExpression"
    assert "found no matching overload for '_+_' applied to '(int, string)'" in warning["warning"]


def test_parameters_have_the_type_of_their_kind() -> None:
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    (warning,) = checked({"expression": "params.data.x == 1"}, paramKind=kind)
    assert "found no matching overload for '_==_' applied to '(string, int)'" in warning["warning"]
    assert checked({"expression": "params.data.x == 1"}, paramKind={"apiVersion": "x.y/v1", "kind": "Z"}) == []


def test_rules_with_wildcards_and_unknown_resources_are_not_checked() -> None:
    for rule in (
        {**DEPLOYMENTS, "apiGroups": ["*"]},
        {**DEPLOYMENTS, "apiVersions": ["*"]},
        {**DEPLOYMENTS, "resources": ["*", "nothing"]},
    ):
        assert checked({"expression": "object.foo"}, rule=rule) == []
