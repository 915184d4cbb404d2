"""Definitions of v1beta1, as etcd has them, become those of v1."""

from __future__ import annotations

from typing import Any

from kubechronicle.ops.migration.storage_form import to_v1

SCHEMA = {"openAPIV3Schema": {"type": "object"}}


def definition(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1beta1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gears.shop"},
        "spec": {"group": "shop", "preserveUnknownFields": False, **spec},
    }


def test_fields_of_all_versions_move_into_each() -> None:
    old = definition(
        version="v1",
        versions=[{"name": "v1", "served": True, "storage": True}, {"name": "v2", "served": True, "storage": False}],
        validation=SCHEMA,
        subresources={"status": {}},
        additionalPrinterColumns=[{"name": "Age", "type": "date", "JSONPath": ".metadata.creationTimestamp"}],
        selectableFields=[{"jsonPath": ".spec.a"}],
    )
    new = to_v1(old)
    assert new["apiVersion"] == "apiextensions.k8s.io/v1"
    assert set(new["spec"]) == {"group", "versions"}
    for version in new["spec"]["versions"]:
        assert version["schema"] == SCHEMA
        assert version["subresources"] == {"status": {}}
        assert version["additionalPrinterColumns"] == [
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
        ]
        assert version["selectableFields"] == [{"jsonPath": ".spec.a"}]


def test_fields_of_a_version_stay_there() -> None:
    columns = [{"name": "A", "type": "string", "JSONPath": ".a"}]
    versions = [{"name": "v1", "served": True, "storage": True, "schema": SCHEMA, "additionalPrinterColumns": columns}]
    (version,) = to_v1(definition(version="v1", versions=versions))["spec"]["versions"]
    assert version["schema"] == SCHEMA
    assert version["additionalPrinterColumns"] == [{"name": "A", "type": "string", "jsonPath": ".a"}]


def test_a_single_version_becomes_a_list() -> None:
    spec = to_v1(definition(version="v1"))["spec"]
    assert spec["versions"] == [{"name": "v1", "served": True, "storage": True}]


def test_the_conversion_has_its_webhook_in_one_place() -> None:
    client, versions = {"url": "https://a"}, ["v1"]
    old = {"strategy": "Webhook", "webhookClientConfig": client, "conversionReviewVersions": versions}
    assert to_v1(definition(version="v1", conversion=old))["spec"]["conversion"] == {
        "strategy": "Webhook",
        "webhook": {"clientConfig": client, "conversionReviewVersions": versions},
    }
    none = {"strategy": "None"}
    assert to_v1(definition(version="v1", conversion=none))["spec"]["conversion"] == none


def test_unknown_fields_are_preserved_by_default() -> None:
    old = definition(version="v1")
    del old["spec"]["preserveUnknownFields"]
    assert to_v1(old)["spec"]["preserveUnknownFields"] is True
