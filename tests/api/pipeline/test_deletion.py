"""Deletion of namespaces: the fate of dependents, and preconditions."""

from __future__ import annotations

import pytest

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.pipeline import deletion

NOW = "2026-01-01T00:00:00Z"
OLD = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "a", "uid": "u", "resourceVersion": "5", "finalizers": ["example.com/a"]},
    "spec": {"finalizers": ["kubernetes"]},
}


@pytest.mark.parametrize(
    ("options", "finalizers"),
    [
        (DeleteOptions(), ["example.com/a"]),
        (DeleteOptions(orphan_dependents=True), ["example.com/a", "orphan"]),
        (DeleteOptions(propagation_policy="Foreground"), ["example.com/a", "foregroundDeletion"]),
    ],
)
def test_a_deleted_namespace_records_the_fate_of_its_dependents(options: DeleteOptions, finalizers: list[str]) -> None:
    marked = deletion.decide_namespace(OLD, options, now=NOW).object
    assert marked["metadata"]["finalizers"] == finalizers
    assert marked["status"] == {"phase": "Terminating"}


def test_preconditions_of_a_namespace_name_the_resource() -> None:
    with pytest.raises(StatusError) as failed:
        deletion.decide_namespace(OLD, DeleteOptions(precondition_uid="v"), now=NOW)
    assert failed.value.message == (
        'Operation cannot be fulfilled on namespaces "a": Precondition failed: UID in precondition: v, '
        "UID in object meta: u"
    )


@pytest.mark.parametrize(
    ("options", "present", "expected"),
    [
        (DeleteOptions(orphan_dependents=False), ["a/b"], ["a/b", "foregroundDeletion"]),
        (DeleteOptions(orphan_dependents=True), ["foregroundDeletion"], ["orphan"]),
        (DeleteOptions(propagation_policy="Background"), ["orphan", "a/b"], ["a/b"]),
        (DeleteOptions(propagation_policy="Foreground"), [], ["foregroundDeletion"]),
        (DeleteOptions(), ["orphan", "foregroundDeletion"], ["orphan", "foregroundDeletion"]),
    ],
)
def test_finalizers_of_a_deleted_namespace(options: DeleteOptions, present: list[str], expected: list[str]) -> None:
    old = {**OLD, "metadata": {"name": "a", "finalizers": present}}
    assert deletion.decide_namespace(old, options, now=NOW).object["metadata"]["finalizers"] == expected
