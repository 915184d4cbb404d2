"""Structuring of configuration documents: keys, defaults, types, and errors in one line."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest

from kubechronicle.api.configuration.structuring import (
    Duration,
    FieldKey,
    StructureError,
    StructureProblem,
    ZeroIsDefault,
    fields_of,
    structure,
)

FIVE = Duration(5)


class Level(enum.Enum):
    NONE = "None"
    METADATA = "Metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    level: Level
    stages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.level is Level.NONE and self.stages:
            raise ValueError("stages need a level\nother than None")


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    kind: Literal["File", "Document"] = "File"
    ca_file: Annotated[str, FieldKey("certificate-authority")] = ""
    key: bytes = b""
    timeout: Annotated[Duration, ZeroIsDefault] = FIVE
    cache_size: int | None = None
    is_on: Annotated[bool | None, FieldKey("on")] = None
    first: Rule | None = None
    rules: tuple[Rule, ...] = ()
    labels: Mapping[str, str] | None = None
    anything: object = None


def test_every_type() -> None:
    document = {
        "kind": "Document",
        "certificate-authority": "ca.crt",
        "key": "aGk=",
        "timeout": "1m30s",
        "cacheSize": 7,
        "on": False,
        "first": {"level": "None"},
        "rules": [{"level": "Metadata", "stages": ["a", "b"]}, {"level": "None", "stages": []}],
        "labels": {"a": "b"},
        "anything": [{"x": 1}],
    }
    file = structure(document, File)
    assert file.labels is not None
    assert dict(file.labels) == {"a": "b"}
    assert file == File(
        kind="Document",
        ca_file="ca.crt",
        key=b"hi",
        timeout=Duration(90 * 10**9),
        cache_size=7,
        is_on=False,
        first=Rule(level=Level.NONE),
        rules=(Rule(level=Level.METADATA, stages=("a", "b")), Rule(level=Level.NONE)),
        labels=file.labels,
        anything=[{"x": 1}],
    )


def test_a_missing_key_and_a_null_mean_the_default() -> None:
    assert structure({}, File) == structure(dict.fromkeys(("kind", "key", "rules", "timeout"), None), File) == File()
    assert structure({"timeout": "0s"}, File).timeout == 5
    assert structure({"cacheSize": 0}, File).cache_size == 0


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ([], "must be a mapping, not a list"),
        ({"certificate-authority": 5}, "certificate-authority: must be a string, not a whole number"),
        ({"caFile": "x"}, "caFile: is unknown here; the known keys are kind, certificate-authority, key, timeout, "),
        ({"cacheSize": True}, "cacheSize: must be a whole number, not true or false"),
        ({"cacheSize": 1.0}, "cacheSize: must be a whole number, not a number"),
        ({"on": "yes"}, "on: must be true or false, not a string"),
        ({"key": "?"}, "key: is not base64"),
        ({"timeout": "3"}, 'timeout: time: missing unit in duration "3"'),
        ({"kind": "Pod"}, 'kind: must be one of "File", "Document", not "Pod"'),
        ({"rules": {}}, "rules: must be a list, not a mapping"),
        ({"rules": [{}]}, "rules[0].level: is required"),
        ({"rules": [{"level": "None"}, None]}, "rules[1]: must be a mapping, not null"),
        ({"first": {"level": "Pod"}}, 'first.level: must be one of "None", "Metadata", not "Pod"'),
        ({"first": {"level": []}}, 'first.level: must be one of "None", "Metadata", not a list'),
        ({"first": {"level": "None", "stages": ["x"]}}, "first: stages need a level other than None"),
        ({"labels": {"a": 1}}, "labels.a: must be a string, not a whole number"),
        ({"labels": {1: "a"}}, "labels: its keys must be strings"),
        ({"rules": [{"level": "None", "stages": [1]}, {"x": 1}], "on": 1}, "on: must be true or false, not a whole "),
    ],
)
def test_an_error_names_file_and_path_in_one_line(document: Any, text: str) -> None:
    with pytest.raises(StructureError) as caught:
        structure(document, File, file="audit.yaml")
    message = str(caught.value)
    assert message.startswith(f"audit.yaml: {text}")
    assert "\n" not in message


def test_an_error_names_every_problem() -> None:
    with pytest.raises(StructureError) as caught:
        structure({"rules": [{"level": "None", "stages": [1]}, {"x": 1}], "on": 1}, File)
    assert caught.value.problems == (
        StructureProblem("on", "must be true or false, not a whole number"),
        StructureProblem("rules[0].stages[0]", "must be a string, not a whole number"),
        StructureProblem("rules[1].level", "is required"),
        StructureProblem("rules[1].x", "is unknown here; the known keys are level, stages"),
    )


def test_unknown_keys_may_be_allowed() -> None:
    assert structure({"other": 1, "rules": [{"level": "None", "x": 1}]}, File, unknown_allowed=True).rules


def test_fields_of_a_record() -> None:
    assert [(field.attribute, field.key, field.type) for field in fields_of(File)[1:5]] == [
        ("ca_file", "certificate-authority", str),
        ("key", "key", bytes),
        ("timeout", "timeout", Duration),
        ("cache_size", "cacheSize", int),
    ]
