"""``JSONPatch{op: …, path: …, value: …}`` and ``jsonpatch.escapeKey()``, for expressions of patches (RFC 6902)."""

from __future__ import annotations

from typing import Final

from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.library import costs
from kubechronicle.api.cel.overloads import Function, Overload
from kubechronicle.api.cel.types import DYN, STRING, object_type

JSON_PATCH: Final = object_type("JSONPatch", {"op": STRING, "path": STRING, "from": STRING, "value": DYN})


def escape_key(key: str) -> str:
    """Return a key escaped for a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


LIBRARY: Final = Library(
    "kubernetes.jsonpatch",
    0,
    (
        Function(
            "jsonpatch.escapeKey",
            (Overload("string_jsonpatch_escapeKey_string", (STRING,), STRING, escape_key, cost=costs.traversal()),),
        ),
    ),
    types=(JSON_PATCH,),
)
