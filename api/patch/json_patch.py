"""JSON patch (RFC 6902) as Kubernetes' library, evanphx/json-patch v4, implements it.

Where the library differs from the RFC, this module follows the library:

    the text of a path before its first slash is ignored: ``x/data`` is ``/data``
    the path "" names the document for ``replace`` and ``test`` only
    ``replace`` and ``copy`` take a missing object member for null, and so does ``test``; ``remove`` and ``move`` fail
    a missing ``value`` is null
    the members of an object that an operation enters are in the order of their names afterwards
    an array index may be negative, counted from the end, and may have a sign or leading zeros

Kubernetes answers every failed operation of a request with the same 422 without a reason. The reasons here have the
library's words, which clients see where a webhook has sent the patch.

Invariant: a patch is applied whole or not at all, on the caller's copy; the copied bytes are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import orjson

from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.schema.values import json_word

MAX_OPERATIONS: Final = 10_000
"""Kubernetes' limit on the operations of one patch."""

MAX_COPIED: Final = 3 * 1024 * 1024
"""Bytes that ``copy`` operations may add in all, as in Kubernetes: the size limit of a request body."""


FEW_COPIES: Final = 4
"""Operations that copy. More of them can make a large document of a small one."""


def may_grow(patch: bytes) -> bool:
    """Tell whether the operations of an encoded patch may copy much.

    >>> may_grow(b'[{"op":"copy","from":"/a","path":"/b"}]')
    False
    """
    return patch.count(b"copy") > FEW_COPIES or b"\\u00" in patch


class PatchFailed(ValueError):
    """A failed operation. The text is the library's. ``operation``: its position in the patch."""

    def __init__(self, message: str, operation: int = 0) -> None:
        super().__init__(message)
        self.operation = operation


class Unequal(ValueError):
    """The cause of a PatchFailed: ``test`` has found another value."""


_MEMBERS: Final = ("op", "path", "from")
"""Members of an operation that must be texts."""


def decode(patch: Any, *, checked: bool = True, document: Any = None) -> list[Any]:
    """Return the operations of a patch: 400 if it has another form, 413 if it is too long. null has no operations.

    ``checked``: report members of a wrong type (400), which fieldValidation=Ignore leaves to ``apply``.
    ``document``: the patch with its repeated keys, if there are any; its objects are tuples of (key, value).
    """
    if patch is None:
        return []
    slice_type, item_type = ("[]handlers.jsonPatchOp", "handlers.jsonPatchOp") if checked else _LIBRARY_TYPES
    if not isinstance(patch, list):
        raise _undecodable(json_word(patch), f"Go value of type {slice_type}", checked=checked)
    for operation in patch:
        if operation is None:
            continue
        if not isinstance(operation, dict):
            raise _undecodable(json_word(operation), f"Go value of type {item_type}", checked=checked)
        if checked and document is None:
            _check_members(operation.items())
    for operation in document or ():
        if checked:
            _check_members(operation or ())
    if len(patch) > MAX_OPERATIONS:
        raise status.request_entity_too_large(
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(patch)}"
        )
    return patch


def _check_members(operation: Iterable[tuple[str, Any]]) -> None:
    """Reject (400) an operation with a member of a wrong type. A member that a later one replaces counts, too."""
    for name, value in operation:
        if name in _MEMBERS and value is not None and not isinstance(value, str):
            raise _undecodable(json_word(value), f"Go struct field jsonPatchOp.{name} of type string")


_LIBRARY_TYPES: Final = ("jsonpatch.Patch", "jsonpatch.Operation")


def _undecodable(word: str, where: str, *, checked: bool = True) -> status.StatusError:
    prefix = "error decoding patch: " if checked else ""
    return status.bad_request(f"{prefix}json: cannot unmarshal {word} into {where}")


def rejected() -> status.StatusError:
    """Return Kubernetes' answer for a failed operation: 422 without a reason."""
    message = "the server rejected our request due to an error in our request"
    return status.StatusError(422, "Invalid", message, details={})


def apply(document: dict[str, Any], operations: list[Any]) -> dict[str, Any] | list[Any]:
    """Return the document after all operations; it may be changed in place. Raises PatchFailed."""
    patching = Patching(document)
    result = run(patching, operations)
    patching.sort()
    return result


def run(patching: Patching, operations: list[Any]) -> dict[str, Any] | list[Any]:
    """Return the document of ``patching`` after all operations. Raises PatchFailed."""
    for number, operation in enumerate(operations):
        given = operation or {}
        name = given.get("op")
        operate = _OPERATIONS.get(name) if isinstance(name, str) else None
        if operate is None:
            raise PatchFailed(f"Unexpected kind: {name if isinstance(name, str) else 'unknown'}", number)
        try:
            operate(patching, given)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise PatchFailed(str(error), number) from error
    result: dict[str, Any] | list[Any] = patching.document
    return result


class Patching:
    """The document between two operations, and the bytes copied so far."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document: Any = document
        self.copied = 0
        self._entered: dict[int, dict[str, Any]] = {}

    def enter(self, holder: Any) -> None:
        """Note an object whose members the library decodes, and so encodes in another order."""
        if holder.__class__ is dict:
            self._entered[id(holder)] = holder

    def sort(self) -> None:
        """Bring the members of all entered objects into the order of their names."""
        for holder in self._entered.values():
            names = sorted(holder)
            if names != list(holder):
                members = dict(zip(names, map(holder.__getitem__, names), strict=True))
                holder.clear()
                holder.update(members)

    def find(self, path: str) -> tuple[Any, str]:
        """Return the object or array that holds the value at a path, and the last token of the path. _NoHolder."""
        _, *tokens = path.split("/")
        if not tokens:
            raise _NoHolder
        last = tokens.pop()
        holder = self.document
        self.enter(holder)
        for token in tokens:
            try:
                holder = _get(holder, _unescaped(token))
            except ValueError:
                raise _NoHolder from None
            if holder.__class__ is dict:
                self._entered[id(holder)] = holder
            elif holder.__class__ is not list:
                raise _NoHolder
        return holder, _unescaped(last)

    def copy(self, value: Any) -> Any:
        """Return a copy of a value, unless too many bytes were copied."""
        if value is None:
            return None
        text = orjson.dumps(value)
        self.count(len(text))
        return orjson.loads(text)

    def count(self, size: int) -> None:
        """Count copied bytes. ValueError if they are too many."""
        self.copied += size
        if self.copied > MAX_COPIED:
            raise ValueError("the accumulated size of copied values is too large")

    def equal(self, found: Any, wanted: Any) -> bool:
        """Return whether ``test`` finds the value that it wants."""
        return _equal(found, wanted)


def _unescaped(token: str) -> str:
    return token.replace("~1", "/").replace("~0", "~") if "~" in token else token


_MISSING: Final = "missing value"


class _NoHolder(ValueError):
    """No object or array holds the value at a path."""


def _index(token: str, length: int) -> int:
    """Return the position that an index names in an array of this length. Negative ones count from the end."""
    if _INDEX.fullmatch(token) is None:
        raise ValueError(f"strconv.Atoi: parsing {go_quote(token)}: invalid syntax")
    position = int(token)
    if not -length <= position < length:
        raise ValueError(f"Unable to access invalid index: {position}: invalid index referenced")
    return position + length if position < 0 else position


_INDEX: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


def _get(holder: Any, token: str) -> Any:
    """Return a member, None for an absent one of an object."""
    if holder.__class__ is dict:
        return holder.get(token)
    return holder[_index(token, len(holder))]


def member(holder: Any, token: str) -> Any:
    """Return the member that a token of a path names, None if there is none."""
    try:
        return _get(holder, _unescaped(token))
    except (ValueError, TypeError):
        return None


def _add(holder: Any, token: str, value: Any) -> None:
    if holder.__class__ is dict:
        holder[token] = value
    elif token == "-":
        holder.append(value)
    elif _INDEX.fullmatch(token) is None:
        syntax = f"strconv.Atoi: parsing {go_quote(token)}: invalid syntax"
        raise ValueError(f"value was not a proper array index: '{token}': {syntax}")
    else:
        holder.insert(_index(token, len(holder) + 1), value)


def _remove(holder: Any, token: str) -> None:
    if holder.__class__ is not dict:
        del holder[_index(token, len(holder))]
    elif token in holder:
        del holder[token]
    else:
        raise ValueError(f"Unable to remove nonexistent key: {token}: {_MISSING}")


# -- operations -------------------------------------------------------------------------------------------------------

T = TypeVar("T")
_NO_PATH: Final = f"operation missing path field: {_MISSING}"
_NO_FROM: Final = f"operation, missing from field: {_MISSING}"


def _text(operation: dict[str, Any], member: str, why: str) -> str:
    """Return a path. ValueError with the reason: there is none."""
    text = operation.get(member)
    if not isinstance(text, str):
        raise ValueError(why)
    return text


def _found(patching: Patching, path: str, why: str) -> tuple[Any, str]:
    """Return the holder and the last token of a path. ValueError: nothing holds it. ``why``: a format of the path."""
    try:
        return patching.find(path)
    except _NoHolder:
        raise ValueError(f"{why % path}: {_MISSING}") from None


def _done(why: str, step: Callable[..., T], *given: Any) -> T:
    """Return the result of a step. ValueError: with the reason before that of the step."""
    try:
        return step(*given)
    except ValueError as error:
        raise ValueError(f"{why}: {error}") from error


def _run_add(patching: Patching, operation: dict[str, Any]) -> None:
    path = _text(operation, "path", f"add operation failed to decode path: {_MISSING}")
    holder, token = _found(patching, path, 'add operation does not apply: doc is missing path: "%s"')
    if holder.__class__ is dict:
        holder[token] = operation.get("value")
    else:
        _done(f"error in add for path: '{path}'", _add, holder, token, operation.get("value"))


def _run_remove(patching: Patching, operation: dict[str, Any]) -> None:
    path = _text(operation, "path", f"remove operation failed to decode path: {_MISSING}")
    holder, token = _found(patching, path, 'remove operation does not apply: doc is missing path: "%s"')
    _done(f"error in remove for path: '{path}'", _remove, holder, token)


def _run_replace(patching: Patching, operation: dict[str, Any]) -> None:
    path = _text(operation, "path", f"replace operation failed to decode path: {_NO_PATH}")
    value = operation.get("value")
    if not path:
        if not isinstance(value, dict | list):
            raise ValueError("replace operation value must be object or array: %!w(<nil>)")
        patching.document = value
        return
    holder, token = _found(patching, path, "replace operation does not apply: doc is missing path: %s")
    if holder.__class__ is dict:
        holder[token] = value
        return
    try:
        place = _index(token, len(holder))
    except ValueError:
        raise ValueError(f"replace operation does not apply: doc is missing key: {path}: {_MISSING}") from None
    holder[place] = value


def _run_move(patching: Patching, operation: dict[str, Any]) -> None:
    source = _text(operation, "from", f"move operation failed to decode from: {_NO_FROM}")
    holder, token = _found(patching, source, "move operation does not apply: doc is missing from path: %s")
    value = _done(f"error in move for path: '{token}'", _get, holder, token)
    _done(f"error in move for path: '{token}'", _remove, holder, token)
    path = _text(operation, "path", f"move operation failed to decode path: {_NO_PATH}")
    holder, token = _found(patching, path, "move operation does not apply: doc is missing destination path: %s")
    _done(f"error in move for path: '{path}'", _add, holder, token, value)


def _run_copy(patching: Patching, operation: dict[str, Any]) -> None:
    source = _text(operation, "from", f"copy operation failed to decode from: {_NO_FROM}")
    holder, token = _found(patching, source, "copy operation does not apply: doc is missing from path: %s")
    value = _done(f"error in copy for from: '{source}'", _get, holder, token)
    path = _text(operation, "path", f"copy operation failed to decode path: {_MISSING}")
    holder, token = _found(patching, path, "copy operation does not apply: doc is missing destination path: %s")
    _done("error while adding value during copy", _add, holder, token, patching.copy(value))


def _run_test(patching: Patching, operation: dict[str, Any]) -> None:
    path = _text(operation, "path", f"test operation failed to decode path: {_NO_PATH}")
    found = patching.document
    if path:
        holder, token = _found(patching, path, "test operation does not apply: is missing path: %s")
        found = _done(f"error in test for path: '{path}'", _get, holder, token)
    if not patching.equal(found, operation.get("value")):
        raise Unequal(f"testing value {path} failed: test failed")
    _enter_all(patching, found)


def _enter_all(patching: Patching, value: Any) -> None:
    patching.enter(value)
    if value.__class__ is dict or value.__class__ is list:
        for each in value.values() if value.__class__ is dict else value:
            _enter_all(patching, each)


def _equal(one: Any, other: Any) -> bool:
    """Compare JSON values; unlike Python's ``==``, true is not 1, and 1 is not 1.0."""
    if one.__class__ is not other.__class__:
        return False
    if one.__class__ is dict:
        return one.keys() == other.keys() and all(_equal(value, other[key]) for key, value in one.items())
    if one.__class__ is list:
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


_OPERATIONS: Final[dict[str, Callable[[Patching, dict[str, Any]], None]]] = {
    "add": _run_add,
    "remove": _run_remove,
    "replace": _run_replace,
    "move": _run_move,
    "copy": _run_copy,
    "test": _run_test,
}
