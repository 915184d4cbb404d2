"""Conversion between the versions a resource is served in: a registry of pure functions.

Lives here: which conversions there are. Their rules stand in builtin/conversions.py. An object whose version is the
wanted one is returned as it is; otherwise the converter's result shares nothing that matters with what it was given.

Invariant: converting there and back gives the same object, with what one version cannot say kept in annotations.
"""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def convert(obj: Object, api_version: str) -> Object:
    """Return the object in another version of its kind. LookupError if there is no such conversion."""
    current = obj["apiVersion"]
    if current == api_version:
        return obj
    from kubechronicle.api.builtin.conversions import CONVERTERS

    converter = CONVERTERS.get((obj["kind"], current, api_version))
    if converter is None:
        raise LookupError(f"{obj['kind']} cannot be converted from {current} to {api_version}")
    return converter(obj)
