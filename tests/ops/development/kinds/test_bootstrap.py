"""The file of the objects that a kube-apiserver makes at its first start."""

from __future__ import annotations

import json

from kubechronicle.api.kinds import bootstrap as reading
from kubechronicle.ops.development.kinds import bootstrap


def role(name: str, *rules: dict[str, object]) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "n"}, "rules": list(rules)}


GET, ALL = {"verbs": ["get"], "apiGroups": ["g"]}, {"verbs": ["*"], "apiGroups": ["g"]}


def test_objects_are_sorted_and_each_rule_has_a_line() -> None:
    schemas = [{"metadata": {"name": name}, "spec": {"x": 1}, "status": {}} for name in ("z", "a")]
    text = bootstrap.text({"roles": [role("r", GET, ALL)], "flowschemas": schemas}, {})
    assert '\n    {"verbs": ["get"], "apiGroups": ["g"]},\n    {"verbs": ["*"], "apiGroups": ["g"]}]}' in text
    assert json.loads(text)["flowschemas"] == [{"metadata": {"name": name}, "spec": {"x": 1}} for name in ("a", "z")]


def test_what_a_gate_adds_carries_its_name() -> None:
    paths, fewer = ({"verbs": ["get"], "nonResourceURLs": each} for each in (["/a", "/b"], ["/b"]))
    everything = [role("a", GET, ALL), role("b", paths), role("c", GET)]
    without = {
        "Rule": [role("a", GET), role("b", paths), role("c", GET)],
        "Path": [role("a", GET, ALL), role("b", fewer), role("c", GET)],
        "Role": [role("a", GET), role("b", paths)],
    }
    text = bootstrap.text({"roles": everything}, {gate: {"roles": found} for gate, found in without.items()})
    a, b, c = json.loads(text)["roles"]
    assert a["rules"] == [GET, {"if": ["Role", "Rule"], **ALL}]
    assert b["rules"] == [{**paths, "items if": {"/a": ["Path"]}}]
    assert c["if"] == ["Role"]


def test_roles_of_both_minors_are_there() -> None:
    for minor in ("1.36", "1.37"):
        for enabled in (lambda gate: True, lambda gate: False):
            roles = {each["metadata"]["name"]: each for each in reading.objects("clusterroles", enabled, minor)}
            assert roles["cluster-admin"]["rules"][0] == {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
            bindings = reading.objects("clusterrolebindings", enabled, minor)
            assert {each["roleRef"]["name"] for each in bindings} <= roles.keys()
    assert "GenericWorkload" in reading.gates()
