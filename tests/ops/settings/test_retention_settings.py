"""--history-retention and its file: their combined meaning, and one line for every mistake."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kubechronicle.eventlog.retention.retention import DEFAULT_POLICIES, RetentionPolicy
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.server.retention import retention_policies
from kubechronicle.ops.settings import settings

FILE = """
retention:
- resource: "*"
  age: 90d
- resource: pods
  age: 30d
  changes: 100000
- resource: secrets
"""


def policies(*flags: str, file: Path | None = None) -> dict[str, RetentionPolicy]:
    settings_given: dict[str, Any] = {"history-retention": list(flags)} if flags else {}
    if file is not None:
        settings_given["history-retention-file"] = str(file)
    return {policy.resource: policy for policy in retention_policies(settings.load(settings_given, environment={}))}


def test_the_default_is_a_year_and_a_day() -> None:
    assert tuple(policies().values()) == DEFAULT_POLICIES


def test_a_flag_overrides_the_file_and_the_file_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "retention.yaml"
    file.write_text(FILE)
    merged = policies("pods=1d12h", "leases.coordination.k8s.io=forever,1000", "x.example.com=90m", file=file)
    assert merged == {
        policy.resource: policy
        for policy in (
            RetentionPolicy(resource="*", max_age=timedelta(days=90)),
            RetentionPolicy(resource="events", max_age=timedelta(days=1)),
            RetentionPolicy(resource="events.events.k8s.io", max_age=timedelta(days=1)),
            RetentionPolicy(resource="leases.coordination.k8s.io", max_changes=1000),
            RetentionPolicy(resource="pods", max_age=timedelta(hours=36)),
            RetentionPolicy(resource="secrets"),
            RetentionPolicy(resource="x.example.com", max_age=timedelta(minutes=90)),
        )
    }


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("pods", "must be KEY=VALUE"),
        ("Pods=1d", "'Pods' is no resource"),
        ("pods=", "the age must be such as 30d, 12h or forever, got ''"),
        ("pods=1w", "the age must be such as 30d"),
        ("pods=-1d", "the age must be such as 30d"),
        ("pods=1d2d", "the age must be such as 30d"),
        ("pods=4m", "the age must be 5m to 36500d, or forever"),
        ("pods=99999d", "the age must be 5m to 36500d, or forever"),
        ("pods=99999999999999999h", "got '99999999999999999h'"),
        ("pods=1d,", "the number of changes must be 100 or more, got ''"),
        ("pods=1d,99", "the number of changes must be 100 or more"),
        ("pods=1d,many", "the number of changes must be 100 or more"),
        ("*=1d,1000", "* takes an age alone"),
    ],
)
def test_mistakes_in_a_flag(flag: str, message: str) -> None:
    with pytest.raises(OperatorError) as raised:
        policies(flag)
    assert str(raised.value).startswith("--history-retention: ")
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "retention.yaml: must be a mapping, not null"),
        ("- pods", "retention.yaml: must be a mapping, not a list"),
        ("retention: {pods: 1d}", "retention.yaml: retention: must be a list, not a mapping"),
        ("retention: [pods]", "retention.yaml: retention[0]: must be a mapping, not a string"),
        ("retention: [{age: 1d}]", "retention.yaml: retention[0].resource: is required"),
        (
            "retention: [{resource: pods, max: 1}]",
            "retention[0].max: is unknown here; the known keys are resource",
        ),
        ("retention: [{resource: pods}, {resource: pods}]", "retention.yaml: pods is listed twice"),
        ("retention: [{resource: pods, age: 1}]", "retention[0].age: must be a string, not a whole number"),
        ("retention: [{resource: pods, age: 1w}]", "retention.yaml: pods: the age must be such as"),
        ("retention: [{resource: pods, changes: true}]", "the number of changes must be"),
        ("retention: [", "is not YAML"),
    ],
)
def test_mistakes_in_a_file(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "retention.yaml"
    file.write_text(text)
    with pytest.raises(OperatorError) as raised:
        policies(file=file)
    assert str(raised.value).startswith("--history-retention-file: ")
    assert message in str(raised.value)
