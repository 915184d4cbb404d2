"""Empty lists and maps: noted while they are removed, and put back for a moment."""

from __future__ import annotations

from typing import Any

from kubechronicle.api.schema import check, empties, types
from kubechronicle.api.schema.empties import Empty

POLICY = types.object_type("io.k8s.api.networking.v1.NetworkPolicy")


def checked(obj: dict[str, Any], kind: types.ObjectType = POLICY) -> list[Empty]:
    found: list[Empty] = []
    check.check(obj, kind, found)
    return found


def test_the_places_of_empty_lists_and_maps_are_noted() -> None:
    obj = {
        "metadata": {"labels": {}, "name": "a", "annotations": None},
        "spec": {"podSelector": {}, "egress": [{"to": []}], "ingress": [], "none": []},
    }
    found = checked(obj)
    assert [each.path for each in found] == ["metadata.labels", "spec.egress[0].to", "spec.ingress"]
    assert obj == {"metadata": {"name": "a"}, "spec": {"podSelector": {}, "egress": [{}]}}


def test_unknown_fields_are_still_reported() -> None:
    found: list[Empty] = []
    obj = {"spec": {"podSelector": {}, "x": [], "egress": [{"to": [], "y": 1}]}}
    assert check.check(obj, POLICY, found) == ["spec.x", "spec.egress[0].y"]
    assert [each.path for each in found] == ["spec.egress[0].to"]


def test_empty_bytes_are_noted_but_no_other_scalars() -> None:
    kind = types.object_type("io.k8s.api.admissionregistration.v1.MutatingWebhookConfiguration")
    obj = {"webhooks": [{"name": "", "clientConfig": {"caBundle": "", "url": ""}}]}
    assert [each.path for each in checked(obj, kind)] == ["webhooks[0].clientConfig.caBundle"]


def test_empty_values_are_put_back_and_removed_again() -> None:
    obj: dict[str, Any] = {"spec": {"podSelector": {}, "egress": [{"to": []}, {"ports": []}], "ingress": []}}
    found = checked(obj)
    bare: dict[str, Any] = {"podSelector": {}, "egress": [{}, {}]}
    assert obj["spec"] == bare
    restored = empties.put_back(obj, found)
    assert obj["spec"] == {"podSelector": {}, "egress": [{"to": []}, {"ports": []}], "ingress": []}
    restored.undo()
    assert obj["spec"] == bare


def test_a_place_that_is_gone_or_taken_stays_as_it_is() -> None:
    obj: dict[str, Any] = {"spec": {"podSelector": {}, "egress": [{"to": []}, {"ports": []}], "ingress": []}}
    found = checked(obj)
    changed: dict[str, Any] = {"spec": {"podSelector": {}, "egress": [{}], "ingress": [{}]}}
    restored = empties.put_back(changed, found)
    assert changed == {"spec": {"podSelector": {}, "egress": [{"to": []}], "ingress": [{}]}}
    restored.undo()
    assert changed == {"spec": {"podSelector": {}, "egress": [{}], "ingress": [{}]}}
    empties.put_back({"spec": []}, found).undo()


def test_lists_that_are_always_written_become_null_again() -> None:
    kind = types.object_type("io.k8s.api.storage.v1.CSINode")
    obj: dict[str, Any] = {"metadata": {}, "spec": {"drivers": []}}
    found = checked(obj, kind)
    empties.make_null(obj, kind)
    assert obj["spec"] == {"drivers": None}
    restored = empties.put_back(obj, found)
    assert obj["spec"] == {"drivers": []}
    restored.undo()
    assert obj["spec"] == {"drivers": None}


def test_fields_are_named_with_any_text_in_between() -> None:
    found = [Empty("data", {}), Empty("labels", {})]
    found[1].steps.append("metadata")
    assert [each.path for each in empties.named(found, ("data", "spec.labels"))] == ["data"]
    assert [each.path for each in empties.named(found, ("*.data", "*.labels"))] == ["metadata.labels"]
    assert empties.named(found, ()) == []


def test_only_lists_within_items_of_owned_lists_count_for_owners() -> None:
    obj = {
        "metadata": {"ownerReferences": [], "labels": {}},
        "spec": {
            "podSelector": {"matchLabels": {}, "matchExpressions": [{"key": "a", "operator": "In", "values": []}]},
            "egress": [{"to": [{"podSelector": {"matchLabels": {}}}]}],
            "ingress": [],
        },
    }
    counted = empties.within_owned_lists(checked(obj), POLICY)
    assert [each.path for each in counted] == [
        "spec.podSelector.matchExpressions[0].values",
        "spec.egress[0].to[0].podSelector.matchLabels",
    ]


def test_items_of_keyed_lists_are_owned_one_by_one() -> None:
    kind = types.object_type("io.k8s.api.core.v1.Pod")
    obj = {"spec": {"containers": [{"name": "c", "args": [], "envFrom": []}], "tolerations": []}}
    assert empties.within_owned_lists(checked(obj, kind), kind) == []
