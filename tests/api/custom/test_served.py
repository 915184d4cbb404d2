"""The ResourceTypes of a CustomResourceDefinition."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.custom.served import all_types, resource_types


def version(name: str, **members: Any) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "description": f"of {name}"}}
    return {"name": name, "served": True, "storage": False, "schema": schema, **members}


def definition(*versions: dict[str, Any], **status: Any) -> dict[str, Any]:
    names = {
        "plural": "widgets",
        "singular": "widget",
        "kind": "Widget",
        "listKind": "WidgetList",
        "shortNames": ["wd"],
        "categories": ["all"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com", "uid": "u", "generation": 3},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": list(versions)},
        "status": {"acceptedNames": names, **status},
    }


def test_a_version_has_the_accepted_names_and_the_verbs_of_discovery() -> None:
    (rt,) = resource_types(definition(version("v1", storage=True)))
    assert (rt.group, rt.version, rt.plural, rt.singular) == ("example.com", "v1", "widgets", "widget")
    assert (rt.kind, rt.list_kind, rt.resource) == ("Widget", "WidgetList", "widgets.example.com")
    assert (rt.short_names, rt.categories, rt.namespaced) == (("wd",), ("all",), True)
    assert rt.verbs == ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
    assert (rt.is_storage_version, rt.message, rt.definition) == (True, "", "")


def test_unserved_versions_are_known_and_name_the_stored_form() -> None:
    types = all_types(definition(version("v1"), version("v2", served=False, storage=True)))
    assert [(rt.version, rt.custom.served, rt.storage_api_version) for rt in types] == [
        ("v1", True, "example.com/v2"),
        ("v2", False, "example.com/v2"),
    ]
    assert types[0].custom.storage is types[1].custom
    assert [rt.version for rt in resource_types(definition(version("v1", storage=True), version("v2", served=False)))]


def test_status_comes_before_scale() -> None:
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    (rt,) = resource_types(definition(version("v1", storage=True, subresources={"scale": scale, "status": {}})))
    assert [(sub.name, sub.group, sub.kind) for sub in rt.subresources.values()] == [
        ("status", "example.com", "Widget"),
        ("scale", "autoscaling", "Scale"),
    ]


@pytest.mark.parametrize(
    ("versions", "text"),
    [
        ([version("v1", deprecated=True)], "example.com/v1 Widget is deprecated"),
        ([version("v1", deprecated=True, deprecationWarning="")], ""),
        ([version("v1", deprecated=True, deprecationWarning="Move on")], "Move on"),
        ([version("v1beta1", deprecated=True), version("v1"), version("v2")],
         "example.com/v1beta1 Widget is deprecated; use example.com/v2 Widget"),
        ([version("v1", deprecated=True), version("v1beta1"), version("v2", served=False)],
         "example.com/v1 Widget is deprecated"),
    ],
)  # fmt: skip
def test_a_deprecated_version_warns_and_names_the_best_newer_one(versions: list[dict[str, Any]], text: str) -> None:
    versions[0]["storage"] = True
    assert all_types(definition(*versions))[0].warning == text


def test_a_version_keeps_no_schema_and_makes_each_part_once() -> None:
    loaded = []
    body = definition(version("v1", storage=True))

    def load() -> dict[str, Any]:
        loaded.append(1)
        return body

    custom = resource_types(body, load=load)[0].custom
    assert not loaded
    first = custom.part("openapi", lambda own: own.openapi)
    assert first == {"type": "object", "description": "of v1"}
    assert custom.part("openapi", lambda own: own.openapi) is first
    assert len(loaded) == 1


def test_a_terminating_definition_says_so() -> None:
    conditions = [{"type": "Terminating", "status": "True"}]
    (rt,) = resource_types(definition(version("v1", storage=True), conditions=conditions))
    assert rt.custom.terminating
