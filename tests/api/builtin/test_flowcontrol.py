"""Validation of PriorityLevelConfigurations."""

from __future__ import annotations

from pipeline_writes import create, rejections_of, update


def test_mandatory_levels_have_fixed_specs() -> None:
    path = "flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"
    spec = {"type": "Limited", "limited": {"nominalConcurrencyShares": 7, "limitResponse": {"type": "Reject"}}}
    (found,) = rejections_of(path, {"spec": spec}, name="catch-all")
    assert found.endswith("spec of 'catch-all' must equal the fixed value")
    exempt = create(path, {"spec": {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 3}}}, "exempt")
    assert exempt["spec"]["exempt"]["nominalConcurrencyShares"] == 3
    twice = {"conditions": [{"type": "A", "status": "True"}, {"type": "A", "status": "True"}]}
    body = {"spec": spec}
    assert rejections_of(path, body, {"status": twice}, below="status") == [
        'status.conditions[1].type: Duplicate value: "A"'
    ]


def test_an_update_of_the_status_keeps_all_metadata() -> None:
    path = "flowcontrol.apiserver.k8s.io/v1/flowschemas"
    stored = create(path, {"spec": {"priorityLevelConfiguration": {"name": "p"}}})
    change = {"metadata": {"deletionGracePeriodSeconds": 30, "labels": {"a": "b"}}, "status": {"conditions": []}}
    after = update(path, stored, change, "status").object["metadata"]
    assert "labels" not in after
    assert "deletionGracePeriodSeconds" not in after
