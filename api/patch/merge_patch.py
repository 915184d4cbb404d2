"""JSON merge patch (RFC 7386)."""

from __future__ import annotations

from typing import Any

from kubechronicle.api.errors import status
from kubechronicle.api.schema.values import json_word


def decode(patch: Any) -> dict[str, Any]:
    """Return the patch if it is an object. 400 otherwise, as in Kubernetes."""
    if isinstance(patch, dict):
        return patch
    go_type = "map[string]interface {}"
    raise status.bad_request(
        f"error decoding patch: json: cannot unmarshal {json_word(patch)} into Go value of type {go_type}"
    )


def apply(document: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return ``document`` with ``patch`` merged in (RFC 7386, section 2). The document is changed in place.

    null removes, objects are merged, all other values replace.
    """
    for name, value in patch.items():
        if value is None:
            document.pop(name, None)
        elif isinstance(value, dict):
            held = document.get(name)
            document[name] = apply(held if isinstance(held, dict) else {}, value)
        else:
            document[name] = value
    return document
