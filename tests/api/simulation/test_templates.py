"""Templates and queries of Stages: the forms that kwok's own Stages use, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubechronicle.api.simulation.stages import query
from kubechronicle.api.simulation.templates import MOST_BYTES, Template, TemplateError

POD: dict[str, Any] = {
    "metadata": {
        "name": "a",
        "annotations": {"example.com/x": "5"},
        "ownerReferences": [{"kind": "Job"}, {"kind": "X"}],
    },
    "spec": {"containers": [{"name": "main", "image": "i:1"}, {"name": "side"}], "nodeName": "n"},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]},
}
RENDERED = [
    ("{{ .spec.nodeName }}", "n"),
    ("{{ .spec.none.at.all }}", "<no value>"),
    ("a {{- /* said */ -}} b", "ab"),
    ("x  {{- .spec.nodeName -}}  y", "xny"),
    ('{{ if .spec.none }}yes{{ else if eq .spec.nodeName "n" }}n{{ else }}no{{ end }}', "n"),
    ("{{ with .spec.none }}a{{ else }}{{ .metadata.name }}{{ end }}", "a"),
    ("{{ with .spec }}{{ .nodeName }} {{ $.metadata.name }}{{ end }}", "n a"),
    ("{{ range .spec.containers }}[{{ .name }}]{{ end }}", "[main][side]"),
    ("{{ range $i, $c := .spec.containers }}{{ $i }}{{ $c.name }} {{ end }}", "0main 1side "),
    ("{{ range .spec.none }}a{{ else }}none{{ end }}", "none"),
    ('{{ range $type := list "A" "B" }}{{ $type }}{{ end }}', "AB"),
    ("{{ $x := .metadata.name }}{{ $x }}", "a"),
    ('{{ printf "%s-%d" .metadata.name 3 }}', "a-3"),
    ("{{ .metadata.name | Quote | Quote }}", json.dumps('"a"')),
    ('{{ (index .spec.containers 1).name }} {{ index .metadata.annotations "example.com/x" }}', "side 5"),
    ("{{ or .spec.none false }} {{ and .spec.nodeName 1 }} {{ not true }}", "false 1 false"),
    ("{{ with index (list 7 8) 1 }}{{ . }}{{ end }}", "8"),
    ('{{ `raw "text"` }}{{ true }}{{ 1.5 }}{{ nil }}', 'raw "text"true1.5<no value>'),
    ("{{ len .spec.containers }}{{ if gt (len .spec.containers) 1 }}!{{ end }}", "2!"),
]
FUNCTIONS = {"Quote": json.dumps, "list": lambda *values: list(values)}


@pytest.mark.parametrize(("text", "expected"), RENDERED)
def test_templates(text: str, expected: str) -> None:
    assert Template(text, tuple(FUNCTIONS)).render(POD, FUNCTIONS) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{{ if .a }}", "a block has no {{ end }}"),
        ("{{ end }}", "{{ end }} closes nothing"),
        ("{{ Unknown }}", "there is no function Unknown"),
        ("{{ .a | Unknown }}", "there is no function Unknown"),
        ('{{ define "x" }}{{ end }}', "{{ define }} is not supported"),
        ("{{ (.a }}", "a parenthesis is not closed"),
        ("{{ .a", "{{ is not closed"),
        ("{{ .a .b }}", "a command is a function with arguments, or one value"),
    ],
)
def test_refused_templates(text: str, why: str) -> None:
    with pytest.raises(TemplateError, match=why.replace("(", "\\(").replace("{", "\\{")):
        Template(text)


@pytest.mark.parametrize("text", ["{{ index .spec.containers 9 }}", "{{ $x }}", "{{ lt .metadata.name 3 }}"])
def test_runs_that_fail(text: str) -> None:
    with pytest.raises(TemplateError):
        Template(text).render(POD, {})


def test_a_run_is_bounded() -> None:
    text = "{{ range 1000000 }}{{ range 1000000 }}much text{{ end }}{{ end }}"
    with pytest.raises(TemplateError, match=str(MOST_BYTES)):
        Template(text).render(POD, {})


QUERIES = [
    (".metadata.name", ["a"]),
    (".metadata.deletionTimestamp", []),
    ('.status.conditions.[] | select( .type == "Ready" ) | .status', ["True"]),
    ('.status.conditions[] | select(.type != "Ready") | .type', ["Other"]),
    (".metadata.ownerReferences.[].kind", ["Job", "X"]),
    ('.metadata.annotations["example.com/x"]', ["5"]),
    ('.metadata.annotations."example.com/x"', ["5"]),
    (".spec.containers[1].name", ["side"]),
    (".spec.none.[].name", []),
]


@pytest.mark.parametrize(("text", "expected"), QUERIES)
def test_queries(text: str, expected: list[Any]) -> None:
    assert query(text)(POD) == expected


@pytest.mark.parametrize("text", ["", "metadata", ".a | map(.b)", ".a..b"])
def test_refused_queries(text: str) -> None:
    with pytest.raises(ValueError, match=r"query"):
        query(text)
