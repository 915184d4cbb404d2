"""Limits on objects that would change the answers to other sequences, which run at the same time."""

from __future__ import annotations

from typing import Any

from kubechronicle.ops.development.differential.catalogue import Resource

DEFAULT_CLASSES = ("storageclass.kubernetes.io/is-default-class", "ingressclass.kubernetes.io/is-default-class")


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
