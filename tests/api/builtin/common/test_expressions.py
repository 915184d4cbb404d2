"""Causes of expressions that do not compile or have the wrong type."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rejections import rejection_causes

from kubechronicle.api.builtin.common import expressions

ADMISSION = "admissionregistration.k8s.io/v1/"
RULES = [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["*"]}]
MATCH = {"matchConstraints": {"resourceRules": RULES}}


def policy(**spec: Any) -> dict[str, Any]:
    return {"spec": {**MATCH, "validations": [{"expression": "true"}], **spec}}


def mutation(**patch: Any) -> dict[str, Any]:
    return {"spec": {**MATCH, "reinvocationPolicy": "Never", "mutations": [patch]}}


def hook(expression: str) -> dict[str, Any]:
    return {
        "webhooks": [
            {
                "name": "a.example.com",
                "clientConfig": {"url": "https://example.com"},
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "matchConditions": [{"name": "c", "expression": expression}],
            }
        ]
    }


def claim(expression: str) -> dict[str, Any]:
    exactly = {"deviceClassName": "c", "selectors": [{"cel": {"expression": expression}}]}
    return {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}


NOT_BOOL = "must evaluate to bool but got"
UNDECLARED = "compilation failed: ERROR: <input>:1:1: undeclared reference to '{0}' (in container '')\n | {1}\n | ^"


@pytest.mark.parametrize(
    ("path", "body", "causes"),
    [
        ("validatingadmissionpolicies", policy(validations=[{"expression": "object.spec.x == 1"}]), []),
        (
            "validatingadmissionpolicies",
            policy(validations=[{"expression": " 'text'"}, {"expression": " "}, {"expression": "nobody"}]),
            [
                ("spec.validations[0].expression", f"Invalid value: \" 'text'\": {NOT_BOOL} string"),
                ("spec.validations[1].expression", "Required value: expression is not specified"),
                ("spec.validations[2].expression", 'Invalid value: "nobody": ' + UNDECLARED.format("nobody", "nobody")),
            ],
        ),
        (
            "validatingadmissionpolicies",
            policy(validations=[{"expression": "true", "messageExpression": "authorizer"}]),
            [
                (
                    "spec.validations[0].messageExpression",
                    'Invalid value: "authorizer": ' + UNDECLARED.format("authorizer", "authorizer"),
                )
            ],
        ),
        (
            "validatingadmissionpolicies",
            policy(auditAnnotations=[{"key": "k", "valueExpression": " 1 "}]),
            [
                (
                    "spec.auditAnnotations[0].valueExpression",
                    'Invalid value: " 1 ": must evaluate to one of [string null_type] but got int',
                )
            ],
        ),
        (
            "validatingadmissionpolicies",
            policy(
                variables=[{"name": "a", "expression": "1"}, {"name": "b", "expression": "variables.a + 1"}],
                validations=[{"expression": "variables.b == 2"}, {"expression": "variables.b"}],
            ),
            [("spec.validations[1].expression", f'Invalid value: "variables.b": {NOT_BOOL} int')],
        ),
        (
            "validatingadmissionpolicies",
            policy(matchConditions=[{"name": "c", "expression": " params.x "}]),
            [
                (
                    "spec.matchConditions[0].expression",
                    'Invalid value: "params.x": ' + UNDECLARED.format("params", "params.x"),
                )
            ],
        ),
        (
            "validatingadmissionpolicies",
            policy(
                paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
                matchConditions=[{"name": "c", "expression": "params.data.x == 'y'"}],
                validations=[{"expression": "params.data.x == 'y'", "messageExpression": "params.data.x + ''"}],
            ),
            [],
        ),
        (
            "mutatingadmissionpolicies",
            mutation(patchType="ApplyConfiguration", applyConfiguration={"expression": "Object{}"}),
            [],
        ),
        (
            "mutatingadmissionpolicies",
            mutation(patchType="ApplyConfiguration", applyConfiguration={"expression": "'x'"}),
            [
                (
                    "spec.mutations[0].applyConfiguration.expression",
                    "Invalid value: \"'x'\": must evaluate to Object but got string",
                )
            ],
        ),
        (
            "mutatingadmissionpolicies",
            mutation(patchType="JSONPatch", jsonPatch={"expression": "[JSONPatch{op: 'remove', path: '/a'}]"}),
            [],
        ),
        (
            "mutatingadmissionpolicies",
            mutation(patchType="JSONPatch", jsonPatch={"expression": ""}),
            [("spec.mutations[0].jsonPatch.expression", "Required value")],
        ),
        ("validatingwebhookconfigurations", hook("request.operation == 'CREATE'"), []),
        (
            "mutatingwebhookconfigurations",
            hook("object"),
            [("webhooks[0].matchConditions[0].expression", f'Invalid value: "object": {NOT_BOOL} dyn')],
        ),
    ],
)
def test_admission(path: str, body: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    assert rejection_causes(ADMISSION + path, body) == causes


NO_FIELD = "compilation failed: ERROR: <input>:1:7: undefined field 'nope'\n | device.nope\n | ......^"


@pytest.mark.parametrize(
    ("path", "spec", "field"),
    [
        ("deviceclasses", {"selectors": [{"cel": {"expression": "device.nope"}}]}, "spec.selectors[0]"),
        ("resourceclaims", claim("device.nope"), "spec.devices.requests[0].exactly.selectors[0]"),
        (
            "resourceclaimtemplates",
            {"spec": claim("device.nope")},
            "spec.spec.devices.requests[0].exactly.selectors[0]",
        ),
    ],
)
def test_devices(path: str, spec: dict[str, Any], field: str) -> None:
    found = rejection_causes(f"resource.k8s.io/v1/{path}", {"spec": spec})
    assert found == [(f"{field}.cel.expression", f'Invalid value: "device.nope": {NO_FIELD}')]


def test_failed_instantiation_is_an_internal_error() -> None:
    problem = "Internal error: program instantiation failed: type conversion error from 'string' to 'int'"
    body = policy(validations=[{"expression": "int('x') == 1"}, {"expression": "int('x')"}])
    assert rejection_causes(ADMISSION + "validatingadmissionpolicies", body) == [
        ("spec.validations[0].expression", problem),
        ("spec.validations[1].expression", f"Invalid value: \"int('x')\": {NOT_BOOL} int"),
    ]


def test_expensive_selectors_are_rejected() -> None:
    expression = "true"
    for name in "abcdefg":
        expression = f"[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all({name}, {expression} && device.driver == 'x')"
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    found = rejection_causes("resource.k8s.io/v1/deviceclasses", {"spec": spec})
    assert found == [("spec.selectors[0].cel.expression", "Forbidden: too complex, exceeds cost limit")]


def test_cel_is_imported_with_the_first_expression() -> None:
    root = Path(expressions.__file__).resolve().parents[3]
    code = "import sys; import kubechronicle.api.registry.registry; print('re2' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
