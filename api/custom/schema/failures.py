"""Failures of one validation, and the causes of an answer that they become.

After apiextensions-apiserver ``pkg/apiserver/validation/validation.go``, which turns the errors of kube-openapi into
field errors. An error without a field of its own, as that of an anyOf, has the field ``<nil>``.

A failure is noted as a tuple of its kind, its path and what the text says; texts are made at the end, of few failures.
So a rejected alternative costs little, also at a path of a megabyte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kubechronicle.api.custom.schema.structure import Where, path_text
from kubechronicle.api.errors.field_errors import (
    MOST_CAUSE_TEXT,
    MOST_CAUSES,
    Cause,
    go_json,
    go_quote,
    invalid_value,
    required,
    too_long,
    too_many,
    type_invalid,
)

NO_FIELD: Final = "<nil>"


class Choices:
    """The supported values of an enumeration, printed once for all failures. They are compared by identity."""

    __slots__ = ("_printed", "_texts")

    def __init__(self, texts: tuple[str, ...]) -> None:
        self._texts = texts
        self._printed = ""

    def __str__(self) -> str:
        if not self._printed:
            self._printed = f"supported values: {', '.join(map(go_quote, self._texts))}"
        return self._printed


class Failures:
    """The first MOST_CAUSES failures of a validation, each once. ``base``: the field that was validated."""

    __slots__ = ("_found", "base")

    def __init__(self, base: str = "") -> None:
        self.base = base
        self._found: dict[tuple[Any, ...], Any] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, kind: str, where: Where, about: object, value: Any = None) -> None:
        """Note a failure of one of the kinds in _CAUSES. ``value``: the bad value, if the text shows one."""
        if len(self._found) < MOST_CAUSES:
            self._found.setdefault((kind, where, about), value)

    def invalid(self, where: Where, value: Any, problem: str) -> None:
        """Note an invalid value: ``PATH in body PROBLEM``."""
        self.add("invalid", where, problem, value)

    def wrong_type(self, where: Where, wanted: str, given: str) -> None:
        """Note a value of a wrong type or format. ``given``: the type, or the string of a wrong format."""
        self.add("type", where, (wanted, given))

    def combination(self, where: Where, problem: str) -> None:
        """Note a failed combination of schemas."""
        self.add("combination", where, problem)

    def merge(self, other: Failures) -> None:
        """Keep the failures of another validation."""
        for identity, value in other._found.items():
            if len(self._found) >= MOST_CAUSES:
                return
            self._found.setdefault(identity, value)

    def causes(self) -> list[Cause]:
        """Return the failures as causes. As in kube-openapi, failures of the same text are one."""
        found: dict[tuple[object, ...], Cause] = {}
        size = 0
        for (kind, where, about), value in self._found.items():
            path = path_text(where)
            identity = (kind, path, str(about) if about.__class__ is Choices else about)
            if identity not in found:
                found[identity] = _CAUSES[kind](self, path, about, value)
                size += len(path)
            if size > MOST_CAUSE_TEXT:
                break
        return list(found.values())

    def field(self, path: str) -> str:
        """Return the field of an error at a path."""
        if path in ("", "."):
            return self.base or NO_FIELD
        path = path.removeprefix(".")
        return f"{self.base}.{path}" if self.base else path


class _Typed:
    """The text of a wrong type, made when it is read: the value may be long."""

    __slots__ = ("given", "path", "wanted")

    def __init__(self, path: str, wanted: str, given: str) -> None:
        self.path, self.wanted, self.given = path, wanted, given

    def __str__(self) -> str:
        return f"{self.path} in body must be of type {self.wanted}: {go_quote(self.given)}"


def _invalid(failures: Failures, path: str, about: Any, value: Any) -> Cause:
    return invalid_value(failures.field(path), value, f"{path} in body {about}")


def _type(failures: Failures, path: str, about: Any, value: Any) -> Cause:
    wanted, given = about
    return type_invalid(failures.field(path), given, _Typed(path, wanted, given))  # type: ignore[arg-type]


def _required(failures: Failures, path: str, about: Any, value: Any) -> Cause:
    return required(failures.field(f"{path}.{about}"))


def _enum(failures: Failures, path: str, about: Any, value: Any) -> Cause:
    return Cause("FieldValueNotSupported", "Unsupported value", failures.field(path), value=value, detail=about)


def _long(failures: Failures, path: str, about: Any, value: Any) -> Cause:
    return too_long(failures.field(path), about)


def _many(failures: Failures, path: str, about: Any, value: Any) -> Cause:
    limit, _ = about
    return too_many(failures.field(path), value, limit)


def _forbidden(failures: Failures, path: str, about: Any, value: Any) -> Cause:
    return invalid_value(failures.field(path), about, f"{path}.{about} in body is a forbidden property")


def _factor(failures: Failures, path: str, about: Any, value: Any) -> Cause:
    problem = f"factor MultipleOf declared for {path} must be positive: {about}"
    return invalid_value(failures.field(path), value, problem)


def _range(failures: Failures, path: str, about: Any, value: Any) -> Cause:
    return invalid_value(failures.base or NO_FIELD, "", f"{about} in {path}")


def _combination(failures: Failures, path: str, about: Any, value: Any) -> Cause:
    return invalid_value(failures.base or NO_FIELD, "", f"{go_quote(path)} {about}")


_CAUSES: Final[dict[str, Callable[[Failures, str, Any, Any], Cause]]] = {
    "combination": _combination,
    "enum": _enum,
    "factor": _factor,
    "forbidden": _forbidden,
    "invalid": _invalid,
    "long": _long,
    "many": _many,
    "range": _range,
    "required": _required,
    "type": _type,
}


# -- bounds ------------------------------------------------------------------------------------------------------------
#
# Lists of causes and of paths that stop growing at the bounds of an answer.
#
# A path may be as long as the request, and a thousand values may lie below it.


MAX_UNKNOWN: Final = 10_000
"""The most unknown fields whose paths are collected; answers show fewer."""

MAX_UNKNOWN_TEXT: Final = 1024 * 1024
"""Characters of all collected paths."""


class BoundedPaths:
    """Paths of unknown fields."""

    __slots__ = ("_room", "found")

    def __init__(self) -> None:
        self.found: list[str] = []
        self._room = MAX_UNKNOWN_TEXT

    def add(self, where: Where) -> None:
        """Append a path, unless there are too many."""
        if len(self.found) < MAX_UNKNOWN and self._room > 0:
            path = path_text(where)
            self.found.append(path)
            self._room -= len(path)


# -- texts -------------------------------------------------------------------------------------------------------------
#
# Go's prints of values, as the errors of kube-openapi contain them.


def go_value(value: Any) -> Any:
    """Return a value with its keys sorted and whole floats as integers, as Go's encoding/json writes them."""
    if value.__class__ is dict:
        return {name: go_value(value[name]) for name in sorted(value)}
    if value.__class__ is list:
        return [go_value(item) for item in value]
    if value.__class__ is float and value.is_integer() and abs(value) < 1e21:
        return int(value)
    return value


def bad_value(value: Any) -> Any:
    """Return a value for an error. A number that is the whole value is printed otherwise than one within it."""
    return go_value(value) if value.__class__ in (dict, list) else value


def enum_text(value: Any) -> str:
    """Return an allowed value as the list of supported values names it."""
    return value if isinstance(value, str) else go_json(go_value(value))
