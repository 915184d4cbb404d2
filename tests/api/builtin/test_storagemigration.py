"""Validation, status and table of StorageVersionMigrations."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.builtin.kinds import PRINTERS
from kubechronicle.api.builtin.storagemigration import migration_status, validate_migration, validate_migration_update
from kubechronicle.api.errors.field_errors import Cause

TIME = "2026-11-23T02:00:00Z"


def texts(causes: list[Cause]) -> list[str]:
    return [f"{cause.field}: {cause.message}" for cause in causes]


def migration(resource: str = "widgets", group: str = "example.com", **status: Any) -> dict[str, Any]:
    found = {"resource": resource, "group": group}
    return {"metadata": {"name": "m"}, "spec": {"resource": found}, "status": status}


def condition(kind: str, state: str = "True") -> dict[str, Any]:
    return {"type": kind, "status": state, "reason": "R", "message": "", "lastTransitionTime": TIME}


def test_the_resource_is_checked() -> None:
    assert validate_migration(migration()) == []
    assert texts(validate_migration(migration(""))) == [
        "spec.resource.resource: Required value: resource is required to be set"
    ]
    found = texts(validate_migration(migration("Widgets", "Example.com")))
    assert [text.partition(": ")[0] for text in found] == ["spec.resource.resource", "spec.resource.group"]


def test_the_spec_is_immutable() -> None:
    assert validate_migration_update(migration(), migration()) == []
    assert texts(validate_migration_update(migration("others"), migration())) == [
        'spec: Invalid value: {"Resource":{"group":"example.com","resource":"others"}}: field is immutable'
    ]


@pytest.mark.parametrize(
    ("new", "old", "found"),
    [
        ({"resourceVersion": "5"}, {}, []),
        ({"resourceVersion": "05"}, {}, ["resource version is not well formed: 05"]),
        ({"resourceVersion": "6"}, {"resourceVersion": "5"}, ["field is immutable"]),
        ({"conditions": [condition("Succeeded"), condition("Failed", "False")]}, {}, []),
        (
            {"conditions": [condition("Succeeded"), condition("Failed")]},
            {},
            ["Both success and failed conditions cannot be true at the same time"],
        ),
        ({}, {"conditions": [condition("Succeeded")]}, ["Success condition cannot be set to false once it is true"]),
        (
            {"conditions": [condition("Failed", "False")]},
            {"conditions": [condition("Failed")]},
            ["Failed condition cannot be set to false once it is true"],
        ),
    ],
)
def test_statuses(new: dict[str, Any], old: dict[str, Any], found: list[str]) -> None:
    causes = texts(migration_status(migration(**new), migration(**old)))
    assert len(causes) == len(found)
    assert all(text.endswith(end) for text, end in zip(causes, found, strict=True))


def test_cells() -> None:
    printer = PRINTERS["storageversionmigrations.storagemigration.k8s.io"]
    ended = migration(conditions=[condition("Running", "False"), condition("Succeeded")])
    assert printer.cells(ended, lambda time: "") == ["m", "widgets.example.com", "Succeeded"]
    assert printer.cells(migration("pods", ""), lambda time: "") == ["m", "pods", "Unknown"]
