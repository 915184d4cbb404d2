"""Hostile definitions: each is refused or served within bounded CPU, and the server answers others afterwards."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from custom_resources import CRDS, is_true, undefine
from harness import Server, eventually

from kubechronicle.ops.development.server_process import cpu_seconds

GROUP = "hostile.example.com"
NAME = f"things.{GROUP}"
BOUND = 4.0  # seconds of CPU for a definition and an object: against surprises, the worst one takes 0.5
TEXT: dict[str, Any] = {"type": "string"}


def nested(levels: int) -> dict[str, Any]:
    schema = TEXT
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def doubled(levels: int) -> dict[str, Any]:
    """Return a schema whose defaults make two objects of each one, level by level."""
    schema: dict[str, Any] = {"type": "object", "default": {}, "properties": {"x": {"type": "string", "default": "v"}}}
    for _ in range(levels):
        schema = {"type": "object", "default": {}, "properties": {"a": schema, "b": schema}}
    return schema


def ruled(*rules: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "x-kubernetes-validations": [{"rule": rule} for rule in rules]}


LISTS = {"type": "array", "items": {"type": "array", "items": {"type": "array", "items": TEXT}}}
BOMB = "self.l.all(a, a.all(b, b.all(c, self.l.all(d, d.all(e, e.all(f, f == c))))))"
CASES = {  # schema of spec, status codes of the definition
    "properties": ({"type": "object", "properties": {f"p{n}": TEXT for n in range(10_000)}}, {201}),
    "description": ({"type": "object", "description": "d" * 2_900_000}, {201}),
    "levels": (nested(200), {400}),
    "defaults": (doubled(14), {413, 422}),
    "expression": (ruled(BOMB, l=LISTS), {422}),
    "parentheses": (ruled("(" * 200 + "self.s == 'a'" + ")" * 200, s=TEXT), {201}),
    "rules": (ruled(*(f"self.s != '{n}'" for n in range(1000)), s={"type": "string", "maxLength": 5}), {201}),
    "pattern": ({"type": "object", "properties": {"s": TEXT | {"pattern": "((a{0,1000}){0,1000}){0,1000}"}}}, {422}),
    "backtracking": ({"type": "object", "properties": {"s": TEXT | {"pattern": "^(a+)+$"}}}, {201}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_definition_costs_little(name: str, server: Server) -> None:
    schema, statuses = CASES[name]
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    whole = {"type": "object", "properties": {"spec": schema}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": whole}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {"group": GROUP, "scope": "Cluster", "names": names, "versions": [version]},
    }
    with closing(server.api()) as api:
        used = cpu_seconds(server.processes())
        status = api.request("POST", CRDS, definition).status
        assert status in statuses
        if status == 201:
            eventually(lambda: is_true(api.get(f"{CRDS}/{NAME}"), "Established"), "it is established")
            thing = {"apiVersion": f"{GROUP}/v1", "kind": "Thing", "metadata": {"name": "a"}}
            api.request("POST", f"/apis/{GROUP}/v1/things", {**thing, "spec": {"s": "a" * 60 + "b"}}).expect(201, 422)
            undefine(api, NAME)
        assert cpu_seconds(server.processes()) - used < BOUND
        assert api.request("GET", "/readyz").status == 200
