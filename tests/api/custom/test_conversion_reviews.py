"""ConversionReviews, with the errors that kube-apiserver gave for the same answers of a webhook."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.custom.conversion_reviews import converted, review
from kubechronicle.api.errors.status import StatusError

V2 = "example.com/v2"
HEAD = "conversion webhook for example.com/v1, Kind=Widget "


def widget(name: str = "w", **metadata: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default", "uid": "u", "generation": 1, **metadata}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": meta, "spec": {"host": "h"}}


def in_v2(obj: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {**obj, "apiVersion": V2, "metadata": {**obj["metadata"], **metadata}, "spec": {"hostname": "h"}}


def asked(*objects: dict[str, Any], versions: tuple[str, ...] = ("v1",)) -> dict[str, Any]:
    return review(list(objects), V2, uid="r", versions=versions)


def answer(*objects: Any, **changes: Any) -> dict[str, Any]:
    response = {"uid": "r", "result": {"status": "Success"}, "convertedObjects": list(objects), **changes}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}


def failure(answered: Any, *objects: dict[str, Any]) -> str:
    sent = objects or (widget(),)
    with pytest.raises(StatusError) as caught:
        converted(answered, list(sent), V2, asked=asked(*sent))
    assert (caught.value.code, caught.value.reason) == (500, "")
    assert caught.value.message.startswith(HEAD)
    return caught.value.message.removeprefix(HEAD)


def test_a_review_has_the_stored_form_of_the_objects() -> None:
    made = asked(widget(resourceVersion="7"))
    assert (made["apiVersion"], made["kind"]) == ("apiextensions.k8s.io/v1", "ConversionReview")
    assert made["request"] == {"uid": "r", "desiredAPIVersion": V2, "objects": [widget()]}
    assert made["response"] == {"uid": "", "convertedObjects": None, "result": {"metadata": {}}}


def test_the_first_known_version_of_a_review_is_used() -> None:
    assert asked(widget(), versions=("v7", "v1beta1", "v1"))["apiVersion"] == "apiextensions.k8s.io/v1beta1"
    with pytest.raises(StatusError, match="no supported conversion review versions"):
        asked(widget(), versions=("v7",))


def test_metadata_is_restored_but_for_labels_and_annotations() -> None:
    obj = widget(labels={"a": "b"}, annotations={"x": "y"}, finalizers=["example.com/f"], resourceVersion="7")
    changed = in_v2(obj, labels={"c": "d"}, finalizers=[], generation=9, resourceVersion="1")
    del changed["metadata"]["annotations"]
    (found,) = converted(answer(changed), [obj], V2, asked=asked(obj))
    assert found["spec"] == {"hostname": "h"}
    assert found["metadata"] == widget(finalizers=["example.com/f"], resourceVersion="7", labels={"c": "d"})["metadata"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": "other"}, "returned invalid object: must have the same name: w != other"),
        ({"namespace": "other"}, "returned invalid object: must have the same namespace: default != other"),
        ({"uid": "other"}, "returned invalid object: must have the same UID: u != other"),
        (
            {"labels": {"a": 1}},
            "returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object",
        ),
        (
            {"annotations": []},
            "returned invalid metadata: invalid metadata.annotations of type []interface {} in converted object",
        ),
    ],
)
def test_metadata_that_a_webhook_must_not_change(change: dict[str, Any], why: str) -> None:
    assert failure(answer(in_v2(widget(), **change))) == why


def test_labels_of_a_webhook_must_be_valid() -> None:
    text = failure(answer(in_v2(widget(), labels={"a b": "c"})))
    assert text.startswith(
        'returned invalid metadata: metadata.labels: Invalid value: "a b": name part must consist of'
    )


@pytest.mark.parametrize(
    ("answered", "why"),
    [
        (answer(), "returned 0 objects, expected 1"),
        (answer(in_v2(widget()), in_v2(widget())), "returned 2 objects, expected 1"),
        (answer(in_v2(widget()), uid="other"), 'failed: expected response.uid="r", got "other"'),
        (answer(result={}), "failed: response.result.status was '', not 'Success'"),
        (answer(result={"status": "Failure", "message": "cannot do that"}), "failed: cannot do that"),
        ({**answer(), "response": None}, "failed: no response provided"),
        (
            {**answer(), "kind": "AdmissionReview"},
            'failed: no kind "AdmissionReview" is registered for version "apiextensions.k8s.io/v1" in scheme '
            '"pkg/runtime/scheme.go:111"',
        ),
        (
            answer(widget()),
            "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received "
            "example.com/v1)",
        ),
        (
            answer({**in_v2(widget()), "kind": "Gadget"}),
            "returned invalid object at index 0: invalid kind (expected Widget, received Gadget)",
        ),
        (
            {**answer(), "apiVersion": "apiextensions.k8s.io/v1beta1"},
            "failed: converting (v1beta1.ConversionReview) to (v1.ConversionReview): unknown conversion",
        ),
        (
            {**answer(), "apiVersion": None},
            "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got "
            "/, Kind=ConversionReview",
        ),
        (
            {**answer(), "kind": ""},
            "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got "
            "apiextensions.k8s.io/v1, Kind=",
        ),
        (
            None,
            "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=",
        ),
    ],
)
def test_answers_that_cannot_be_used(answered: Any, why: str) -> None:
    assert failure(answered) == why


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ({"a": 1}, "Object 'Kind' is missing in '{\"a\":1}'"),
        (None, "Object 'Kind' is missing in 'null'"),
        ("x", "json: cannot unmarshal string into Go value of type map[string]interface {}"),
    ],
)
def test_a_result_without_a_kind_is_named_alone_or_by_its_place(result: Any, why: str) -> None:
    sent = widget()
    with pytest.raises(StatusError) as caught:
        converted(answer(result), [sent], V2, asked=asked(sent))
    assert (caught.value.code, caught.value.message) == (500, why)
    several = (widget("a"), widget("b"))
    assert failure(answer(in_v2(several[0]), result), *several) == (
        f"returned invalid converted object at index 1: {why}"
    )


def test_text_is_no_review() -> None:
    assert "json: cannot unmarshal string into Go value of type struct" in failure("oops")


def test_a_review_of_v1beta1_needs_no_uid() -> None:
    obj = widget()
    answered = {**answer(in_v2(obj), uid=""), "apiVersion": "apiextensions.k8s.io/v1beta1"}
    sent = asked(obj, versions=("v1beta1",))
    assert converted(answered, [obj], V2, asked=sent)[0]["apiVersion"] == V2
    del answered["apiVersion"]
    assert converted(answered, [obj], V2, asked=sent)[0]["apiVersion"] == V2


def test_errors_of_a_batch_name_the_object() -> None:
    sent = (widget("a"), widget("b"))
    text = failure(answer(in_v2(sent[0]), in_v2(sent[0])), *sent)
    assert text == "returned invalid converted object at index 1: must have the same name: b != a"
