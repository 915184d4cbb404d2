"""The stored form of an object.

Invariant: ``apiVersion``, ``kind`` and ``metadata`` come first, in this order, and ``metadata`` has no
resourceVersion. The log assigns the revision; sealing the entry (eventlog/entries.py) adds it to metadata.

    {"apiVersion":"v1","kind":"Pod","metadata":{"name":"a",…,"managedFields":[…]},…}      Kubernetes' order
    { "apiVersion":"g/v1","kind":"A","metadata":{…,"name":"a", "uid":"…"},"spec":{…}}     custom: sorted keys

The blanks of the second form tell what it is, and where resourceVersion belongs. Objects with a field that sorts before
``metadata`` have the first form, and are sorted when they are read (http/representation/present_schema.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import orjson

from kubechronicle.api.codecs import unstructured
from kubechronicle.api.meta import stored_contents

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
    metadata = {**_ALL_FIELDS, **obj["metadata"]}
    for name in METADATA_ORDER:
        if metadata[name] is _ABSENT:
            del metadata[name]
    metadata.pop("resourceVersion", None)
    return orjson.dumps({**_FIRST, **obj, "metadata": metadata})


_ABSENT: Final = object()
_ALL_FIELDS: Final = dict.fromkeys(METADATA_ORDER, _ABSENT)
_FIRST: Final = dict.fromkeys(("apiVersion", "kind", "metadata"))
"""The fields that come first; the values of an object take these places."""


def is_sortable(obj: dict[str, Any]) -> bool:
    """Return whether a custom object can be stored with sorted keys: apiVersion, kind and metadata come first then."""
    return "uid" in obj["metadata"] and all(key >= "metadata" or key in _FIRST for key in obj)


def encode_custom(obj: dict[str, Any]) -> bytes:
    """Return the stored JSON of a custom object. ``obj`` is not changed."""
    if not is_sortable(obj):
        return encode_stored(obj)
    given = obj["metadata"]
    metadata = {key: value for key, value in given.items() if key not in ("resourceVersion", "uid")}
    if entries := metadata.get("managedFields"):
        metadata["managedFields"] = stored_contents.as_written(entries)
    text = orjson.dumps(metadata, option=orjson.OPT_SORT_KEYS)
    sealable = orjson.Fragment(b'%b, "uid":%b}' % (text[:-1], orjson.dumps(given["uid"])))
    return b"{ %b" % unstructured.encode({**stored_contents.with_texts(obj), "metadata": sealable})[1:]


def copy_object(value: Any) -> Any:
    """Return a deep copy of decoded JSON; many times cheaper than copy.deepcopy. Texts and numbers are shared."""
    if value.__class__ not in _CONTAINERS:
        return value
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError):  # it knows no lone surrogates, and no numbers that print as they were written
        return _copy(value)


def _copy(value: Any) -> Any:
    if value.__class__ is dict:
        return {key: _copy(item) if item.__class__ in _CONTAINERS else item for key, item in value.items()}
    return [_copy(item) if item.__class__ in _CONTAINERS else item for item in value]


_CONTAINERS: Final = frozenset((dict, list))


def size_of(value: Any) -> int:
    """Return the bytes of a value as JSON, about."""
    try:
        return len(orjson.dumps(value))
    except TypeError:  # an integer beyond 64 bits, or a lone surrogate
        return len(repr(value))


def repeatedly(value: Any) -> Callable[[], Any]:
    """Return a function that returns ``value`` as it is now at each call; callers may change their results.

    The first call, mostly the only one, returns ``value`` itself. Later calls decode its bytes, which is several times
    cheaper than a copy.
    """
    whole = [value]
    try:
        kept = orjson.dumps(value)
    except TypeError:  # an integer beyond 64 bits, or a lone surrogate
        copy = copy_object(value)
        return lambda: whole.pop() if whole else copy_object(copy)
    return lambda: whole.pop() if whole else orjson.loads(kept)
