"""Validation of webhook configurations, admission policies and their bindings."""

from __future__ import annotations

from typing import Any

import pytest
from pipeline_writes import rejections_of
from rejections import rejection_reasons

from kubechronicle.api.builtin.admissionregistration.webhooks import client_config

HOOK = {
    "name": "a.b.example.com",
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "clientConfig": {"url": "https://example.com"},
}


MATCH = {
    "resourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE", "DELETE"]}
    ]
}


@pytest.mark.parametrize(
    ("path", "body", "causes"),
    [
        (
            "admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            {"webhooks": [HOOK, HOOK]},
            [("webhooks[1].name", "Duplicate")],
        ),
    ],
)
def test_rejected_creations(path: str, body: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    assert rejection_reasons(path, body) == causes


def test_mutating_policies_cannot_match_deletions() -> None:
    spec = {
        "matchConstraints": MATCH,
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": " "}}],
    }
    assert rejections_of("admissionregistration.k8s.io/v1/mutatingadmissionpolicies", {"spec": spec}) == [
        'spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", '
        '"CONNECT", "CREATE", "UPDATE"',
        "spec.mutations[0].jsonPatch.expression: Required value",
    ]


def test_variable_names_must_be_cel_identifiers() -> None:
    spec = {
        "matchConstraints": MATCH,
        "variables": [{"name": "loop", "expression": "1"}, {"name": "a-b", "expression": "1"}],
        "validations": [{"expression": "true"}],
    }
    found = rejections_of("admissionregistration.k8s.io/v1/validatingadmissionpolicies", {"spec": spec})
    assert found == [
        'spec.variables[0].name: Invalid value: "loop": must be a valid CEL identifier',
        'spec.variables[1].name: Invalid value: "a-b": must be a valid CEL identifier',
    ]


def test_parameters_have_a_name_or_a_selector() -> None:
    reference = {"name": "p", "selector": {}, "parameterNotFoundAction": "Shrug"}
    spec = {"policyName": "x", "paramRef": reference, "validationActions": ["Deny"]}
    assert rejections_of("admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", {"spec": spec}) == [
        "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
        "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
        'spec.paramRef.parameterNotFoundAction: Unsupported value: "Shrug": supported values: "Deny", "Allow"',
    ]


def test_names_of_a_webhooks_service_are_mistaken_for_each_other() -> None:
    rule = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}
    hook = {"name": "a.b.c", "rules": [rule], "sideEffects": "None", "admissionReviewVersions": ["v1"]}
    hook["clientConfig"] = {"service": {"name": "s"}}
    path = "admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    assert rejection_reasons(path, {"webhooks": [hook]}) == [("webhooks[0].clientConfig.service.name", "Required")]


def test_type_warnings_name_a_field_by_json_path() -> None:
    path = "admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    warnings = [{"fieldRef": "spec.validations[0].expression", "warning": "w"}, {"fieldRef": "1.2.3", "warning": "w"}]
    change = {"status": {"typeChecking": {"expressionWarnings": warnings}}}
    spec = {"matchConstraints": MATCH, "validations": [{"expression": "true"}]}
    assert rejections_of(path, {"spec": spec}, change, below="status") == [
        'status.typeChecking.expressionWarnings[1].fieldRef: Invalid value: "1.2.3": invalid JSONPath: cannot parse '
        "number 1.2.3"
    ]


def test_audit_annotations_need_the_name_of_their_policy() -> None:
    path = "admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    spec = {"matchConstraints": MATCH, "auditAnnotations": [{"key": "k", "valueExpression": "'v'"}]}
    assert rejections_of(path, {"spec": spec}, name="") == [
        "metadata.name: Required value: name or generateName is required",
        'spec.auditAnnotations[0].key: Invalid value: "k": requires metadata.name be non-empty',
    ]


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://%zz", 'Required value: url must be a valid URL: parse "https://%zz": invalid URL escape "%zz"'),
        ("https://u:p@x/y", 'Invalid value: "u:p": user information is not permitted in the URL'),
        ("https://x/#f", 'Invalid value: "f": fragments are not permitted in the URL'),
        ("//x", "Invalid value: \"\": 'https' is the only allowed URL scheme"),
    ],
)
def test_urls_are_parsed_as_go_does(url: str, text: str) -> None:
    found = [cause.message for cause in client_config({"url": url}, "clientConfig")]
    assert len(found) == 1
    assert found[0].startswith(text)
