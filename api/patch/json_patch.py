"""JSON patch (RFC 6902) as Kubernetes' library implements it.

A missing path of ``remove`` and a failed ``test`` are errors, ``replace`` of a missing object member adds it, negative
array indices are rejected. Kubernetes answers every failed operation with the same 422 without a reason; the reasons
here are for the log.

Invariant: a patch is applied whole or not at all, on the caller's copy; the copied bytes are bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kubechronicle.api.errors import status
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.schema.values import json_word

MAX_OPERATIONS: Final = 10_000
"""Kubernetes' limit on the operations of one patch."""

MAX_COPIED: Final = 3 * 1024 * 1024
"""Bytes that ``copy`` operations may add in all, as in Kubernetes: the size limit of a request body."""


class PatchFailed(ValueError):
    """A failed operation. The text names it and the reason."""


def decode(patch: Any) -> list[dict[str, Any]]:
    """Return the operations if the patch is a list of objects (400 otherwise) of a permitted length (413)."""
    if not isinstance(patch, list):
        word = json_word(patch)
        raise status.bad_request(
            f"error decoding patch: json: cannot unmarshal {word} into Go value of type []handlers.jsonPatchOp"
        )
    for operation in patch:
        if not isinstance(operation, dict):
            word = json_word(operation)
            raise status.bad_request(
                f"error decoding patch: json: cannot unmarshal {word} into Go value of type handlers.jsonPatchOp"
            )
    if len(patch) > MAX_OPERATIONS:
        raise status.request_entity_too_large(
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(patch)}"
        )
    return patch


def rejected() -> status.StatusError:
    """Return Kubernetes' answer for a failed operation: 422 without a reason."""
    message = "the server rejected our request due to an error in our request"
    return status.StatusError(422, "Invalid", message, details={})


def apply(document: Any, operations: list[dict[str, Any]]) -> Any:
    """Return the document after all operations; it may be changed in place. Raises PatchFailed."""
    copied = 0
    for number, operation in enumerate(operations):
        name = operation.get("op")
        run = _OPERATIONS.get(name) if isinstance(name, str) else None
        if run is None:
            raise PatchFailed(f"Unexpected kind: {name}")
        try:
            document = run(document, operation)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise PatchFailed(f"operation {number} ({name} {operation.get('path')!r}): {error}") from error
        if name == "copy":
            copied += _size(_get(document, _pointer(operation, "path")))
            if copied > MAX_COPIED:
                raise PatchFailed("the accumulated size of copied values is too large")
    return document


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return 2 + sum(len(key) + _size(item) for key, item in value.items())
    if isinstance(value, list):
        return 2 + sum(map(_size, value))
    return len(value) if isinstance(value, str) else 8


def _pointer(operation: dict[str, Any], member: str) -> list[str]:
    """Return the reference tokens of a JSON pointer (RFC 6901)."""
    text = operation.get(member)
    if not isinstance(text, str):
        raise KeyError(f"no {member}")
    if text == "":
        return []
    if not text.startswith("/"):
        raise ValueError(f"{member} does not start with a slash")
    return [token.replace("~1", "/").replace("~0", "~") for token in text[1:].split("/")]


def _value(operation: dict[str, Any]) -> Any:
    if "value" not in operation:
        raise KeyError("no value")
    return operation["value"]


def _index(token: str, length: int) -> int:
    if not token.isascii() or not token.isdigit() or (len(token) > 1 and token[0] == "0"):
        raise ValueError(f"{token!r} is no index")
    position = int(token)
    if position > length:
        raise IndexError(f"index {position} is out of bounds")
    return position


def _get(document: Any, tokens: list[str]) -> Any:
    for token in tokens:
        if isinstance(document, dict):
            document = document[token]
        elif isinstance(document, list):
            document = document[_index(token, len(document) - 1)]
        else:
            raise KeyError(token)
    return document


def _add(document: Any, tokens: list[str], value: Any) -> Any:
    if not tokens:
        return value
    parent, last = _get(document, tokens[:-1]), tokens[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else _index(last, len(parent)), value)
    else:
        raise KeyError(last)
    return document


def _remove(document: Any, tokens: list[str]) -> Any:
    if not tokens:
        raise ValueError("the whole document cannot be removed")
    parent, last = _get(document, tokens[:-1]), tokens[-1]
    if isinstance(parent, dict):
        del parent[last]
    elif isinstance(parent, list):
        del parent[_index(last, len(parent) - 1)]
    else:
        raise KeyError(last)
    return document


def _run_add(document: Any, operation: dict[str, Any]) -> Any:
    return _add(document, _pointer(operation, "path"), copy_object(_value(operation)))


def _run_remove(document: Any, operation: dict[str, Any]) -> Any:
    return _remove(document, _pointer(operation, "path"))


def _run_replace(document: Any, operation: dict[str, Any]) -> Any:
    tokens = _pointer(operation, "path")
    value = copy_object(_value(operation))
    if not tokens:
        return value
    parent, last = _get(document, tokens[:-1]), tokens[-1]
    if isinstance(parent, dict):
        parent[last] = value  # unlike RFC 6902, a missing member is added
    elif isinstance(parent, list):
        parent[_index(last, len(parent) - 1)] = value
    else:
        raise KeyError(last)
    return document


def _run_move(document: Any, operation: dict[str, Any]) -> Any:
    source, target = _pointer(operation, "from"), _pointer(operation, "path")
    if target[: len(source)] == source and len(target) > len(source):
        raise ValueError("a value cannot be moved into itself")
    value = _get(document, source)
    return _add(_remove(document, source), target, value)


def _run_copy(document: Any, operation: dict[str, Any]) -> Any:
    value = copy_object(_get(document, _pointer(operation, "from")))
    return _add(document, _pointer(operation, "path"), value)


def _run_test(document: Any, operation: dict[str, Any]) -> Any:
    wanted = operation.get("value")
    try:
        found = _get(document, _pointer(operation, "path"))
    except KeyError:
        found = None
    if not _equal(found, wanted):
        raise ValueError("test failed")
    return document


def _equal(one: Any, other: Any) -> bool:
    """Compare JSON values; unlike Python's ``==``, true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


_OPERATIONS: Final[dict[str, Callable[[Any, dict[str, Any]], Any]]] = {
    "add": _run_add,
    "remove": _run_remove,
    "replace": _run_replace,
    "move": _run_move,
    "copy": _run_copy,
    "test": _run_test,
}
