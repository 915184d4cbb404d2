"""The custom resource of the benchmark: a schema of 60 fields with three CEL rules, and objects of 1, 4 and 20 KB.

The schema has the parts of definitions in use: nested objects, defaults, enumerations, patterns, bounds, formats, lists
that are maps, a set, a map of text, a quantity, and a status. The objects leave out some fields that have defaults. The
placeholders are those of the load generator.
"""

from __future__ import annotations

import json
from typing import Any, Final

from kubechronicle.api.values.objects import Object

GROUP: Final = "bench.example.com"
PLURAL: Final = "workloads"
COLLECTION: Final = f"/apis/{GROUP}/v1/namespaces/@namespace@/{PLURAL}"

_TEXT: Final[Object] = {"type": "string"}
_NAME: Final[Object] = {"type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
_COUNT: Final[Object] = {"type": "integer", "format": "int32", "minimum": 0}
_SWITCH: Final[Object] = {"type": "boolean"}
_QUANTITY: Final[Object] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
    "pattern": "^[0-9]+(m|Ki|Mi|Gi)?$",
}


def _object(properties: Object, *required: str, **more: Any) -> Object:
    found = {"type": "object", "properties": properties, **more}
    return found | ({"required": list(required)} if required else {})


def _list(items: Object, *keys: str, most: int = 64) -> Object:
    found: Object = {"type": "array", "items": items, "maxItems": most}
    return found | ({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)} if keys else {})


def _spec() -> Object:
    """Return the schema of spec: 45 fields and three rules."""
    port = _object(
        {
            "name": _NAME,
            "port": {"type": "integer", "minimum": 1, "maximum": 65535},
            "protocol": {"type": "string", "enum": ["TCP", "UDP", "SCTP"], "default": "TCP"},
        },
        "name",
        "port",
    )
    variable = _object({"name": {"type": "string", "maxLength": 256}, "value": _TEXT, "secret": _SWITCH}, "name")
    volume = _object(
        {"name": _NAME, "path": _TEXT, "size": _QUANTITY, "readOnly": {**_SWITCH, "default": False}}, "name"
    )
    toleration = _object({"key": _TEXT, "operator": {"type": "string", "enum": ["Exists", "Equal"]}, "value": _TEXT})
    probe = _object({"path": _TEXT, "period": {**_COUNT, "default": 10}, "timeout": {**_COUNT, "default": 1}})
    return _object(
        {
            "image": {"type": "string", "minLength": 1, "maxLength": 512},
            "tier": {"type": "string", "maxLength": 32},
            "priority": {"type": "integer", "format": "int32"},
            "description": _TEXT,
            "paused": {**_SWITCH, "default": False},
            "replicas": {**_COUNT, "default": 1},
            "minReplicas": _COUNT,
            "maxReplicas": _COUNT,
            "deadline": {"type": "string", "format": "date-time"},
            "strategy": _object(
                {"type": {"type": "string", "enum": ["Rolling", "Recreate"], "default": "Rolling"}, "surge": _QUANTITY}
            ),
            "resources": _object({"cpu": _QUANTITY, "memory": _QUANTITY}),
            "probe": probe,
            "ports": _list(port, "name"),
            "environment": _list(variable, "name"),
            "volumes": _list(volume, "name"),
            "tolerations": _list(toleration),
            "zones": {"type": "array", "items": _NAME, "maxItems": 16, "x-kubernetes-list-type": "set"},
            "selector": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 63}},
            "notes": {"type": "object", "additionalProperties": _TEXT},
            "retries": {**_COUNT, "maximum": 10, "default": 3},
            "weight": {"type": "number", "minimum": 0, "maximum": 1},
            "schedule": _object({"cron": _TEXT, "zone": {**_TEXT, "default": "UTC"}, "suspend": _SWITCH}),
        },
        "image",
        **{
            "x-kubernetes-validations": [
                {"rule": "self.minReplicas <= self.maxReplicas", "message": "minReplicas must be at most maxReplicas"},
                {"rule": "self.ports.all(p, p.port != 22 || p.protocol == 'TCP')", "message": "port 22 must use TCP"},
                {"rule": "self.tier == oldSelf.tier", "message": "tier is immutable"},
            ]
        },
    )


def _status() -> Object:
    condition = _object(
        {
            "type": _TEXT,
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": _TEXT,
            "message": _TEXT,
            "lastTransitionTime": {"type": "string", "format": "date-time"},
        },
        "type",
        "status",
    )
    return _object(
        {
            "phase": _TEXT,
            "replicas": _COUNT,
            "ready": _COUNT,
            "observedGeneration": {"type": "integer", "format": "int64"},
            "conditions": _list(condition, "type"),
        }
    )


def definition(plural: str = PLURAL, kind: str = "Workload") -> Object:
    """Return the CustomResourceDefinition."""
    schema = _object(
        {"apiVersion": _TEXT, "kind": _TEXT, "metadata": {"type": "object"}, "spec": _spec(), "status": _status()}
    )
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}],
    }
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def fields(schema: Object) -> int:
    """Count the named fields of a schema."""
    below = [*(schema.get("properties") or {}).values(), *(schema[key] for key in ("items",) if key in schema)]
    return len(schema.get("properties") or {}) + sum(fields(one) for one in below)


_TIMES: Final = {1: (1, 2), 4: (7, 14), 20: (30, 166)}
"""(a measure of the lists, number of notes) by kilobytes. A list has at most 64 items."""


def workload(kilobytes: int, *, text: str = "") -> Object:
    """Return the template of an object of 1, 4 or 20 KB. ``text``: stands in hundreds of its values."""
    times, notes = _TIMES[kilobytes]
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Workload",
        "metadata": {"name": "@name@", "namespace": "@namespace@", "labels": {"app": "bench", "tier": "backend"}},
        "spec": {
            "image": "registry.example.com/team/service:v1.27.3",
            "tier": "backend",
            "description": "turn @count@",
            "minReplicas": 1,
            "maxReplicas": 5,
            "deadline": "2026-01-01T00:00:00Z",
            "strategy": {"surge": "2"},
            "resources": {"cpu": "500m", "memory": "512Mi"},
            "probe": {"path": "/healthz"},
            "ports": [{"name": f"port-{n}", "port": 8000 + n} for n in range(2 * times)],
            "environment": [
                {"name": f"VARIABLE_{n}", "value": f"value of variable {n:04}{text}"} for n in range(min(4 * times, 64))
            ],
            "volumes": [{"name": f"volume-{n}", "path": f"/mnt/{n}{text}", "size": "1Gi"} for n in range(times)],
            "tolerations": [{"key": f"dedicated-{n}{text}", "operator": "Exists"} for n in range(times)],
            "zones": [f"zone-{n}" for n in range(min(2 * times, 16))],
            "selector": {"app": "bench", "tier": "backend"},
            "notes": {f"note-{n}": f"some words about this workload, as people write them{text}" for n in range(notes)},
            "weight": 0.5,
            "schedule": {"cron": "0 * * * *"},
        },
    }


def template(kilobytes: int, *, update: bool = False) -> str:
    """Return the text of an object. ``update``: with a resourceVersion, without which no update is accepted."""
    obj = workload(kilobytes)
    if update:
        obj["metadata"]["resourceVersion"] = "@revision@"
    return json.dumps(obj, separators=(",", ":"))


def changing(kilobytes: int, *, label: bool) -> str:
    """Return the text of an object of which each turn changes a label only, or else hundreds of values."""
    obj = workload(kilobytes, text="" if label else ", @count@")
    obj["spec"]["description"] = "some words"
    if label:
        obj["metadata"]["labels"]["turn"] = "@count@"
    return json.dumps(obj, separators=(",", ":"))


def load_flags(kilobytes: int) -> dict[str, str]:
    """Return the flags that make the load generator use these objects instead of ConfigMaps."""
    return {
        "definition": json.dumps(definition(), separators=(",", ":")),
        "collection": COLLECTION,
        "template": template(kilobytes),
    }
