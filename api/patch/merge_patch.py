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


def rejected() -> status.StatusError:
    """Return the 400 of Kubernetes' library, which names no reason."""
    return status.bad_request("Invalid JSON Patch")


def apply(document: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return ``document`` with ``patch`` merged in (RFC 7386, section 2). The document is changed in place.

    null removes, objects are merged, all other values replace. Unlike in the RFC, a list that replaces anything but an
    object loses the null members of its objects. The members of a merged object below the document, or of one in such
    a list, are in the order of their names, since the library encodes them again.
    """
    for name, value in patch.items():
        if value is None:
            document.pop(name, None)
        elif value.__class__ is dict:
            held = document.get(name)
            document[name] = _in_order(apply(held if isinstance(held, dict) else {}, value))
        elif value.__class__ is list and document.get(name).__class__ is not dict:
            document[name] = _without_nulls(value)
        else:
            document[name] = value
    return document


def _in_order(members: dict[str, Any]) -> dict[str, Any]:
    return {name: members[name] for name in sorted(members)}


def _without_nulls(value: Any) -> Any:
    if value.__class__ is dict:
        return _in_order({name: _without_nulls(item) for name, item in value.items() if item is not None})
    if value.__class__ is list:
        return [_without_nulls(item) for item in value]
    return value
