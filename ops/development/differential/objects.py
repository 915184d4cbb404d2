"""Names of objects, the reference's objects as both servers understand them, and options of deletions."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from kubechronicle.ops.development.differential.catalogue import Resource


def name_for(rng: Random, resource: Resource) -> str:
    """Return a valid name; those of cluster-scoped objects belong to the sequence alone."""
    if resource.kind == "IPAddress":
        return f"192.168.{rng.randrange(256)}.{rng.randrange(1, 255)}"
    if resource.kind == "CSIDriver":
        return "d-$ID.example.com"
    return rng.choice(["a", "web", "x-1"]) if resource.namespaced else "n-$ID"


def portable(document: dict[str, Any]) -> dict[str, Any]:
    """Turn the reference's object into one that both servers understand."""
    copied = json.loads(json.dumps(document))
    metadata = copied.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
        for key, value in (("resourceVersion", "${rv}"), ("uid", "${uid}"), ("name", "${name}")):
            if key in metadata:
                metadata[key] = value
        metadata.pop("creationTimestamp", None)
        metadata.pop("deletionTimestamp", None)
    return dict(without_clock(copied))


def without_clock(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: without_clock(value) for key, value in node.items() if value != "<time>"}
    return [without_clock(value) for value in node] if isinstance(node, list) else node


def delete_options(rng: Random) -> dict[str, Any]:
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    choices: dict[str, tuple[Any, ...]] = {
        "preconditions": (
            {"resourceVersion": "${rv}"},
            {"uid": "${uid}"},
            {"uid": "x"},
            {"resourceVersion": "1"},
            {},
            None,
        ),
        "gracePeriodSeconds": (0, 5, -1, "x", None),
        "propagationPolicy": ("Orphan", "Foreground", "Background", "x", ""),
        "orphanDependents": (True, False),
        "dryRun": (["All"], ["x"], [], "All"),
        "unknown": (1,),
        "kind": ("Pod", "", "DeleteOptions"),
        "apiVersion": ("policy/v1", "", "v2", "meta.k8s.io/v1"),
        "ignoreStoreReadErrorWithClusterBreakingPotential": (True, False),
    }
    for key in rng.sample(list(choices), rng.choice([0, 1, 1, 2])):
        options[key] = rng.choice(choices[key])
    return options
