"""Updates of definitions: constant fields, the status, and flaws of an old definition that are tolerated."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubechronicle.api.builtin.apiextensions.customresourcedefinition import (
    definition_warnings,
    validate_definition,
    validate_definition_change,
)
from kubechronicle.api.builtin.apiextensions.validation_names import is_protected
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.registry.registry import known_registry
from kubechronicle.api.strategy.strategy import WriteContext
from kubechronicle.api.values.objects import Object

CONTEXT = WriteContext(now="2026-01-01T00:00:00Z", uid="u")
ESTABLISHED = {"type": "Established", "status": "True", "reason": "x", "message": ""}
NAMES = {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"}


def definition(*versions: Object, established: bool = True, **spec: Any) -> Object:
    given = versions or (version(),)
    stored = next(each["name"] for each in given if each.get("storage"))
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.example.com", "uid": "u", "resourceVersion": "5", "generation": 1},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": dict(NAMES),
            "versions": list(given),
            "conversion": {"strategy": "None"},
            **spec,
        },
        "status": {
            "acceptedNames": dict(NAMES),
            "conditions": [ESTABLISHED] if established else [],
            "storedVersions": [stored],
        },
    }


def version(schema: Object | None = None, **fields: Any) -> Object:
    openapi = {"type": "object", "x-kubernetes-preserve-unknown-fields": True} if schema is None else schema
    return {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": openapi}, **fields}


def properties(**fields: Object) -> Object:
    return {"type": "object", "properties": fields}


def texts(new: Object, old: Object) -> list[str]:
    return [str(cause) for cause in validate_definition_change(new, old)]


def update(new: Object, old: Object, subresource: str = "") -> Object:
    rt = known_registry().storage("customresourcedefinitions.apiextensions.k8s.io")
    assert rt is not None
    context = WriteContext(now="2026-01-02T00:00:00Z", name="foos.example.com", subresource=subresource)
    decoded, _ = pipeline.decode_object(rt, copy.deepcopy(new), context, create=False)
    return pipeline.prepare_update(rt, old, decoded, context).object


def test_scope_and_kind_of_an_established_definition_stay() -> None:
    old = definition()
    new = definition(scope="Cluster", names=NAMES | {"kind": "Bar"})
    assert texts(new, old) == [
        'spec.scope: Invalid value: "Cluster": field is immutable',
        'spec.names.kind: Invalid value: "Bar": field is immutable',
    ]
    assert texts(new, definition(established=False)) == []


def test_group_and_plural_stay_always() -> None:
    new = definition(group="other.example.com", names=NAMES | {"plural": "bars"}, established=False)
    assert texts(new, definition(established=False)) == [
        'spec.group: Invalid value: "other.example.com": field is immutable',
        'spec.names.plural: Invalid value: "bars": field is immutable',
    ]


def test_an_update_keeps_the_status_and_adds_the_storage_version() -> None:
    old = definition()
    new = definition(version(storage=False), version(name="v2"))
    new["status"] = {"storedVersions": ["v9"]}
    updated = update(new, old)
    assert updated["status"] == old["status"] | {"storedVersions": ["v1", "v2"]}
    assert old["status"]["storedVersions"] == ["v1"]
    assert updated["metadata"]["generation"] == 2


def test_a_stored_version_stays_in_the_spec() -> None:
    with pytest.raises(StatusError) as caught:
        update(definition(version(name="v2")), definition())
    assert 'status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1 was' in caught.value.message


def test_an_update_of_the_status_keeps_the_spec_and_may_change_labels() -> None:
    new = definition(scope="Cluster")
    new["metadata"]["labels"] = {"a": "b"}
    new["status"] = {"acceptedNames": dict(NAMES), "conditions": [], "storedVersions": []}
    updated = update(new, definition(), "status")
    assert updated["spec"]["scope"] == "Namespaced"
    assert updated["metadata"]["labels"] == {"a": "b"}
    assert updated["status"]["storedVersions"] == ["v1"]


def test_an_update_of_the_status_checks_the_accepted_names() -> None:
    new = definition()
    new["status"]["acceptedNames"] = {"plural": "A", "kind": "Foo", "listKind": "Foo"}
    with pytest.raises(StatusError) as caught:
        update(new, definition(), "status")
    fields = [cause["field"] for cause in caught.value.body()["details"]["causes"]]
    assert fields == ["status.acceptedNames.plural", "status.acceptedNames.listKind"]


NULLABLE_KEYS = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["k"],
    "items": {"type": "object", "properties": {"k": {"type": "string"}}},
}
GRANULAR_SET = {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}
UNPRUNED = {"type": "object", "default": {"unknown": 1}}


@pytest.mark.parametrize("flaw", [NULLABLE_KEYS, GRANULAR_SET, UNPRUNED], ids=["keys", "set", "default"])
def test_an_old_flaw_is_tolerated_and_a_new_one_is_not(flaw: Object) -> None:
    new = definition(version(properties(a=flaw, b=flaw)))
    assert texts(new, definition(version(properties(a=flaw)))) == []
    assert len(texts(new, definition())) == 2


def test_old_types_that_do_not_exist_are_tolerated() -> None:
    odd = properties(a={"type": "any"})
    assert texts(definition(version(odd)), definition(version(odd))) == []
    assert len(texts(definition(version(odd)), definition())) == 1


def test_a_missing_schema_is_tolerated_in_versions_without_paths() -> None:
    bare = {"name": "v1", "served": False, "storage": True}
    assert texts(definition(bare), definition(bare)) == []
    assert texts(definition({**bare, "served": True}), definition(bare)) == [
        "spec.versions[0].schema.openAPIV3Schema: Required value: because otherwise all fields are pruned"
    ]


def test_a_schema_without_structure_is_tolerated_while_unknown_fields_are_kept() -> None:
    loose = version(properties(a={}))
    old = definition(loose, preserveUnknownFields=True)
    assert texts(definition(loose, preserveUnknownFields=True), old) == []
    assert len(texts(definition(loose), old)) == 1


def test_unchanged_selectable_fields_may_be_too_many() -> None:
    fields = {f"f{number}": {"type": "string"} for number in range(10)}
    many = [{"jsonPath": f".f{number}"} for number in range(9)]
    schema = properties(**fields)
    old = definition(version(schema, selectableFields=many))
    assert texts(old, old) == []
    changed = definition(version(schema, selectableFields=[*many[:8], {"jsonPath": ".f9"}]))
    assert texts(changed, old) == ["spec.selectableFields: Too many: 9: must have at most 8 items"]


def webhook(**config: Any) -> Object:
    versions = config.pop("versions", ["v1"])
    return {
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": versions, "clientConfig": {"url": "https://x/", **config}},
    }


def test_a_bad_bundle_is_refused_once_the_definition_is_established() -> None:
    new = definition(conversion=webhook(caBundle="Zm9v"))
    assert texts(new, definition(established=False)) == []
    assert texts(new, definition(conversion=webhook(caBundle="YmFy"))) == []
    assert texts(new, definition()) == [
        'spec.conversion.webhookClientConfig.caBundle: Invalid value: "Zm9v": unable to load root certificates: '
        "unable to parse bytes as PEM block"
    ]


def test_unknown_versions_of_reviews_are_tolerated_if_they_are_old() -> None:
    new = definition(conversion=webhook(versions=["v7"]))
    assert texts(new, new) == []
    assert texts(new, definition()) == [
        'spec.conversion.conversionReviewVersions: Invalid value: ["v7"]: must include at least one of v1, v1beta1'
    ]


def test_approval_is_checked_when_its_state_changes() -> None:
    key = "api-approved.kubernetes.io"

    def protected(text: str) -> Object:
        obj = definition(group="example.k8s.io")
        obj["metadata"]["annotations"] = {key: text}
        return obj

    assert texts(protected("bad"), protected("worse")) == []
    assert texts(protected("unapproved, later"), protected("bad")) == []
    assert texts(protected(""), protected("https://example.com/1"))[0].startswith(
        f'metadata.annotations[{key}]: Required value: protected groups must have approval annotation "{key}"'
    )


def test_only_new_formats_are_warned_about() -> None:
    old = definition(version(properties(a={"type": "string", "format": "odd"})))
    new = definition(
        version(properties(a={"type": "string", "format": "odd"}, b={"type": "integer", "format": "int8"}))
    )
    assert definition_warnings(new, old) == ['unrecognized format "int8"']
    assert definition_warnings(new, None) == ['unrecognized format "odd"', 'unrecognized format "int8"']


def test_the_group_of_history_is_protected() -> None:
    assert is_protected("history.kubechronicle.dev")
    assert not is_protected("kubechronicle.dev")
    new = definition(group="history.kubechronicle.dev")
    new["metadata"]["name"] = "foos.history.kubechronicle.dev"
    assert [cause.field for cause in validate_definition(new)] == ["metadata.annotations[api-approved.kubernetes.io]"]


def test_many_versions_take_linear_time() -> None:
    versions = [version(name=f"v{number}", storage=number == 1) for number in range(1, 3001)]
    new = definition(*versions)
    assert texts(new, new) == []
