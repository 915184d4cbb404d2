"""Tags in force: what kube-apiserver finds by them comes after what it finds by hand, and no rule stands in both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from kubechronicle.api.builtin.kinds import KindRules, default_rules
from kubechronicle.api.declarative.enforcement import RULES, DeclaredRules
from kubechronicle.api.errors.field_errors import Cause
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.kinds.reading import release
from kubechronicle.api.pipeline import pipeline, validation
from kubechronicle.api.registry.registry import ResourceType, builtin_registry
from kubechronicle.api.strategy.strategy import WriteContext
from tests.api.declarative.drawing import Drawing

NOW = "2026-01-01T00:00:00Z"

ROUNDS = 60
CONTEXT = WriteContext(now="2026-01-02T03:04:05Z", uid="0123abcd-0123-0123-0123-0123456789ab", namespace="ns")


class NoRules(DeclaredRules):
    def has(self, definition: str) -> bool:
        return False


def kinds() -> Iterator[ResourceType]:
    declared = default_rules().declared
    for rt in builtin_registry().stored():
        if rt.definition and declared.has(rt.definition):
            yield rt


def drawn(rt: ResourceType, drawing: Drawing, old: dict[str, Any] | None = None) -> dict[str, Any] | None:
    kind = release().defined(rt.definition)
    body = drawing.object(kind) if old is None else drawing.changed(kind, old)
    body |= {"apiVersion": rt.api_version, "kind": rt.kind, "metadata": {"name": "A.." if old is None else "a"}}
    try:
        obj, _ = pipeline.decode_object(rt, body, CONTEXT, create=True)
    except StatusError:
        return None
    return obj


def marks(causes: Sequence[Cause]) -> set[tuple[str, str, str]]:
    """Return what a rule says: its text counts only where a field may break several rules."""
    return {(each.reason, each.field, detail(each) if each.reason == "FieldValueInvalid" else "") for each in causes}


def detail(cause: Cause) -> str:
    return cause.message.rpartition(": ")[2]


@pytest.mark.parametrize("rt", list(kinds()), ids=lambda rt: rt.resource)
def test_no_rule_of_a_tag_is_repeated_by_hand(rt: ResourceType) -> None:
    rules, drawing = default_rules(), Drawing(release(), 3)
    strategy, by_hand = rules.of(rt.resource), NoRules(FeatureGates())
    found: set[tuple[str, str, str]] = set()
    for _ in range(ROUNDS):
        new = drawn(rt, drawing)
        if new is None:
            continue
        hand = validation.validate_create(rt, strategy, by_hand, new)
        tags = rules.declared.causes(rt.definition, "", new, None, strategy.options_in_use)
        assert not marks(hand) & marks(tags), new
        both = validation.validate_create(rt, strategy, rules.declared, new)
        assert both[len(both) - len(tags) :] == list(tags)
        found |= marks(tags)
        changed = drawn(rt, drawing, new)
        for below in () if changed is None else ("", *strategy.subresources):
            hand = validation.validate_update(rt, strategy, by_hand, below, changed, new, now=NOW)
            tags = rules.declared.causes(rt.definition, below, changed, new, strategy.options_in_use)
            assert not marks(hand) & marks(tags), (below, changed, new)
            found |= marks(tags)
    assert found or rt.resource in RARE


RARE = (
    "certificatesigningrequests.certificates.k8s.io",
    *("pods", "podtemplates", "nodes", "persistentvolumeclaims"),
    *("daemonsets.apps", "deployments.apps", "replicasets.apps", "statefulsets.apps", "jobs.batch"),
)
"""Kinds of which tags validate only fields that v1.36 does not have, or what is hardly drawn: two conditions."""


def test_an_option_is_on_for_what_uses_it() -> None:
    rules = KindRules(FeatureGates(given={"HPAScaleToZero": False}))
    rt = builtin_registry().lookup("autoscaling", "v2", "horizontalpodautoscalers")
    assert rt is not None
    strategy = rules.of(rt.resource)

    def found(new: int, old: int | None) -> list[str]:
        spec = [None if least is None else {"spec": {"minReplicas": least, "maxReplicas": 9}} for least in (new, old)]
        new_object, held = spec
        assert new_object is not None
        causes = rules.declared.causes(rt.definition, "", new_object, held, strategy.options_in_use)
        return [cause.field for cause in causes]

    assert found(0, None) == ["spec.minReplicas"]
    assert found(0, 1) == ["spec.minReplicas"]
    assert found(-1, 0) == ["spec.minReplicas"]
    assert found(0, 0) == []


def test_versions_that_the_release_has_no_longer_have_no_rules() -> None:
    declared = default_rules().declared
    assert not declared.has("io.k8s.api.scheduling.v1alpha2.Workload")
    assert not declared.has("io.k8s.api.core.v1.ConfigMap")


def test_the_release_of_the_rules_is_there() -> None:
    assert release(RULES).declared("core.v1.Pod").is_struct
