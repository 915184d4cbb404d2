"""JSON merge patch (RFC 7386)."""

from __future__ import annotations

from typing import Any

from kubechronicle.api import status


def decode(patch: Any) -> dict[str, Any]:
    """Return the patch if it is one that Kubernetes takes: an object. 400 otherwise."""
    if isinstance(patch, dict):
        return patch
    word = "array" if isinstance(patch, list) else _word(patch)
    raise status.bad_request(
        f"error decoding patch: json: cannot unmarshal {word} into Go value of type map[string]interface {{}}"
    )


def _word(patch: Any) -> str:
    if isinstance(patch, bool):
        return "bool"
    return "string" if isinstance(patch, str) else "number"


def apply(document: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return ``document`` with ``patch`` merged in (RFC 7386, section 2). The document is changed in place.

    null removes, objects are merged, everything else replaces.
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
