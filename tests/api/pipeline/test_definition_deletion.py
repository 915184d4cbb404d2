"""The deletion of a CustomResourceDefinition waits for its objects."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.pipeline.deletion import Fate, decide_definition, ends_with_update
from kubechronicle.api.strategy.strategy import Strategy

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


def definition(**metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com", "uid": "u", "resourceVersion": "7", "generation": 1, **metadata},
        "spec": {"group": "example.com"},
        "status": {"conditions": [{"type": "Established", "status": "True"}]},
    }


def test_the_first_deletion_marks_it_and_adds_finalizer_and_condition() -> None:
    decision = decide_definition(definition(), DeleteOptions(propagation_policy="Foreground"), Strategy(), now=NOW)
    marked = decision.object
    assert decision.fate is Fate.MARKED
    assert marked["metadata"]["finalizers"] == [FINALIZER]
    assert (marked["metadata"]["deletionTimestamp"], marked["metadata"]["generation"]) == (NOW, 1)
    assert marked["status"]["conditions"][1] == {
        "type": "Terminating",
        "status": "True",
        "lastTransitionTime": NOW,
        "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    }


def test_a_second_deletion_changes_little_and_the_last_finalizer_ends_it() -> None:
    held = decide_definition(definition(finalizers=["own"]), DeleteOptions(), Strategy(), now=NOW).object
    assert held["metadata"]["finalizers"] == ["own", FINALIZER]
    again = decide_definition(held, DeleteOptions(), Strategy(), now=LATER).object
    assert again["metadata"]["deletionTimestamp"] == NOW
    without = {**held, "metadata": {**held["metadata"], "finalizers": []}}
    assert ends_with_update(without, held)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (DeleteOptions(precondition_uid="x"), "UID in precondition: x, UID in object meta: u"),
        (
            DeleteOptions(precondition_resource_version="1"),
            "ResourceVersion in precondition: 1, ResourceVersion in object meta: 7",
        ),
    ],
)
def test_failed_preconditions_name_the_resource(options: DeleteOptions, text: str) -> None:
    with pytest.raises(StatusError) as refused:
        decide_definition(definition(), options, Strategy(), now=NOW)
    assert refused.value.message == (
        "Operation cannot be fulfilled on customresourcedefinitions.apiextensions.k8s.io "
        f'"widgets.example.com": Precondition failed: {text}'
    )
