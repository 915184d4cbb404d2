"""CEL's ``semver()`` (library kubernetes.Semver version 1, since v1.33)."""

from __future__ import annotations

from typing import Final

from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.errors import EvaluationError
from kubechronicle.api.cel.library import costs
from kubechronicle.api.cel.library.semver_parser import SEMVER, Version, VersionError, normalized, parse
from kubechronicle.api.cel.overloads import Function, Overload
from kubechronicle.api.cel.types import BOOL, INT, STRING


def to_semver(text: str, normalize: bool = False) -> Version:
    """Return the version of a text, normalized first with ``normalize``. EvaluationError if it has none."""
    try:
        return normalized(text) if normalize else parse(text)
    except VersionError as problem:
        raise EvaluationError(str(problem)) from None


def is_semver(text: str, normalize: bool = False) -> bool:
    """Return whether ``semver(text, normalize)`` succeeds."""
    try:
        to_semver(text, normalize)
    except EvaluationError:
        return False
    return True


def _is_greater(left: Version, right: Version) -> bool:
    return left.compare(right) > 0


def _is_less(left: Version, right: Version) -> bool:
    return left.compare(right) < 0


def _signed(number: int) -> int:
    # Numbers of versions are unsigned, CEL's int is signed: the 64 bits are reinterpreted.
    return number - 2**64 if number >= 2**63 else number


def _major(version: Version) -> int:
    return _signed(version.major)


def _minor(version: Version) -> int:
    return _signed(version.minor)


def _patch(version: Version) -> int:
    return _signed(version.patch)


_PAIR: Final = (SEMVER, SEMVER)

LIBRARY: Final = Library(
    "kubernetes.Semver",
    1,
    (
        Function(
            "semver",
            (
                Overload("string_to_semver", (STRING,), SEMVER, to_semver, cost=costs.traversal()),
                Overload("string_bool_to_semver", (STRING, BOOL), SEMVER, to_semver, cost=costs.traversal()),
            ),
        ),
        Function(
            "isSemver",
            (
                Overload("is_semver_string", (STRING,), BOOL, is_semver, cost=costs.traversal()),
                Overload("is_semver_string_bool", (STRING, BOOL), BOOL, is_semver, cost=costs.traversal()),
            ),
        ),
        Function("isGreaterThan", (Overload("semver_is_greater_than", _PAIR, BOOL, _is_greater, member=True),)),
        Function("isLessThan", (Overload("semver_is_less_than", _PAIR, BOOL, _is_less, member=True),)),
        Function("compareTo", (Overload("semver_compare_to", _PAIR, INT, Version.compare, member=True),)),
        Function("major", (Overload("semver_major", (SEMVER,), INT, _major, member=True),)),
        Function("minor", (Overload("semver_minor", (SEMVER,), INT, _minor, member=True),)),
        Function("patch", (Overload("semver_patch", (SEMVER,), INT, _patch, member=True),)),
    ),
)
