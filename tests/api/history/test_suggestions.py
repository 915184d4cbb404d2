"""Suggestions for mistyped fields and names."""

from __future__ import annotations

import pytest

from kubechronicle.api.history.suggestions import fields_of, nearest_field, nearest_name

POD = {
    "metadata": {"name": "a", "labels": {"app.kubernetes.io/name": "x"}, "managedFields": [{"manager": "m"}]},
    "spec": {"containers": [{"name": "web", "image": "i", "args": ["-v"]}], "replicas": 1},
}


def test_all_fields_of_an_object() -> None:
    assert list(fields_of(POD)) == [
        "metadata",
        "metadata.name",
        "metadata.labels",
        "metadata.labels[app.kubernetes.io/name]",
        "spec",
        "spec.containers",
        "spec.containers[name=web]",
        "spec.containers[name=web].name",
        "spec.containers[name=web].image",
        "spec.containers[name=web].args",
        "spec.containers[name=web].args[0]",
        "spec.replicas",
    ]


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [
        ("spec.replica", "spec.replicas"),
        ("replicas", "spec.replicas"),
        ("spec.containers[name=wbe].image", "spec.containers[name=web].image"),
        ("containers[0].image", "spec.containers[name=web].image"),
        ("imag", "spec.containers[name=web].image"),
        ("metadata.labels[app.kubernetes.io/nam]", "metadata.labels[app.kubernetes.io/name]"),
        ("qqqqqqqq", ""),
    ],
)
def test_the_nearest_field(typed: str, nearest: str) -> None:
    assert nearest_field(typed, fields_of(POD)) == nearest


def test_the_nearest_name() -> None:
    assert nearest_name("deploymnt", ["Deployment", "DaemonSet"]) == "Deployment"
    assert nearest_name("team-01", [f"team-{number:03}" for number in range(500)]) == "team-010"
    assert nearest_name("x", ["shop"]) == nearest_name("x", []) == ""
