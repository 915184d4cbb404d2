"""Limits on objects that would change the answers to other sequences, which run at the same time."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

from kubechronicle.ops.development.differential.catalogue import Resource

DEFAULT_CLASSES = ("storageclass.kubernetes.io/is-default-class", "ingressclass.kubernetes.io/is-default-class")


# Kinds that are created by dry runs only: a stored one would give addresses to other sequences' Services.
DRY_RUN_ONLY = frozenset({"ServiceCIDR"})
CLUSTER_IP = re.compile(r"10\.96\.(\d{1,3})\.(\d{1,3})(?![\d/.])")
NODE_PORT = re.compile(r'("(?:nodePort|healthCheckNodePort)": )(3[0-2]\d{3})\b')


def own_addresses(rng: Random, body: dict[str, Any]) -> dict[str, Any]:
    """Move the cluster IPs and node ports of a seed, so that no two sequences at the same time take the same ones.

    10.96.0.1, which the Service `kubernetes` has, stays.
    """
    net, shift = rng.randrange(250), rng.randrange(2700)

    def address(match: re.Match[str]) -> str:
        if match[0] == "10.96.0.1":
            return match[0]
        return f"10.96.{(int(match[1]) + net) % 250 + 1}.{match[2]}"

    def port(match: re.Match[str]) -> str:
        return f"{match[1]}{30000 + (int(match[2]) - 30000 + shift) % 2768}"

    moved: dict[str, Any] = json.loads(NODE_PORT.sub(port, CLUSTER_IP.sub(address, json.dumps(body))))
    return moved


def guard(resource: Resource, body: Any) -> None:
    """Take out of a body everything with an effect beyond its own sequence."""
    if not isinstance(body, dict):
        return
    if resource.kind == "PriorityClass" and body.get("globalDefault") is True:
        body["globalDefault"] = False
    annotations = (body.get("metadata") or {}).get("annotations") if isinstance(body.get("metadata"), dict) else None
    if isinstance(annotations, dict):
        for name in DEFAULT_CLASSES:
            annotations.pop(name, None)
            annotations.pop(name.replace("storageclass.", "storageclass.beta."), None)
    if not resource.namespaced and isinstance(body.get("metadata"), dict):
        metadata = body["metadata"]
        # A name without the sequence's suffix would meet the objects of others.
        name = metadata.get("name")
        if isinstance(name, str) and name and "$" not in name and resource.kind != "IPAddress":
            metadata["name"] = f"{name}$ID" if len(name) < 60 else name
