"""CEL's ``semver()`` (library kubernetes.Semver version 1, since v1.33)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar, Final

from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.errors import EvaluationError
from kubechronicle.api.cel.library import costs
from kubechronicle.api.cel.types import BOOL, INT, STRING, CelType, Function, Overload, object_type
from kubechronicle.api.errors.field_errors import go_quote

# -- semver parser -----------------------------------------------------------------------------------------------------
#
# Semantic versions (semver.org 2.0.0): parsing with Kubernetes' errors, normalizing, comparing.


SEMVER: Final = object_type("kubernetes.Semver", {})

_DIGITS: Final = re.compile("[0-9]+")
_IDENTIFIER: Final = re.compile("[0-9A-Za-z-]+")
_MAX_NUMBER: Final = 2**64 - 1

Part = int | str


class VersionError(ValueError):
    """Not a semantic version. The text is Kubernetes'."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version. ``pre``: identifiers behind a dash, numbers as int. ``build``: those behind a plus, not compared."""

    cel_type: ClassVar[CelType] = SEMVER

    major: int
    minor: int
    patch: int
    pre: tuple[Part, ...] = ()
    build: tuple[str, ...] = field(default=(), compare=False)

    def compare(self, other: Version) -> int:
        """Return -1, 0 or 1."""
        mine, theirs = (self.major, self.minor, self.patch), (other.major, other.minor, other.patch)
        if mine != theirs:
            return 1 if mine > theirs else -1
        if not self.pre or not other.pre:  # a version is greater than its pre-releases
            return bool(other.pre) - bool(self.pre)
        for left, right in zip(self.pre, other.pre, strict=False):
            if left != right:
                return _compare_parts(left, right)
        return (len(self.pre) > len(other.pre)) - (len(self.pre) < len(other.pre))


def _compare_parts(left: Part, right: Part) -> int:
    if isinstance(left, int) and isinstance(right, int):
        return 1 if left > right else -1
    if isinstance(left, str) and isinstance(right, str):
        return 1 if left.encode() > right.encode() else -1
    return -1 if isinstance(left, int) else 1  # numbers are less than words


def parse(text: str) -> Version:
    """Return the version of a text. VersionError if it has none."""
    if not text:
        raise VersionError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise VersionError("No Major.Minor.Patch elements found")
    numbers = [_number(word, parts[index]) for index, word in enumerate(("major", "minor"))]
    patch, _, build = parts[2].partition("+")
    has_build = "+" in parts[2]
    patch, dash, pre = patch.partition("-")
    number = _number("patch", patch)
    identifiers = tuple(_pre_release(each) for each in pre.split(".")) if dash else ()
    builds: tuple[str, ...] = ()
    if has_build:
        builds = tuple(build.split("."))
        for each in builds:
            if not each:
                raise VersionError("Build meta data is empty")
            if _IDENTIFIER.fullmatch(each) is None:
                raise VersionError(f"Invalid character(s) found in build meta data {go_quote(each)}")
    return Version(numbers[0], numbers[1], number, identifiers, builds)


def _number(word: str, text: str) -> int:
    title = word.capitalize()
    if _DIGITS.fullmatch(text) is None and text:
        raise VersionError(f"Invalid character(s) found in {word} number {go_quote(text)}")
    if len(text) > 1 and text[0] == "0":
        raise VersionError(f"{title} number must not contain leading zeroes {go_quote(text)}")
    if not text:
        raise VersionError('strconv.ParseUint: parsing "": invalid syntax')
    number = int(text[:25])
    if number > _MAX_NUMBER:
        raise VersionError(f"strconv.ParseUint: parsing {go_quote(text)}: value out of range")
    return number


def _pre_release(text: str) -> Part:
    if not text:
        raise VersionError("Prerelease is empty")
    if _DIGITS.fullmatch(text) is not None:
        if len(text) > 1 and text[0] == "0":
            raise VersionError(f"Numeric PreRelease version must not contain leading zeroes {go_quote(text)}")
        number = int(text[:25])
        if number > _MAX_NUMBER:
            raise VersionError(f"strconv.ParseUint: parsing {go_quote(text)}: value out of range")
        return number
    if _IDENTIFIER.fullmatch(text) is None:
        raise VersionError(f"Invalid character(s) found in prerelease {go_quote(text)}")
    return text


def normalized(text: str) -> Version:
    """Return the version of a text without a leading ``v`` and leading zeros. Missing numbers count as 0."""
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise VersionError("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return parse(".".join(parts))


def _without_zeros(part: str) -> str:
    if len(part) <= 1:
        return part
    stripped = part.lstrip("0")
    return stripped if stripped and "0" <= stripped[0] <= "9" else f"0{stripped}"


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
