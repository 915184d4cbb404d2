"""The bytes an object is stored as.

Invariant: ``apiVersion``, ``kind`` and ``metadata`` come first, in this order, and ``metadata`` has no
resourceVersion: the revision is known only once the log has taken the object, and is put in front of what metadata
holds when the entry is sealed. The other fields of metadata stand in the order in which Kubernetes writes them.
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
    """Return the JSON of an object as the log keeps it. ``obj`` stays as it is."""
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
    """Return a function that gives decoded JSON as it is now to each who changes what it gets: itself to the first,
    which mostly is the only one, and to others what its bytes, several times cheaper than a copy, are read as."""
    kept = orjson.dumps(value)
    whole = [value]
    return lambda: whole.pop() if whole else orjson.loads(kept)
