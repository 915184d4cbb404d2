"""Incidents: unusual changes first, consequences below their causes, heartbeats left out."""

from __future__ import annotations

import time
from typing import Any

from kubechronicle.api.explaining.causes import Fact, Owner
from kubechronicle.api.explaining.causes import causes_of as found_causes
from kubechronicle.api.explaining.incidents import Before, incident_document, ranked
from kubechronicle.api.values.steps import finish

CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"
BEFORE = Before(1, frozenset(("jane", CONTROLLER)), frozenset((("jane", "deployments.apps"), (CONTROLLER, "pods"))))


def fact(revision: int, resource: str, name: str, user: str, *changed: str, **more: Any) -> Fact:
    operation, owners, verb = more.get("operation", "Update"), more.get("owners", ()), more.get("verb", "patch")
    document = {"operation": operation, "changed": list(changed), "request": {"verb": verb}}
    namespace = "" if resource == "namespaces" else "shop"
    references = tuple(Owner(uid, "", "", "") for uid in owners)
    uid, recorded = f"{resource}-{name}", more.get("recorded", 0)
    target = str(more.get("target", ""))
    return Fact(
        revision, resource, namespace, name, uid, user, document, references, revision - 1, recorded, target=target
    )


def causes_of(facts: list[Fact]) -> dict[int, int]:
    return {revision: cause.revision for revision, cause in finish(found_causes(facts)).items()}


def rollout() -> list[Fact]:
    """Jane sets an image; controllers make a ReplicaSet and Pods, and report statuses."""
    return [
        fact(10, "deployments.apps", "web", "jane", "spec.template.spec.containers[name=web].image"),
        fact(11, "replicasets.apps", "web-1", CONTROLLER, operation="Create", owners=("deployments.apps-web",)),
        fact(12, "pods", "web-1-a", CONTROLLER, operation="Create", owners=("replicasets.apps-web-1",)),
        fact(13, "pods", "web-1-a", "system:node:one", "status.phase"),
        fact(14, "replicasets.apps", "web-1", CONTROLLER, "status.replicas", owners=("deployments.apps-web",)),
        fact(15, "deployments.apps", "web", CONTROLLER, "status.replicas"),
        fact(16, "nodes", "one", "system:node:one", "status.conditions[type=Ready].lastHeartbeatTime"),
    ]


def test_consequences_have_their_causes() -> None:
    assert causes_of(rollout()) == {11: 10, 12: 11, 13: 12, 14: 10, 15: 10}


def test_objects_of_a_deleted_namespace_follow_from_its_deletion() -> None:
    facts = [
        fact(20, "namespaces", "shop", "bob", "metadata.deletionTimestamp", verb="delete"),
        fact(21, "configmaps", "a", "system:apiserver", operation="Delete", verb="deletecollection"),
        fact(22, "configmaps", "b", "jane", operation="Delete", verb="delete"),
    ]
    assert causes_of(facts) == {21: 20}


def test_a_removal_follows_from_the_deletion_of_its_namespace_rather_than_from_its_own_changes() -> None:
    facts = [
        fact(20, "configmaps", "a", "jane", operation="Create", verb="create"),
        fact(21, "replicasets.apps", "web-1", CONTROLLER, operation="Create", owners=("deployments.apps-web",)),
        fact(22, "pods", "web-1-a", CONTROLLER, operation="Create", owners=("replicasets.apps-web-1",)),
        fact(23, "configmaps", "b", "jane", "metadata.deletionTimestamp", verb="delete"),
        fact(24, "namespaces", "shop", "bob", "metadata.deletionTimestamp", verb="delete"),
        fact(25, "configmaps", "a", "system:apiserver", operation="Delete", verb="deletecollection"),
        fact(26, "pods", "web-1-a", "system:apiserver", "metadata.deletionTimestamp", verb="deletecollection"),
        fact(27, "replicasets.apps", "web-1", "system:apiserver", operation="Delete", verb="deletecollection"),
        fact(28, "pods", "web-1-a", "system:node:one", operation="Delete", owners=("replicasets.apps-web-1",)),
        fact(29, "configmaps", "b", "system:apiserver", operation="Delete", verb="update"),
        fact(30, "namespaces", "shop", "system:apiserver", operation="Delete", verb="update"),
    ]
    found = causes_of(facts)
    assert {revision: found[revision] for revision in (25, 26, 27, 28, 29, 30)} == {
        25: 24,
        26: 24,
        27: 24,
        28: 26,
        29: 23,  # jane's own request
        30: 24,
    }


def test_a_namespace_made_again_does_not_delete_objects() -> None:
    facts = [
        fact(20, "namespaces", "shop", "bob", "metadata.deletionTimestamp", verb="delete"),
        fact(21, "namespaces", "shop", "system:apiserver", operation="Delete", verb="update"),
        fact(22, "namespaces", "shop", "bob", operation="Create", verb="create"),
        fact(23, "configmaps", "a", "jane", operation="Create", verb="create"),
        fact(24, "configmaps", "a", "system:apiserver", operation="Delete", verb="delete"),
    ]
    assert causes_of(facts) == {21: 20, 24: 23}


def test_an_autoscaler_scales_because_of_the_person_who_set_it_or_scaled_last() -> None:
    scaler, of = "system:serviceaccount:kube-system:horizontal-pod-autoscaler", "horizontalpodautoscalers.autoscaling"
    facts = [
        fact(30, "deployments.apps", "web", "ann", operation="Create"),
        fact(31, of, "scale-web", "eva", operation="Create", target="deployment/web"),
        fact(32, of, "other", "bob", operation="Create", target="deployment/api"),
        fact(33, "deployments.apps", "web", CONTROLLER, "metadata.annotations"),
        fact(34, "deployments.apps", "web", scaler, "spec.replicas"),
        fact(35, of, "scale-web", scaler, "status.desiredReplicas", target="deployment/web"),
        fact(36, "deployments.apps", "web", "jane", "spec.replicas"),
        fact(37, "deployments.apps", "web", scaler, "spec.replicas"),
    ]
    found = causes_of(facts)
    assert (found[34], found[37]) == (31, 36)


def test_unusual_changes_come_first() -> None:
    facts = [
        *rollout(),
        fact(17, "deployments.apps", "db", "jane", "spec.replicas"),
        fact(18, "rolebindings.rbac.authorization.k8s.io", "x", "jane", operation="Create"),
        fact(19, "secrets", "key", "bob", operation="Delete", verb="delete"),
    ]
    found = finish(ranked(facts, BEFORE, finish(found_causes(facts))))
    assert [each.revision for _, _, each in found[:4]] == [19, 18, 10, 17]
    assert found[0][1] == ["deletion", "first change by this user"]
    assert found[1][1] == ["first change of this kind by this user", "rights"]
    assert "image" in found[2][1]


def test_one_change_is_the_first_of_a_user() -> None:
    facts = [
        fact(18, "secrets", "key", "bob", operation="Delete", verb="delete"),
        fact(19, "configmaps", "x", "bob", "data.a"),
        fact(20, "configmaps", "x", "jane", "data.a"),
        fact(21, "configmaps", "y", "jane", "data.a"),
    ]
    found = {each.revision: reasons for _, reasons, each in finish(ranked(facts, BEFORE, {}))}
    assert [found[number][-1] for number in (18, 19, 20, 21)] == [
        "first change by this user",
        "new user",
        "first change of this kind by this user",
        "new kind for this user",
    ]


def test_heartbeats_are_left_out() -> None:
    document = finish(incident_document(rollout(), BEFORE))
    assert document["heartbeats"] == 1
    assert len(document["changes"]) == 6
    assert document["changes"][0]["request"] == {"verb": "patch"}
    assert [change["because"] for change in document["changes"] if "because" in change].count("10") == 3


def test_the_ranking_of_many_changes_pauses() -> None:
    """No step is about more than one change, so that requests of others need not wait for 2,000 of them."""
    many = [fact(number, "configmaps", f"m{number}", "jane", "data.color") for number in range(100, 2100)]
    steps, longest, finished = incident_document(many, BEFORE), 0.0, False
    while not finished:
        began = time.thread_time()
        try:
            next(steps)
        except StopIteration:
            finished = True
        longest = max(longest, time.thread_time() - began)
    assert longest < 0.02
