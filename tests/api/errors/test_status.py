"""Errors: code, reason, message and details are apimachinery's, and so is the wording of field errors."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from kubechronicle.api.errors import field_errors, status
from kubechronicle.api.errors.field_errors import Cause, Path
from kubechronicle.api.errors.status import StatusError

GOLDEN: list[tuple[StatusError, int, str, str, dict[str, Any] | None]] = [
    (
        status.not_found("configmaps", "nope"),
        404,
        "NotFound",
        'configmaps "nope" not found',
        {"name": "nope", "kind": "configmaps"},
    ),
    (
        status.not_found("deployments.apps", "web"),
        404,
        "NotFound",
        'deployments.apps "web" not found',
        {"name": "web", "group": "apps", "kind": "deployments"},
    ),
    (status.path_not_found(), 404, "NotFound", "the server could not find the requested resource", {}),
    (
        status.already_exists("widgets.a.example.com", "x"),
        409,
        "AlreadyExists",
        'widgets.a.example.com "x" already exists',
        {"name": "x", "group": "a.example.com", "kind": "widgets"},
    ),
    (
        status.conflict("configmaps", "a"),
        409,
        "Conflict",
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again",
        {"name": "a", "kind": "configmaps"},
    ),
    (
        status.conflict("pods/binding", "p", 'pod p is already assigned to node "n"'),
        409,
        "Conflict",
        'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n"',
        {"name": "p", "kind": "pods/binding"},
    ),
    (status.forbidden("pods", "", "no"), 403, "Forbidden", "pods is forbidden: no", {"kind": "pods"}),
    (status.forbidden("", "", "no"), 403, "Forbidden", "forbidden: no", {}),
    (status.bad_request("what"), 400, "BadRequest", "what", None),
    (status.unauthorized(), 401, "Unauthorized", "Unauthorized", None),
    (
        status.method_not_allowed(),
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
        {},
    ),
    (
        status.internal_error("boom"),
        500,
        "InternalError",
        "Internal error occurred: boom",
        {"causes": [{"message": "boom"}]},
    ),
    (status.unknown("odd"), 500, "", "odd", None),
    (
        status.too_large_resource_version(9, 3),
        504,
        "Timeout",
        "Timeout: Too large resource version: 9, current: 3",
        {
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
    ),
    (
        status.server_timeout("pods", "create", 2),
        500,
        "ServerTimeout",
        "The create operation against pods could not be completed at this time, please try again.",
        {"name": "create", "kind": "pods", "retryAfterSeconds": 2},
    ),
]


@pytest.mark.parametrize(("error", "code", "reason", "message", "details"), GOLDEN)
def test_errors_answer_what_kubernetes_answers(
    error: StatusError, code: int, reason: str, message: str, details: dict[str, Any] | None
) -> None:
    assert (error.code, error.reason, error.message, error.details) == (code, reason, message, details)
    body = error.body()
    assert (body["kind"], body["apiVersion"], body["status"], body["code"]) == ("Status", "v1", "Failure", code)
    assert ("reason" in body) is bool(reason)
    assert ("details" in body) is (details is not None)


def test_retry_after_is_a_header_too() -> None:
    assert status.too_many_requests("slow down", 10).headers == {"Retry-After": "10"}
    assert status.not_found("pods", "a").headers == {}


def test_one_cause_stands_alone_and_several_stand_in_brackets() -> None:
    bad_name = field_errors.invalid_value("metadata.name", "A", "must be lower case")
    missing = field_errors.required(Path("spec").child("ports").index(0).child("port"))
    one = status.invalid("", "ConfigMap", "A", [bad_name])
    assert one.message == 'ConfigMap "A" is invalid: metadata.name: Invalid value: "A": must be lower case'
    assert one.details == {
        "name": "A",
        "kind": "ConfigMap",
        "causes": [
            {
                "reason": "FieldValueInvalid",
                "message": 'Invalid value: "A": must be lower case',
                "field": "metadata.name",
            }
        ],
    }
    several = status.invalid("apps", "Deployment", "A", [bad_name, missing, missing])
    assert several.message == (
        'Deployment.apps "A" is invalid: [metadata.name: Invalid value: "A": must be lower case, '
        "spec.ports[0].port: Required value]"
    )
    assert several.details is not None
    assert several.details["group"] == "apps"
    assert len(several.details["causes"]) == 3


@pytest.mark.parametrize(
    ("cause", "reason", "message"),
    [
        (field_errors.required("f"), "FieldValueRequired", "Required value"),
        (field_errors.required("f", "say it"), "FieldValueRequired", "Required value: say it"),
        (field_errors.duplicate("f", 3), "FieldValueDuplicate", "Duplicate value: 3"),
        (field_errors.not_found("f", "x"), "FieldValueNotFound", 'Not found: "x"'),
        (
            field_errors.not_supported("f", "c", ["a", "b"]),
            "FieldValueNotSupported",
            'Unsupported value: "c": supported values: "a", "b"',
        ),
        (field_errors.forbidden("f", "no"), "FieldValueForbidden", "Forbidden: no"),
        (field_errors.too_long("f", 4), "FieldValueTooLong", "Too long: may not be more than 4 bytes"),
        (field_errors.too_long("f", 1), "FieldValueTooLong", "Too long: may not be more than 1 byte"),
        (field_errors.too_many("f", 3, 2), "FieldValueTooMany", "Too many: 3: must have at most 2 items"),
        (field_errors.internal("f", "x"), "InternalError", "Internal error: x"),
        (field_errors.type_invalid("f", True, "no"), "FieldValueTypeInvalid", "Invalid value: true: no"),
        (field_errors.invalid_value("f", None, "no"), "FieldValueInvalid", "Invalid value: null: no"),
        (field_errors.invalid_value("f", {"a": "<"}, ""), "FieldValueInvalid", 'Invalid value: {"a":"\\u003c"}'),
        (field_errors.invalid_value("f", 1.5, ""), "FieldValueInvalid", "Invalid value: 1.5"),
        (field_errors.invalid_value("f", 'a"\n\x01', ""), "FieldValueInvalid", 'Invalid value: "a\\"\\n\\x01"'),
    ],
)
def test_field_errors_print_values_as_go_does(cause: Cause, reason: str, message: str) -> None:
    assert (cause.reason, cause.message) == (reason, message)


def test_an_empty_path_is_nil() -> None:
    assert str(Path()) == "<nil>"
    assert str(Path("a").child("b", "c").key("k").index(2)) == "a.b.c[k][2]"
    assert Path("a").child("b") == Path("a", "b")


def test_of_very_many_causes_the_first_are_shown() -> None:
    causes = [field_errors.invalid_value("f", number, "no") for number in range(3000)]
    error = status.invalid("", "Pod", "a", causes)
    assert error.details is not None
    assert [each["message"] for each in error.details["causes"]] == [
        f"Invalid value: {number}: no" for number in range(field_errors.MOST_CAUSES)
    ]
    assert error.message.endswith("f: Invalid value: 999: no, and 2000 more]")


def test_causes_with_long_values_are_shown_up_to_a_megabyte() -> None:
    value = ["x" * 400_000]
    error = status.invalid("", "Pod", "a", [field_errors.invalid_value(f"f{each}", value, "no") for each in range(9)])
    assert error.details is not None
    assert [each["field"] for each in error.details["causes"]] == ["f0", "f1"]


def test_the_text_of_a_cause_is_built_once_and_compared() -> None:
    cause = field_errors.not_supported("f", "x", ("a", "b"))
    assert cause == Cause("FieldValueNotSupported", 'Unsupported value: "x": supported values: "a", "b"', "f")
    assert cause.message is cause.message
    assert len({cause, Cause(cause.reason, cause.message, "f"), Cause(cause.reason, cause.message, "g")}) == 2
    assert pickle.loads(pickle.dumps(field_errors.required("f", "no"))).message == "Required value: no"
