"""Large definitions, of the size and features of those that large projects register.

Their schemas are made here: the real ones contain the types of Pods in full, which are taken from the server's own
OpenAPI document, as controller-tools does from the Go types.

    clusters    Prometheus operator, Argo Workflows: pod templates several times, 100 KB to 1 MB
    routes      Gateway API: many CEL rules, list maps, patterns, enums
    claims      Crossplane: preserved unknown fields, wide spec and status, many columns
    issuers     cert-manager: unions of many members, two served versions
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEPTH = 12  # of schemas within each other; deeper ones preserve unknown fields


def structural(schemas: Mapping[str, Any], schema: Any, depth: int = 0) -> dict[str, Any]:
    """Return the structural schema of a type of the OpenAPI v3 document, with its references replaced."""
    while True:
        reference = schema.get("$ref") or next((part.get("$ref") for part in schema.get("allOf", ())), None)
        if reference is None:
            break
        schema = {**schemas[reference.rsplit("/", 1)[1]], **{k: v for k, v in schema.items() if k == "description"}}
    if schema.get("format") == "int-or-string" or "oneOf" in schema:
        return {"x-kubernetes-int-or-string": True, "description": schema.get("description", "")}
    if depth > DEPTH:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    kept = ("type", "format", "description", "required", "x-kubernetes-list-type", "x-kubernetes-list-map-keys")
    made = {key: schema[key] for key in kept if key in schema}
    if "properties" in schema:
        made["type"] = "object"
        made["properties"] = {
            name: structural(schemas, field, depth + 1) for name, field in schema["properties"].items()
        }
    elif "items" in schema:
        made["items"] = structural(schemas, schema["items"], depth + 1)
    elif isinstance(schema.get("additionalProperties"), Mapping):
        made["additionalProperties"] = structural(schemas, schema["additionalProperties"], depth + 1)
    for key in made.get("x-kubernetes-list-map-keys", ()):  # a key needs a default or must be required
        field = made["items"]["properties"][key]
        if key not in made["items"].get("required", ()):
            if key == "protocol":
                field["default"] = "TCP"
            else:
                made["items"].setdefault("required", []).append(key)
    return made


def definition(plural: str, spec: Any, *versions: str, columns: int = 3) -> dict[str, Any]:
    """Return the definition of a namespaced resource with this schema of its spec, the same in all versions."""
    singular = plural.removesuffix("s")
    kind = singular.capitalize()
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "required": ["spec"], "properties": {"spec": spec, "status": status}}
    names = {"plural": plural, "singular": singular, "kind": kind, "listKind": f"{kind}List"}
    path = '.status.conditions[?(@.type=="C{}")].status'
    printed = [{"name": f"C{n}", "type": "string", "jsonPath": path.format(n)} for n in range(columns)]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.large.example.com"},
        "spec": {
            "group": "large.example.com",
            "scope": "Namespaced",
            "names": names,
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == versions[-1],
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                    "additionalPrinterColumns": printed,
                }
                for version in versions
            ],
        },
    }


def clusters(pod_spec: Any, templates: int) -> dict[str, Any]:
    fields = {f"template{n}": {"type": "object", "properties": {"spec": pod_spec}} for n in range(templates)}
    return {"type": "object", "properties": {"replicas": {"type": "integer", "default": 1}, **fields}}


def routes() -> dict[str, Any]:
    """Return rules of matches and filters, with CEL rules on each."""
    name = {"type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
    match = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "maxLength": 1024, "default": "/"},
            "method": {"type": "string", "enum": ["GET", "HEAD", "POST", "PUT", "DELETE"]},
            "headers": {
                "type": "array",
                "maxItems": 16,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": name, "value": {"type": "string", "maxLength": 4096}},
                },
            },
        },
        "x-kubernetes-validations": [
            {"rule": "!self.path.contains('//')", "message": "no // in a path"},
            {"rule": "self.path.startsWith('/')", "message": "a path begins with /"},
        ],
    }
    kinds = ("Redirect", "Rewrite", "Mirror", "Header", "Timeout", "Retry")
    one = {
        "type": "object",
        "required": ["type"],
        "properties": {
            "type": {"type": "string", "enum": list(kinds)},
            **{kind.lower(): {"type": "object", "properties": {"to": name}} for kind in kinds},
        },
        "x-kubernetes-validations": [
            {"rule": f"!has(self.{kind.lower()}) || self.type == '{kind}'", "message": f"{kind.lower()} needs its type"}
            for kind in kinds
        ],
    }
    rule = {
        "type": "object",
        "properties": {
            "matches": {"type": "array", "maxItems": 8, "items": match},
            "filters": {"type": "array", "maxItems": 16, "items": one},
            "name": name,
        },
    }
    return {"type": "object", "properties": {"rules": {"type": "array", "maxItems": 16, "items": rule}}}


def issuers(members: int) -> dict[str, Any]:
    """Return a wide union, with references to Secrets everywhere."""
    reference = {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "description": "Name of the Secret. " * 8},
            "key": {"type": "string"},
        },
    }
    member = {"type": "object", "properties": {f"ref{n}": reference for n in range(12)}}
    return {"type": "object", "properties": {f"solver{n}": member for n in range(members)}}


def claims(groups: int) -> dict[str, Any]:
    """Return wide objects that also preserve unknown fields, with a default in each."""
    fields = {f"field{n}": {"type": "string", "description": "A field of a provider. " * 6} for n in range(40)}
    fields["policy"] = {"type": "string", "enum": ["Delete", "Orphan"], "default": "Delete"}
    group = {"type": "object", "default": {}, "x-kubernetes-preserve-unknown-fields": True, "properties": fields}
    return {"type": "object", "properties": {f"provider{n}": group for n in range(groups)}}
