"""Failures of one validation: each once, as the causes of an answer.

After apiextensions-apiserver ``pkg/apiserver/validation/validation.go``, which turns the errors of kube-openapi into
field errors. An error without a field of its own, as that of an anyOf, has the field ``<nil>``.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.custom.schema.structure import Where, path_text
from kubechronicle.api.errors.field_errors import (
    MOST_CAUSES,
    Cause,
    go_quote,
    invalid_value,
    not_supported,
    required,
    too_long,
    too_many,
    type_invalid,
)

NO_FIELD: Final = "<nil>"
Identity = tuple[Any, ...]


class Failures(dict[Identity, Cause]):
    """Causes by identity: kube-openapi keeps errors of the same text once. ``base``: the field that was validated.

    At most MOST_CAUSES are kept, so that a schema of a thousand alternatives gives no unbounded answer.
    """

    __slots__ = ("base",)

    def __init__(self, base: str = "") -> None:
        super().__init__()
        self.base = base

    def add(self, identity: Identity, cause: Cause) -> None:
        """Keep a cause, if it is new."""
        if len(self) < MOST_CAUSES:
            self.setdefault(identity, cause)

    def merge(self, other: Failures) -> None:
        """Keep the causes of another validation."""
        for identity, cause in other.items():
            self.add(identity, cause)

    def field(self, name: str) -> str:
        """Return the field of an error at a path."""
        if name in ("", "."):
            return self.base or NO_FIELD
        name = name.removeprefix(".")
        return f"{self.base}.{name}" if self.base else name

    def invalid(self, where: Where, value: Any, problem: str) -> None:
        """Note an invalid value: ``NAME in body PROBLEM``."""
        name = path_text(where)
        self.add((name, problem), invalid_value(self.field(name), value, f"{name} in body {problem}"))

    def wrong_type(self, where: Where, wanted: str, given: str) -> None:
        """Note a value of a wrong type or format."""
        name = path_text(where)
        detail = _Typed(name, wanted, given)
        self.add((name, wanted, given), type_invalid(self.field(name), given, detail))  # type: ignore[arg-type]

    def required(self, where: Where, name: str) -> None:
        """Note a missing field."""
        path = f"{path_text(where)}.{name}"
        self.add((path, "required"), required(self.field(path)))

    def unsupported(self, where: Where, value: Any, supported: tuple[str, ...]) -> None:
        """Note a value that an enumeration does not have."""
        name = path_text(where)
        self.add((name, "enum", supported), not_supported(self.field(name), value, supported))

    def too_long(self, where: Where, limit: int) -> None:
        """Note a string with more characters than allowed. The message speaks of bytes, as kube-apiserver's does."""
        name = path_text(where)
        self.add((name, "long", limit), too_long(self.field(name), limit))

    def too_many(self, where: Where, actual: int, limit: int, what: str) -> None:
        """Note too many items or properties."""
        name = path_text(where)
        self.add((name, what, limit), too_many(self.field(name), actual, limit))

    def forbidden_property(self, where: Where, name: str) -> None:
        """Note a field beside the properties, where additionalProperties is false."""
        path = path_text(where)
        problem = f"{path}.{name} in body is a forbidden property"
        self.add((path, problem), invalid_value(self.field(path), name, problem))

    def not_positive(self, where: Where, factor: int | float, problem: str) -> None:
        """Note a factor that no number is a multiple of."""
        name = path_text(where)
        problem = f"factor MultipleOf declared for {problem}"
        self.add((name, problem), invalid_value(self.field(name), factor, problem))

    def plain(self, problem: str) -> None:
        """Note a failure whose text names the place itself."""
        self.add((problem,), invalid_value(self.base or NO_FIELD, "", problem))

    def combination(self, where: Where, problem: str) -> None:
        """Note a failed combination of schemas."""
        self.plain(f"{go_quote(path_text(where))} {problem}")


class _Typed:
    """The text of a wrong type, made when it is read: the value may be long."""

    __slots__ = ("given", "name", "wanted")

    def __init__(self, name: str, wanted: str, given: str) -> None:
        self.name, self.wanted, self.given = name, wanted, given

    def __str__(self) -> str:
        return f"{self.name} in body must be of type {self.wanted}: {go_quote(self.given)}"
