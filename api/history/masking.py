"""Masks of the values of Secrets, wherever people read history: stars, with a token that tells equal from different.

    data.password: *** (1f0c2a9e) → *** (77ab3d10)

A token is a keyed digest of the value. The reader sends the key with its requests, so that one value has one token in
all answers of one run, and another one in the next run. Nobody can compare tokens with guessed values later: the key is
shown nowhere. Without a key in the request, each answer has a random one.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kubechronicle.api.history.secret_values import FIELDS, LAST_APPLIED, RESOURCE
from kubechronicle.api.values.objects import Object

if TYPE_CHECKING:
    from kubechronicle.api.history.revisions import RevisionChange

TOKEN_LENGTH: Final = 8
LONGEST_KEY: Final = 128


def masked_change(change: RevisionChange, key: bytes) -> RevisionChange:
    """Return a change of a Secret without its values, any other change as it is."""
    if change.resource != RESOURCE:
        return change
    before, after, last = (
        masked_secret(each, key) if each is not None else None for each in (change.before, change.after, change.last)
    )
    return replace(change, before=before, after=after, last=last)


def masked_secret(secret: Mapping[str, Any], key: bytes) -> Object:
    """Return a Secret with masks instead of its values."""
    found: Object = dict(secret)
    for field in FIELDS:
        if isinstance(values := found.get(field), dict):
            found[field] = {name: _mask(value, field, name, key) for name, value in values.items()}
    metadata = found.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if isinstance(metadata, dict) and isinstance(annotations, dict) and LAST_APPLIED in annotations:
        mask = _mask(annotations[LAST_APPLIED], "annotations", LAST_APPLIED, key)
        found["metadata"] = {**metadata, "annotations": {**annotations, LAST_APPLIED: mask}}
    return found


def _mask(value: Any, field: str, name: str, key: bytes) -> str:
    digest = hmac.new(key, f"{field}/{name}/{value}".encode(errors="surrogatepass"), hashlib.sha256)
    return f"*** ({digest.hexdigest()[:TOKEN_LENGTH]})"
