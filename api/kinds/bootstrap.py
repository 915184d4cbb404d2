"""Reads the objects that a kube-apiserver makes at its first start: bootstrap.json of each minor.

Objects, their rules, and paths of rules may need feature gates: their member ``if`` names all of them, and a rule's
``items if`` has those of single paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import orjson

from kubechronicle.api.kinds import SERVED

Object = dict[str, Any]
Enabled = Callable[[str], bool]
"""Tells whether a feature gate is on."""


def objects(resource: str, enabled: Enabled, minor: str = SERVED) -> list[Object]:
    """Return the objects of a resource such as ``clusterroles`` without apiVersion and kind. They are the caller's."""
    found = [each for each in _read(minor)[resource] if _holds(each, enabled)]
    for obj in found:
        if obj.get("rules"):
            obj["rules"] = [_without_items(rule, enabled) for rule in obj["rules"] if _holds(rule, enabled)]
    return found


def gates(minor: str = SERVED) -> frozenset[str]:
    """Return the feature gates on which some object depends."""
    found: set[str] = set()
    for listed in _read(minor).values():
        for obj in listed:
            for each in (obj, *(obj.get("rules") or ())):
                found.update(each.get("if", ()), *each.get("items if", {}).values())
    return frozenset(found)


def _read(minor: str) -> dict[str, list[Object]]:
    document: dict[str, list[Object]] = orjson.loads(
        Path(__file__).with_name(minor).joinpath("bootstrap.json").read_bytes()
    )
    return document


def _holds(part: Object, enabled: Enabled) -> bool:
    """Tell whether all gates that a part needs are on; it forgets them."""
    needs: Iterable[str] = part.pop("if", ())
    return all(map(enabled, needs))


def _without_items(rule: Object, enabled: Enabled) -> Object:
    """Remove the paths of a rule whose gates are off."""
    off = {path for path, needs in rule.pop("items if", {}).items() if not all(map(enabled, needs))}
    if off:
        rule["nonResourceURLs"] = [path for path in rule["nonResourceURLs"] if path not in off]
    return rule
