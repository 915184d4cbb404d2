"""Validation of the apps group."""

from __future__ import annotations

from typing import Any

import pytest
from pipeline_writes import create, update
from rejections import causes_of_change, rejection_causes

from kubechronicle.api.errors.status import StatusError

CONTAINER = {"name": "c", "image": "i"}


TEMPLATE: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}}


WORKLOAD: dict[str, Any] = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}


@pytest.mark.parametrize(
    ("path", "change", "field", "message"),
    [
        (
            "apps/v1/deployments",
            {"spec": {"selector": {"matchLabels": {"app": "b"}}}},
            "spec.template.metadata.labels",
            'Invalid value: {"app":"a"}: `selector` does not match template `labels`',
        ),
        ("apps/v1/deployments", {"spec": {"replicas": -1}}, "spec.replicas", "Invalid value: -1: must be greater than"),
        (
            "apps/v1/deployments",
            {"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}}},
            "spec.strategy.rollingUpdate.maxUnavailable",
            'Invalid value: "0%": may not be 0 when `maxSurge` is 0',
        ),
        (
            "apps/v1/daemonsets",
            {"spec": {"updateStrategy": {"type": "Now"}}},
            "spec.updateStrategy",
            'Unsupported value: {"Type":"Now","RollingUpdate":null}: supported values: "RollingUpdate", "OnDelete"',
        ),
        (
            "apps/v1/statefulsets",
            {"spec": {"podManagementPolicy": "X"}},
            "spec.podManagementPolicy",
            "Invalid value: \"X\": must be 'OrderedReady' or 'Parallel'",
        ),
    ],
)
def test_one_invalid_field(path: str, change: dict[str, Any], field: str, message: str) -> None:
    found = causes_of_change(path, change)
    assert [name for name, _ in found] == [field]
    assert found[0][1].startswith(message)


NOT_A_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


@pytest.mark.parametrize(
    ("path", "spec", "causes"),
    [
        (
            "apps/v1/statefulsets",
            {**WORKLOAD, "podManagementPolicy": "X", "ordinals": {"start": -1}},
            [
                ("podManagementPolicy", "Invalid value: \"X\": must be 'OrderedReady' or 'Parallel'"),
                ("ordinals.start", "Invalid value: -1: must be greater than or equal to 0"),
            ],
        ),
        ("apps/v1/statefulsets", {**WORKLOAD, "revisionHistoryLimit": -1}, []),
        (
            "apps/v1/daemonsets",
            {
                **WORKLOAD,
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 0}},
            },
            [("updateStrategy.rollingUpdate.maxUnavailable", "Required value: cannot be 0 when maxSurge is 0")],
        ),
        (
            "apps/v1/replicasets",
            {**WORKLOAD, "replicas": -1},
            [("replicas", "Invalid value: -1: must be greater than or equal to 0")],
        ),
        (
            "apps/v1/statefulsets",
            {
                **WORKLOAD,
                "template": {**TEMPLATE, "spec": {"containers": []}},
                "serviceName": "A",
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["X"]}}],
            },
            [
                (
                    "volumeClaimTemplates[0].spec.accessModes",
                    'Unsupported value: "X": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", '
                    '"ReadWriteOncePod"',
                ),
                ("volumeClaimTemplates[0].spec.resources[storage]", "Required value"),
                ("serviceName", f'Invalid value: "A": {NOT_A_LABEL}'),
                ("template.spec.containers", "Required value"),
            ],
        ),
    ],
)
def test_messages_of_creations(path: str, spec: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    assert rejection_causes(path, {"spec": spec}) == [(f"spec.{field}", message) for field, message in causes]


@pytest.mark.parametrize(
    ("path", "before", "after", "causes"),
    [
        (
            "apps/v1/deployments",
            {"spec": WORKLOAD},
            {
                "spec": {
                    **WORKLOAD,
                    "selector": {"matchLabels": {"a": "c"}},
                    "template": {**TEMPLATE, "metadata": {"labels": {"a": "c"}}},
                }
            },
            [("spec.selector", 'Invalid value: {"matchLabels":{"a":"c"}}: field is immutable')],
        ),
        ("apps/v1/statefulsets", {"spec": WORKLOAD}, {"spec": {**WORKLOAD, "replicas": 2}}, []),
        (
            "apps/v1/statefulsets",
            {"spec": WORKLOAD},
            {"spec": {**WORKLOAD, "serviceName": "x"}},
            [("spec.serviceName", 'Invalid value: "x": field is immutable')],
        ),
        (
            "apps/v1/replicasets",
            {"spec": WORKLOAD},
            {"spec": {**WORKLOAD, "replicas": -1}},
            [("spec.replicas", "Invalid value: -1: must be greater than or equal to 0")],
        ),
        (
            "apps/v1/controllerrevisions",
            {"revision": 1, "data": {"a": 1}},
            {"revision": 1, "data": {"a": 2}},
            [("data", 'Invalid value: {"a":2}: field is immutable')],
        ),
    ],
)
def test_messages_of_updates(
    path: str, before: dict[str, Any], after: dict[str, Any], causes: list[tuple[str, str]]
) -> None:
    assert rejection_causes(path, before, after) == causes


MOUNTS = {**CONTAINER, "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


def test_a_stateful_set_may_mount_its_claims_but_no_other_volume() -> None:
    spec = {**WORKLOAD, "template": {**TEMPLATE, "spec": {"containers": [MOUNTS], "hostname": "Not.A.Label"}}}
    assert rejection_causes("apps/v1/statefulsets", {"spec": {**spec, "volumeClaimTemplates": [CLAIM]}}) == []
    assert ("spec.template.spec.containers[0].volumeMounts[0].name", 'Not found: "data"') in rejection_causes(
        "apps/v1/statefulsets", {"spec": spec}
    )


def test_an_update_of_a_stateful_set_checks_its_template() -> None:
    causes = rejection_causes(
        "apps/v1/statefulsets",
        {"spec": WORKLOAD},
        {"spec": {**WORKLOAD, "template": {**TEMPLATE, "spec": {"containers": [{"name": "c"}]}}}},
    )
    assert causes == [("spec.template.spec.containers[0].image", "Required value")]


SELECTOR_VALUE = "a valid label must be an empty string or consist of alphanumeric characters"


@pytest.mark.parametrize(
    ("path", "last"),
    [
        ("apps/v1/deployments", 'Invalid value: {"matchLabels":{"a":"-"}}: invalid label selector'),
        ("apps/v1/replicasets", 'Invalid value: {"matchLabels":{"a":"-"}}: invalid label selector'),
        ("apps/v1/statefulsets", 'Invalid value: {"matchLabels":{"a":"-"}}'),
        ("apps/v1/daemonsets", None),
    ],
)
def test_labels_are_not_compared_with_a_selector_that_cannot_be_parsed(path: str, last: str | None) -> None:
    causes = rejection_causes(path, {"spec": {**WORKLOAD, "selector": {"matchLabels": {"a": "-"}}}})
    assert causes[0][0] == "spec.selector.matchLabels"
    assert SELECTOR_VALUE in causes[0][1]
    assert causes[1:] == ([("spec.selector", last)] if last else [])


def test_the_strategy_of_a_deployment_is_shown_as_kubernetes_prints_it() -> None:
    strategy = {"type": "Now", "rollingUpdate": {"maxSurge": "25%"}}
    assert rejection_causes("apps/v1/deployments", {"spec": {**WORKLOAD, "strategy": strategy}}) == [
        (
            "spec.strategy",
            'Unsupported value: {"Type":"Now","RollingUpdate":{"MaxUnavailable":0,"MaxSurge":"25%"}}: '
            'supported values: "Recreate", "RollingUpdate"',
        )
    ]


@pytest.mark.parametrize(
    ("text", "problem"), [("1x", "invalid syntax"), ("", "invalid syntax"), (str(2**63), "value out of range")]
)
def test_the_template_generation_of_a_daemon_set_is_a_number(text: str, problem: str) -> None:
    metadata = {"name": "a", "annotations": {"deprecated.daemonset.template.generation": text}}
    with pytest.raises(StatusError) as rejected:
        create("apps/v1/daemonsets", {"metadata": metadata, "spec": WORKLOAD})
    assert rejected.value.code == 400
    assert rejected.value.message.endswith(f'strconv.ParseInt: parsing "{text}": {problem}')


def test_negative_counts_of_a_stateful_set_are_rejected() -> None:
    causes = rejection_causes(
        "apps/v1/statefulsets", {"spec": WORKLOAD}, {"spec": WORKLOAD, "status": {"replicas": -1}}, "status"
    )
    assert [field for field, _ in causes] == [
        "status.replicas",
        *(f"status.{name}" for name in ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")),
    ]


def test_terminating_replicas_of_a_replica_set_are_checked() -> None:
    body = {"spec": WORKLOAD, "status": {"replicas": 0, "terminatingReplicas": -1}}
    assert rejection_causes("apps/v1/replicasets", {"spec": WORKLOAD}, body, "status") == [
        ("status.terminatingReplicas", "Invalid value: -1: must be greater than or equal to 0")
    ]


def test_claim_templates_have_one_kind() -> None:
    claim = {**CLAIM, "apiVersion": "v2", "kind": "Claim"}
    stored = create("apps/v1/statefulsets", {"spec": {**WORKLOAD, "volumeClaimTemplates": [claim]}})
    (held,) = stored["spec"]["volumeClaimTemplates"]
    assert (held["apiVersion"], held["kind"]) == ("v1", "PersistentVolumeClaim")


@pytest.mark.parametrize(("given", "kept"), [("+05", "5"), ("-7", "1"), ("0", "1")])
def test_the_template_generation_of_a_daemon_set_is_kept_as_a_number(given: str, kept: str) -> None:
    metadata = {"name": "one", "annotations": {"deprecated.daemonset.template.generation": given}}
    stored = create("apps/v1/daemonsets", {"metadata": metadata, "spec": WORKLOAD})
    assert stored["metadata"]["annotations"] == {"deprecated.daemonset.template.generation": kept}
    changed = update("apps/v1/daemonsets", stored, {"metadata": {"annotations": {}}}, "status").object
    assert changed["metadata"]["annotations"] == {"deprecated.daemonset.template.generation": kept}


def test_a_rolling_update_of_a_daemon_set_always_has_both_values() -> None:
    strategy = {"type": "OnDelete", "rollingUpdate": {"maxUnavailable": "10%"}}
    stored = create("apps/v1/daemonsets", {"spec": {**WORKLOAD, "updateStrategy": strategy}})
    assert stored["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": "10%", "maxSurge": 0}


def test_changed_claim_templates_are_printed_as_kubernetes_holds_them() -> None:
    old = {"spec": {**WORKLOAD, "volumeClaimTemplates": [CLAIM]}}
    new = {"spec": {**WORKLOAD, "volumeClaimTemplates": [{**CLAIM, "metadata": {"name": "other"}}]}}
    (cause,) = [found for found in rejection_causes("apps/v1/statefulsets", old, new) if "Templates" in found[0]]
    assert cause[1].startswith(
        'Invalid value: [{"name":"other","Spec":{"AccessModes":["ReadWriteOnce"],"Selector":null,'
    )
    assert '"Status":{"Phase":"Pending"' in cause[1]


def test_pods_are_replaced_one_at_a_time_in_a_rolling_update_only() -> None:
    def strategy(given: dict[str, Any]) -> dict[str, Any]:
        spec = {**WORKLOAD, "updateStrategy": given}
        made: dict[str, Any] = create("apps/v1/statefulsets", {"spec": spec})["spec"]["updateStrategy"]
        return made

    assert strategy({}) == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0, "maxUnavailable": 1}}
    assert strategy({"type": "OnDelete"}) == {"type": "OnDelete"}
