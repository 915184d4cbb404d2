"""The object that a test means: "deployment/web", a manifest, or an object of a client library."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from kubechronicle.ops.client.kinds import Kinds
from kubechronicle.ops.client.subjects import Subject, split_words

_MODEL_VERSION = re.compile(r"V\d+((alpha|beta)\d+)?(?=[A-Z])")
"""The version before the kind in a class of the `kubernetes` client: V1ConfigMap."""


class Named(NamedTuple):
    """``kind``: as kubectl takes it, with the group if it is known."""

    kind: str
    name: str
    namespace: str

    def subject(self, kinds: Kinds) -> Subject:
        """Return the object as the client knows it. OperatorError: the server has no such kind."""
        kind = kinds.find(self.kind)
        return Subject(kind, self.namespace if kind.namespaced else "", self.name)


def named(obj: Any, namespace: str) -> Named:
    """Return the name of an object. ``namespace``: of one that names none. OperatorError, TypeError."""
    if isinstance(obj, str):
        kind, name = split_words([obj])
        return Named(kind, name, namespace)
    raw = getattr(obj, "raw", None)  # kr8s
    if isinstance(obj if raw is None else raw, Mapping):
        return _of_manifest(obj if raw is None else raw, namespace)
    metadata = getattr(obj, "metadata", None)
    if metadata is None or not getattr(metadata, "name", None):
        raise TypeError(f"{obj!r} is no object: name it as in 'deployment/web'")
    kind = getattr(obj, "kind", None) or _MODEL_VERSION.sub("", type(obj).__name__)
    version = getattr(obj, "api_version", None) or getattr(obj, "apiVersion", None) or ""
    return Named(_with_group(kind, version), metadata.name, getattr(metadata, "namespace", None) or namespace)


def _of_manifest(manifest: Mapping[str, Any], namespace: str) -> Named:
    metadata = manifest.get("metadata") or {}
    kind = _with_group(str(manifest.get("kind", "")), str(manifest.get("apiVersion", "")))
    return Named(kind, str(metadata.get("name", "")), str(metadata.get("namespace") or namespace))


def _with_group(kind: str, api_version: str) -> str:
    group, slash, _ = api_version.partition("/")
    return f"{kind}.{group}" if slash else kind
