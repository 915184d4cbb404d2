"""Definitions with the answers that kube-apiserver v1.36.3 gave to them, from ``answers.jsonl``.

A line has ``definition``, ``code``, and the causes (sorted), the warnings or the stored spec of the answer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.registry.registry import known_registry
from kubechronicle.api.strategy.strategy import WriteContext

CONTEXT = WriteContext(now="2026-01-01T00:00:00Z", uid="u")
ANSWERS = [json.loads(line) for line in Path(__file__).with_name("answers.jsonl").read_text().splitlines()]


def create(definition: dict[str, Any]) -> pipeline.Prepared:
    rt = known_registry().storage("customresourcedefinitions.apiextensions.k8s.io")
    assert rt is not None
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", **definition}
    obj, _ = pipeline.decode_object(rt, body, CONTEXT, create=True)
    return pipeline.prepare_create(rt, obj, CONTEXT)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer["name"])
def test_the_answer_is_that_of_kube_apiserver(answer: dict[str, Any]) -> None:
    code, message, spec = 201, "", None
    causes: list[list[str]] = []
    warnings: list[str] = []
    try:
        prepared = create(answer["definition"])
        warnings, spec = list(prepared.warnings), prepared.object["spec"]
    except StatusError as error:
        status = error.body()
        code, message = status["code"], status["message"]
        found = (status.get("details") or {}).get("causes") or ()
        causes = sorted([cause.get("field", ""), cause.get("message", "")] for cause in found)
    assert (code, causes) == (answer["code"], answer.get("causes", []))
    assert set(warnings) == set(answer.get("warnings", []))  # an answer has each once
    if code == 201:
        assert spec == answer["spec"]
    if code == 400:
        assert message == answer["message"]
