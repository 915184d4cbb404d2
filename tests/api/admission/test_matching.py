"""The match of writes with the rules and selectors of webhooks and policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kubechronicle.api.admission.matching import Index, Labels, Rules, Selectors, WriteKind, equivalents, kind_of
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.registry.registry import ResourceType, builtin_registry

REGISTRY = builtin_registry()


def rt(group: str, version: str, plural: str) -> ResourceType:
    found = REGISTRY.lookup(group, version, plural)
    assert found is not None
    return found


DEPLOYMENTS = rt("apps", "v1", "deployments")
NAMESPACES = rt("", "v1", "namespaces")
OLD_SCALERS = rt("autoscaling", "v1", "horizontalpodautoscalers")
SCALERS = rt("autoscaling", "v2", "horizontalpodautoscalers")


def rule(*resources: str, **fields: Any) -> dict[str, Any]:
    return {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": list(resources), **fields}


def write(of: ResourceType, subresource: str = "", operation: str = "CREATE", *, namespaced: bool = True) -> WriteKind:
    return WriteKind(of, subresource, operation, namespaced)


@pytest.mark.parametrize(
    ("resource", "subresource", "matches"),
    [
        ("deployments", "", True),
        ("deployments", "scale", False),
        ("deployments/*", "", True),  # as kube-apiserver does
        ("deployments/*", "scale", True),
        ("deployments/scale", "", False),
        ("*", "", True),
        ("*", "scale", False),
        ("*/*", "", True),
        ("*/scale", "scale", True),
        ("pods", "", False),
    ],
)
def test_resources_and_subresources(resource: str, subresource: str, matches: bool) -> None:
    found = Rules([rule(resource)], "Exact").match(write(DEPLOYMENTS, subresource), REGISTRY)
    assert (found is DEPLOYMENTS) == matches


@pytest.mark.parametrize(
    ("fields", "matches"),
    [
        ({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"]}, True),
        ({"apiGroups": [""]}, False),
        ({"apiVersions": ["v2"]}, False),
        ({"operations": ["UPDATE"]}, False),
        ({"scope": "Namespaced"}, True),
        ({"scope": "Cluster"}, False),
        ({"scope": "*"}, True),
    ],
)
def test_other_fields(fields: dict[str, Any], matches: bool) -> None:
    found = Rules([rule("deployments", **fields)], "Exact").match(write(DEPLOYMENTS), REGISTRY)
    assert (found is DEPLOYMENTS) == matches


@pytest.mark.parametrize(("scope", "matches"), [("Cluster", True), ("Namespaced", False)])
def test_a_namespace_is_cluster_scoped(scope: str, matches: bool) -> None:
    found = Rules([rule("namespaces", scope=scope)], "Exact").match(write(NAMESPACES), REGISTRY)
    assert (found is NAMESPACES) == matches


def test_equivalent_versions() -> None:
    rules = [rule("horizontalpodautoscalers", apiVersions=["v2"])]
    assert Rules(rules, "Equivalent").match(write(OLD_SCALERS), REGISTRY) is SCALERS
    assert Rules(rules, "Exact").match(write(OLD_SCALERS), REGISTRY) is None
    exact_later = [*rules, rule("horizontalpodautoscalers", apiVersions=["v1"])]
    assert Rules(exact_later, "Equivalent").match(write(OLD_SCALERS), REGISTRY) is OLD_SCALERS


def test_equivalents_cross_groups() -> None:
    events = rt("", "v1", "events")
    assert equivalents(REGISTRY, events, "") == [rt("events.k8s.io", "v1", "events")]


def test_names_limit_rules() -> None:
    rules = Rules([rule("deployments", resourceNames=["a"])], "Exact")
    assert rules.match(write(DEPLOYMENTS), REGISTRY, "a") is DEPLOYMENTS
    assert rules.match(write(DEPLOYMENTS), REGISTRY, "b") is None
    assert rules.match(write(DEPLOYMENTS), REGISTRY) is DEPLOYMENTS


def test_kinds_of_subresources() -> None:
    assert kind_of(DEPLOYMENTS, "scale") == ("autoscaling", "v1", "Scale")
    assert kind_of(rt("", "v1", "pods"), "eviction") == ("policy", "v1", "Eviction")
    assert kind_of(DEPLOYMENTS, "") == ("apps", "v1", "Deployment")


def labels(new: Mapping[str, str] | None, old: Mapping[str, str] | None = None, **namespace: str) -> Labels:
    return Labels(new, old, lambda: namespace)


def test_the_object_selector_takes_either_object() -> None:
    selectors = Selectors({"objectSelector": {"matchLabels": {"a": "1"}}})
    assert selectors.match(labels({"a": "1"}))
    assert selectors.match(labels({}, {"a": "1"}))
    assert not selectors.match(labels({}, {}))
    assert not selectors.match(labels(None))
    absent = Selectors({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}})
    assert not absent.match(labels(None))  # no object, no match


def test_the_namespace_selector_spares_cluster_scoped_objects() -> None:
    selectors = Selectors({"namespaceSelector": {"matchLabels": {"env": "prod"}}})
    assert selectors.match(labels({}, env="prod"))
    assert not selectors.match(labels({}, env="test"))
    assert selectors.match(Labels({}, None, None))


def test_a_missing_namespace_is_an_error_for_matching_objects_only() -> None:
    def missing() -> Mapping[str, str]:
        raise status.not_found("namespaces", "n")

    selectors = Selectors(
        {"namespaceSelector": {"matchLabels": {"a": "1"}}, "objectSelector": {"matchLabels": {"b": "1"}}}
    )
    assert not selectors.match(Labels({}, None, missing))
    with pytest.raises(StatusError, match='namespaces "n" not found'):
        selectors.match(Labels({"b": "1"}, None, missing))


def test_an_index_matches_once_for_a_kind_of_write() -> None:
    calls = 0

    def match(kind: WriteKind, registry: Any) -> ResourceType | None:
        nonlocal calls
        calls += 1
        return kind.type if kind.subresource else None

    index = Index((number, match) for number in range(3))
    for _ in range(5):
        assert index.candidates(write(DEPLOYMENTS), REGISTRY) == ()
    assert calls == 3
    assert [item for item, _ in index.candidates(write(DEPLOYMENTS, "scale"), REGISTRY)] == [0, 1, 2]
    assert Index[int](()).candidates(write(DEPLOYMENTS), REGISTRY) == ()
