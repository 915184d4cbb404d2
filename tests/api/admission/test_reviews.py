"""Answers of webhooks: their checks, patches and denials. Texts are kube-apiserver's."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from kubechronicle.api.admission import patches
from kubechronicle.api.admission.rejections import denial
from kubechronicle.api.admission.reviews import ALLOWED, CallFailed, WebhookAnswer, answer_of, is_warning, version_of
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.registry.registry import builtin_registry

CONFIG_MAPS = builtin_registry().builtin("", "v1", "configmaps")


def answered(*, mutating: bool = True, version: str = "v1", review: Any = None, **response: Any) -> WebhookAnswer:
    value = {
        "apiVersion": f"admission.k8s.io/{version}",
        "kind": "AdmissionReview",
        "response": {"uid": "u", "allowed": True, **response},
        **(review or {}),
    }
    return answer_of(value, uid="u", version=version, mutating=mutating)


def test_an_answer() -> None:
    answer = answered(patch=base64.b64encode(b"[]").decode(), patchType="JSONPatch", warnings=["w"])
    assert answer.allowed
    assert (answer.patch, answer.warnings) == (b"[]", ["w"])
    assert not answered(allowed=None).allowed


INVALID = "received invalid webhook response: "
FAILED = "failed to call webhook: "
MISMATCH = FAILED + "json: cannot unmarshal {} into Go struct field {} of type {}"
SCHEME = 'in scheme "pkg/runtime/scheme.go:111"'


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"uid": "x"}, INVALID + 'expected response.uid="u", got "x"'),
        ({"uid": None}, INVALID + 'expected response.uid="u", got ""'),
        ({"review": {"response": None}}, INVALID + "webhook response was absent"),
        (
            {"review": {"kind": "TokenReview"}},
            FAILED + f'no kind "TokenReview" is registered for version "admission.k8s.io/v1" {SCHEME}',
        ),
        (
            {"review": {"apiVersion": "admission.k8s.io/v7"}},
            FAILED + f'no kind "AdmissionReview" is registered for version "admission.k8s.io/v7" {SCHEME}',
        ),
        (
            {"review": {"apiVersion": "admission.k8s.io/v1beta1"}},
            FAILED + "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
        ),
        (
            {"review": {"apiVersion": "", "kind": ""}},
            INVALID + "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=",
        ),
        ({"patch": "W10="}, INVALID + "webhook returned response.patch but not response.patchType"),
        ({"patchType": "JSONPatch"}, INVALID + "webhook returned response.patchType but not response.patch"),
        ({"patch": "***", "patchType": "JSONPatch"}, FAILED + "illegal base64 data at input byte 0"),
        ({"patch": "W10=", "mutating": False}, INVALID + "validating webhook may not return response.patch"),
        ({"patchType": "x", "mutating": False}, INVALID + "validating webhook may not return response.patchType"),
        (
            {"allowed": "yes"},
            FAILED
            + "json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool",
        ),
        (
            {"uid": 5},
            FAILED
            + "json: cannot unmarshal number into Go struct field AdmissionResponse.response.uid of type types.UID",
        ),
        (
            {"status": {"code": "403"}},
            FAILED + "json: cannot unmarshal string into Go struct field Status.response.status.code of type int32",
        ),
        (
            {"status": {"details": {"causes": [{"field": 5}]}}},
            FAILED + "json: cannot unmarshal number into Go struct field "
            "StatusCause.response.status.details.causes.field of type string",
        ),
        (
            {"status": {"code": 200.0}},
            FAILED + "json: cannot unmarshal number into Go struct field Status.response.status.code of type int32",
        ),
        ({"review": {"kind": "Status"}}, FAILED + "converting (v1.Status) to (v1.AdmissionReview): unknown conversion"),
        (
            {"review": {"kind": "APIGroup", "apiVersion": "v1"}},
            FAILED + "converting (v1.APIGroup) to (v1.AdmissionReview): unknown conversion",
        ),
        (
            {"review": {"kind": "Pod", "apiVersion": "v1"}},
            f'{FAILED}no kind "Pod" is registered for version "v1" {SCHEME}',
        ),
        (
            {"review": {"request": "x"}},
            FAILED + "json: cannot unmarshal string into Go struct field AdmissionReview.request of type "
            "v1.AdmissionRequest",
        ),
    ],
)
def test_unusable_answers(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(CallFailed) as caught:
        answered(**fields)
    assert str(caught.value) == why


@pytest.mark.parametrize("fields", [{}, {"status": {}}, {"status": {"metadata": {}, "code": 200}}])
@pytest.mark.parametrize("mutating", [True, False])
def test_usual_answers(fields: dict[str, Any], mutating: bool) -> None:
    assert answered(mutating=mutating, **fields) is ALLOWED
    assert answered(mutating=mutating, allowed=False, **fields) == WebhookAnswer(
        False, fields.get("status", {}), b"", [], {}
    )
    if mutating:
        changing = answered(patch="W10=", patchType="JSONPatch", **fields)
        assert (changing.allowed, changing.patch) == (True, b"[]")


@pytest.mark.parametrize(
    "fields",
    [
        {"patch": None, "patchType": None, "warnings": None, "auditAnnotations": None, "status": None},
        {"unknown": 1, "review": {"request": {}, "other": 2}},
        {"status": {"code": 201, "message": "created", "details": {"causes": []}}},
    ],
)
def test_other_answers_that_allow_a_write(fields: dict[str, Any]) -> None:
    answer = answered(**fields)
    assert (answer.allowed, answer.patch, answer.warnings, answer.annotations) == (True, b"", [], {})


def test_the_old_version_checks_less() -> None:
    assert answered(version="v1beta1", uid=None, patch="W10=").patch == b"[]"
    assert not answered(version="v1beta1", patch="W10=", mutating=False).patch


def test_null_is_an_empty_answer() -> None:
    with pytest.raises(CallFailed, match="webhook response was absent"):
        answer_of(None, uid="u", version="v1", mutating=False)


@pytest.mark.parametrize("value", [[], "text", 3])
def test_an_answer_that_is_no_object(value: Any) -> None:
    with pytest.raises(CallFailed, match="json parse error"):
        answer_of(value, uid="u", version="v1", mutating=False)


def test_versions_of_reviews() -> None:
    assert version_of(["v9", "v1beta1", "v1"]) == "v1beta1"
    with pytest.raises(CallFailed, match="does not accept known AdmissionReview versions"):
        version_of(["v9"])


def test_denials() -> None:
    head = 'admission webhook "h" denied the request'
    plain = denial("h", {})
    assert (plain.code, plain.reason, plain.message, plain.details) == (400, "", f"{head} without explanation", None)
    assert denial("h", {"code": 200, "reason": "TooLarge"}).message == f"{head}: TooLarge"
    full = denial(
        "h", {"code": 429, "message": "m", "details": {"retryAfterSeconds": 3, "causes": [{"field": "f"}, 1]}}
    )
    assert (full.code, full.message, full.headers) == (429, f"{head}: m", {"Retry-After": "3"})
    assert full.details == {"causes": [{"field": "f"}], "retryAfterSeconds": 3}
    assert denial("h", {"code": "no", "message": 3, "details": []}).code == 400


def test_warnings_with_control_characters_are_none() -> None:
    assert is_warning('a "quoted" \u00e9')
    assert not any(map(is_warning, ["", "a\tb", "a\nb", "\x7f"]))


def config_map(**data: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}


def patched(*operations: dict[str, Any]) -> dict[str, Any]:
    return patches.patched(CONFIG_MAPS, config_map(x="1"), patches.operations(json.dumps(operations).encode()))


def test_a_patch_leaves_the_object_it_is_applied_to() -> None:
    obj = config_map(x="1")
    found = patches.patched(CONFIG_MAPS, obj, [{"op": "add", "path": "/data/y", "value": "2"}])
    assert (found["data"], obj["data"]) == ({"x": "1", "y": "2"}, {"x": "1"})


def test_defaults_are_set_after_a_patch() -> None:
    pods = builtin_registry().builtin("", "v1", "pods")
    container = {"name": "c", "image": "i:1"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {"containers": []}}
    found = patches.patched(pods, pod, [{"op": "add", "path": "/spec/containers/-", "value": container}])
    assert found["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"


def test_patches_that_cannot_be_used() -> None:
    with pytest.raises(StatusError, match="cannot unmarshal array into Go struct field ConfigMap") as caught:
        patched({"op": "add", "path": "/data", "value": ["x"]})
    assert caught.value.code == 500
    with pytest.raises(StatusError):
        patched({"op": "remove", "path": "/data/absent"})
    with pytest.raises(StatusError):
        patched({"op": "replace", "path": "/kind", "value": "Secret"})
    for sent in (b"{}", b"oops"):
        with pytest.raises(CallFailed, match="received undecodable patch in webhook response"):
            patches.operations(sent)
    with pytest.raises(CallFailed, match="The allowed maximum operations"):
        patches.operations(b"[" + b"{}," * 10_001 + b"{}]")


def test_a_denial_keeps_the_metadata_of_its_status() -> None:
    metadata = {"resourceVersion": "5", "continue": "c", "remainingItemCount": 3, "name": "n", "selfLink": 7}
    body = denial("w", {"message": "m", "metadata": metadata}).body()
    assert body["metadata"] == {"resourceVersion": "5", "continue": "c", "remainingItemCount": 3}


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        (
            [{"op": "replace", "path": "/kind", "value": "Pod"}],
            "converting (v1.Pod) to (core.ConfigMap): unknown conversion",
        ),
        ([{"op": "replace", "path": "/kind", "value": "Secret"}], "illegal base64 data at input byte 0"),
        (
            [{"op": "replace", "path": "/kind", "value": "Nope"}],
            f'no kind "Nope" is registered for version "v1" {SCHEME}',
        ),
        (
            [{"op": "replace", "path": "/kind", "value": 5}],
            "json: cannot unmarshal number into Go struct field .kind of type",
        ),
        ([{"op": "replace", "path": "", "value": []}], "json: cannot unmarshal array into Go value of type struct"),
    ],
)
def test_a_patched_object_is_decoded_as_the_kind_that_it_names(patch: list[Any], why: str) -> None:
    before = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}
    with pytest.raises(StatusError) as caught:
        patches.patched(CONFIG_MAPS, before, patch)
    assert caught.value.code == 500
    assert why in caught.value.message


def test_a_syntax_error_of_a_patch_has_the_words_of_go() -> None:
    with pytest.raises(CallFailed, match=r"undecodable patch .*: invalid character 'o' in literal null"):
        patches.operations(b"not json")
