"""Semantic versions (semver.org 2.0.0): parsing with Kubernetes' errors, normalizing, comparing."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar, Final

from kubechronicle.api.cel.types import CelType, object_type
from kubechronicle.api.errors.field_errors import go_quote

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
