"""The stored form of an object.

Invariant: ``apiVersion``, ``kind`` and ``metadata`` come first, in this order, and ``metadata`` has no
resourceVersion. The log assigns the revision; sealing the entry puts it in front of the other fields of metadata, which
follow in Kubernetes' order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson

METADATA_ORDER: Final = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
)


def encode_stored(obj: dict[str, Any]) -> bytes:
    """Return the stored JSON of an object. ``obj`` is not changed."""
    given = obj["metadata"]
    metadata = {key: given[key] for key in METADATA_ORDER if key in given}
    for key, value in given.items():
        if key not in metadata and key != "resourceVersion":
            metadata[key] = value
    ordered = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata}
    for key, value in obj.items():
        if key not in ordered:
            ordered[key] = value
    return orjson.dumps(ordered)


def copy_object(value: Any) -> Any:
    """Return a deep copy of decoded JSON; several times cheaper than copy.deepcopy."""
    if value.__class__ is dict:
        return {key: copy_object(item) if item.__class__ in _CONTAINERS else item for key, item in value.items()}
    if value.__class__ is list:
        return [copy_object(item) if item.__class__ in _CONTAINERS else item for item in value]
    return value


_CONTAINERS: Final = frozenset((dict, list))


def repeatedly(value: Any) -> Callable[[], Any]:
    """Return a function that returns ``value`` as it is now at each call; callers may change their results.

    The first call, mostly the only one, returns ``value`` itself. Later calls decode its bytes, which is several times
    cheaper than a copy.
    """
    kept = orjson.dumps(value)
    whole = [value]
    return lambda: whole.pop() if whole else orjson.loads(kept)
