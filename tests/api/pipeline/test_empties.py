"""Writes with empty lists and maps, which Kubernetes tells from none until it stores the object."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.encoding import encode_stored
from kubechronicle.api.pipeline import patches, pipeline
from kubechronicle.api.pipeline.pipeline import Outcome, Prepared, WriteContext
from kubechronicle.api.registry.registry import ResourceType, builtin_registry

NOW = "2026-01-01T00:00:00Z"
LATER = "2026-01-01T00:01:00Z"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
POLICIES = ("networking.k8s.io", "v1", "networkpolicies")
POLICY: dict[str, Any] = {"spec": {"podSelector": {}, "egress": [{}]}}


class Store:
    """One object in a resource, and writes to it."""

    def __init__(self, resource: tuple[str, str, str], obj: dict[str, Any]) -> None:
        found = builtin_registry().lookup(*resource)
        assert found is not None
        self.rt: ResourceType = found
        ctx = self.context("")
        body = {"metadata": {"name": "a"}, **copy.deepcopy(obj)}
        decoded, _ = pipeline.decode_object(self.rt, body, ctx, create=True)
        self.keep(pipeline.prepare_create(self.rt, decoded, ctx))

    def context(self, name: str, **more: Any) -> WriteContext:
        known = {"now": NOW, "uid": "u", "name_suffix": "bcdfg", "manager": "m"}
        return WriteContext(name=name, namespace="n" if self.rt.namespaced else "", **{**known, **more})

    def keep(self, prepared: Prepared) -> Outcome:
        self.stored: dict[str, Any] = json.loads(encode_stored(prepared.object))
        self.stored["metadata"]["resourceVersion"] = "5"
        return prepared.outcome

    def replace(self, **fields: Any) -> Outcome:
        """PUT the object with these fields, as another manager."""
        ctx = self.context("a", manager="other", now=LATER)
        body = {**copy.deepcopy(self.stored), **copy.deepcopy(fields)}
        new, _ = pipeline.decode_object(self.rt, body, ctx, create=False)
        return self.keep(pipeline.prepare_update(self.rt, copy.deepcopy(self.stored), new, ctx))

    def patch(self, content_type: str, patch: Any) -> Outcome:
        applies = content_type == APPLY
        ctx = self.context("a", manager="other", now=LATER, patches=True, applies=applies, force=applies)
        body = json.dumps(patch).encode()
        new, _ = patches.apply_patch(self.rt, copy.deepcopy(self.stored), content_type, body, ctx)
        return self.keep(pipeline.prepare_update(self.rt, copy.deepcopy(self.stored), new, ctx))

    def owners(self) -> dict[str, Any]:
        return {each["manager"]: each["fieldsV1"] for each in self.stored["metadata"]["managedFields"]}


def rejection(store: Store, **fields: Any) -> str:
    with pytest.raises(StatusError) as caught:
        store.replace(**fields)
    return caught.value.message


def test_an_empty_list_is_a_change_of_a_network_policy_each_time() -> None:
    store = Store(POLICIES, POLICY)
    wanted: dict[str, Any] = {"podSelector": {}, "egress": [{}], "ingress": []}
    for generation in (2, 3):
        assert store.replace(spec=wanted) is Outcome.STORE
        assert store.stored["metadata"]["generation"] == generation
    assert "ingress" not in store.stored["spec"]
    assert store.replace(spec=store.stored["spec"]) is Outcome.UNCHANGED


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC, APPLY])
def test_an_empty_list_in_a_patch_is_a_change_of_a_network_policy(content_type: str) -> None:
    store = Store(POLICIES, POLICY)
    patch: dict[str, Any] = {"spec": {"ingress": []}}
    if content_type == APPLY:
        patch |= {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "a"}}
    assert store.patch(content_type, patch) is Outcome.STORE
    assert store.stored["metadata"]["generation"] == 2
    assert "ingress" not in store.stored["spec"]


def test_an_empty_list_is_no_change_of_other_kinds() -> None:
    store = Store(("", "v1", "configmaps"), {"data": {"a": "b"}})
    assert store.replace(binaryData={}) is Outcome.UNCHANGED
    budgets = Store(("policy", "v1", "poddisruptionbudgets"), {"spec": {"selector": {"matchLabels": {"a": "b"}}}})
    wanted = {"selector": {"matchLabels": {"a": "b"}, "matchExpressions": []}}
    assert budgets.replace(spec=wanted) is Outcome.UNCHANGED


def test_the_writer_owns_a_whole_list_with_an_empty_list_in_its_item() -> None:
    rules: list[dict[str, Any]] = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    roles = Store(("rbac.authorization.k8s.io", "v1", "roles"), {"rules": rules})
    assert roles.owners() == {"m": {"f:rules": {}}}
    rules[0]["resourceNames"] = []
    assert roles.replace(rules=rules) is Outcome.STORE
    assert roles.owners() == {"other": {"f:rules": {}}}
    assert "resourceNames" not in roles.stored["rules"][0]
    assert roles.replace(rules=rules) is Outcome.UNCHANGED  # only the time of the entry is newer


def test_an_empty_map_that_is_the_default_changes_no_owner() -> None:
    store = Store(("", "v1", "limitranges"), {"spec": {"limits": [{"type": "Container"}]}})
    assert store.replace(spec={"limits": [{"type": "Container", "default": {}}]}) is Outcome.UNCHANGED
    assert store.replace(spec={"limits": [{"type": "Container", "min": {}}]}) is Outcome.STORE
    pods = Store(("", "v1", "limitranges"), {"spec": {"limits": [{"type": "Pod"}]}})
    assert pods.replace(spec={"limits": [{"type": "Pod", "default": {}}]}) is Outcome.STORE


def test_an_empty_map_is_a_change_of_an_immutable_config_map() -> None:
    store = Store(("", "v1", "configmaps"), {"data": {"a": "b"}, "immutable": True})
    assert "binaryData: Forbidden: field is immutable" in rejection(store, binaryData={})
    store = Store(("", "v1", "configmaps"), {"binaryData": {"a": "eA=="}, "immutable": True})
    assert store.replace(data={}) is Outcome.UNCHANGED  # its default
    secret = Store(("", "v1", "secrets"), {"immutable": True})
    assert "data: Forbidden: field is immutable" in rejection(secret, data={})


def test_an_empty_list_counts_where_only_one_of_two_fields_is_allowed() -> None:
    spec = {"driver": "d.example.com", "pool": {"name": "p", "resourceSliceCount": 1}, "nodeName": "n"}
    store = Store(("resource.k8s.io", "v1", "resourceslices"), {"spec": {**spec, "devices": [{"name": "d"}]}})
    text = rejection(store, spec={**spec, "devices": [{"name": "d"}], "sharedCounters": []})
    assert text.endswith("only one of `sharedCounters` or `devices` is allowed")
    assert store.replace(spec={**spec, "devices": [{"name": "d"}]}) is Outcome.UNCHANGED


def test_an_empty_list_in_the_metadata_of_a_claims_template_is_set() -> None:
    claims = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
    store = Store(("resource.k8s.io", "v1", "resourceclaimtemplates"), {"spec": {"spec": claims}})
    text = rejection(store, spec={"spec": claims, "metadata": {"finalizers": []}})
    assert text.endswith("is invalid: spec.metadata.finalizers: Forbidden: cannot be set")
    assert store.replace(spec={"spec": claims, "metadata": {"labels": {}}}) is Outcome.UNCHANGED


def test_an_empty_list_in_the_metadata_of_a_claim_for_pods_is_set() -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    template = {"metadata": {"finalizers": []}, "spec": claim}
    pod = {
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}],
    }
    with pytest.raises(StatusError) as caught:
        Store(("", "v1", "podtemplates"), {"template": {"spec": pod}})
    assert ".ephemeral.volumeClaimTemplate.metadata.finalizers: Forbidden: cannot be set" in caught.value.message


def test_messages_print_an_empty_list_as_such() -> None:
    drivers = [{"name": "d.example.com", "nodeID": "n", "topologyKeys": ["a"]}]
    store = Store(("storage.k8s.io", "v1", "csinodes"), {"spec": {"drivers": drivers}})
    kept = {"name": "d.example.com", "nodeID": "n"}
    assert '"TopologyKeys":[]' in rejection(store, spec={"drivers": [{**kept, "topologyKeys": []}]})
    assert '"TopologyKeys":null' in rejection(store, spec={"drivers": [kept]})


def test_messages_omit_empty_lists_of_label_selectors() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    selector = {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}
    with pytest.raises(StatusError) as caught:
        Store(("apps", "v1", "deployments"), {"spec": {"selector": selector, "template": template}})
    assert '{"matchExpressions":[{"key":"a","operator":"In"}]}: invalid label selector' in caught.value.message
