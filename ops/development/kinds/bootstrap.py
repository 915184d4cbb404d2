"""Write the objects of a first start into api/kinds/MINOR/bootstrap.json: roles, bindings, flow schemas, levels.

A Go program (bootstrap_program/) is linked with the release's modules and prints the objects that its kube-apiserver
makes with all feature gates on, and without each gate. Objects, rules and paths that a gate adds carry its name:

    {"if": ["ClusterTrustBundle"], "metadata": {"name": "system:cluster-trust-bundle-discovery"}, …}
    {"if": ["GenericWorkload"], "verbs": ["get", "list"], "apiGroups": ["scheduling.k8s.io"], …}
    {"verbs": ["get"], "nonResourceURLs": ["/flagz", "/healthz"], "items if": {"/flagz": ["ComponentFlagz"]}}

The file has a list of objects for each resource, and each rule of a role in a line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kubechronicle.ops.development.kinds import gates

Object = dict[str, Any]

PROGRAM: Final = Path(__file__).parent / "bootstrap_program"
FILE: Final = "bootstrap.json"


def objects(release: str, folder: Path) -> str:
    """Return the text of bootstrap.json of a release such as "v1.36.3". ``folder`` and errors: as of gates.py."""
    printed = json.loads(gates.run_linked(PROGRAM, release, folder))
    return text(printed["all"], printed["without"])


def text(everything: Mapping[str, list[Object]], without: Mapping[str, Mapping[str, list[Object]]]) -> str:
    """Return the file of the objects with all gates on. ``without``: gate -> the objects without it."""
    parts = []
    for resource, listed in sorted(everything.items()):
        fewer = {gate: {_key(each): each for each in found[resource]} for gate, found in sorted(without.items())}
        found = (_conditional(each, fewer) for each in sorted(listed, key=_key))
        parts.append(
            f'"{resource}": [\n' + ",\n".join("{" + ",\n  ".join(_members(each)) + "}" for each in found) + "\n]"
        )
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _key(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _conditional(obj: Object, fewer: Mapping[str, Mapping[tuple[str, str], Object]]) -> Object:
    """Return an object with the gates that it and its rules need."""
    key = _key(obj)
    needs = [gate for gate, found in fewer.items() if key not in found]
    made: Object = {"if": needs} if needs else {}
    made.update((name, value) for name, value in obj.items() if name != "status")
    if obj.get("rules"):
        others = {gate: found[key]["rules"] or [] for gate, found in fewer.items() if key in found}
        made["rules"] = [_conditional_rule(rule, others) for rule in obj["rules"]]
    return made


def _conditional_rule(rule: Object, others: Mapping[str, list[Object]]) -> Object:
    needs: list[str] = []
    items: dict[str, list[str]] = {}
    for gate, rules in others.items():
        if rule in rules:
            continue
        less = next((each for each in rules if _is_less(each, rule)), None)
        if less is None:
            needs.append(gate)
            continue
        for name, values in rule.items():
            for value in values:
                if value not in less[name]:
                    items.setdefault(value, []).append(gate)
    made: Object = {"if": needs} if needs else {}
    return {**made, **rule, **({"items if": items} if items else {})}


def _is_less(rule: Object, other: Object) -> bool:
    """Tell whether a rule is another one without some of its paths."""
    if rule.keys() != other.keys() or "nonResourceURLs" not in rule or rule["verbs"] != other["verbs"]:
        return False
    return set(rule["nonResourceURLs"]) < set(other["nonResourceURLs"])


def _members(obj: Object) -> Iterator[str]:
    for name, value in obj.items():
        if name == "rules" and value:
            yield '"rules": [\n    ' + ",\n    ".join(map(json.dumps, value)) + "]"
        else:
            yield f'"{name}": {json.dumps(value)}'
