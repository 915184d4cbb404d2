"""The versions of a server: of its program, emulated, and of the oldest server that it works beside (KEP-4330).

    effective_version(["1.34"], [])   # of a program of 1.36: 1.36, emulated 1.34, works beside servers of 1.33

Texts and refusals are kube-apiserver's (component-base ``compatibility``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.kinds import SERVED

COMPONENT: Final = "kube"
"""The only component whose version and gates can be set."""
OLDEST: Final = 3
"""Minor versions that a program emulates before its own."""
_VERSION: Final = re.compile(r"\s*v?([0-9]+(?:\.[0-9]+)*).*", re.DOTALL)


@dataclass(frozen=True, slots=True, order=True)
class Release:
    """A minor version: ``Release(1, 36)`` prints as 1.36."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    def before(self, minors: int) -> Release:
        return Release(self.major, max(self.minor - minors, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveVersion:
    """The three versions of a server. ``emulation``: API and gates are those of this version.

    ``compatibility``: the oldest version of the servers beside it; some gates are on only if it is new enough.
    """

    binary: Release
    emulation: Release
    compatibility: Release

    @property
    def emulates(self) -> bool:
        """True if the emulated version is an older one."""
        return self.emulation != self.binary

    def problems(self) -> list[str]:
        """Return kube-apiserver's refusals of versions out of range."""
        found = []
        floor = self.binary.before(OLDEST)
        if not floor <= self.emulation <= self.binary:
            found.append(f"emulation version {self.emulation} is not between [{floor}, {self.binary}.0]")
        if not floor <= self.compatibility <= self.emulation:
            found.append(
                f"minCompatibilityVersion version {self.compatibility} is not between [{floor}, {self.emulation}]"
            )
        return found


PROGRAM: Final = Release(*map(int, SERVED.split(".")))
"""The version of Kubernetes whose API is served."""
DEFAULT: Final = EffectiveVersion(binary=PROGRAM, emulation=PROGRAM, compatibility=PROGRAM.before(1))


def effective_version(
    emulated: Iterable[str], compatible: Iterable[str], *, binary: Release = PROGRAM
) -> EffectiveVersion:
    """Return the versions that --emulated-version and --min-compatibility-version choose. ValueError for a bad text.

    A text is ``1.34`` or ``kube=1.34``. The result may be out of range: see ``problems``.
    """
    emulation = _named(emulated).get(COMPONENT, binary)
    least = _named(compatible).get(COMPONENT)
    if least is None:
        least = max(emulation.before(1), binary.before(OLDEST))
    return EffectiveVersion(binary=binary, emulation=emulation, compatibility=least)


def _named(texts: Iterable[str]) -> Mapping[str, Release]:
    found: dict[str, Release] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name, value = (name.strip(), value.strip()) if equals else (COMPONENT, text)
        release = _parse(value, name)
        if name in found:
            raise ValueError(f"duplicate version flag, {name}={found[name]} and {name}={release}")
        found[name] = release
    for name in found:
        if name != COMPONENT:
            raise ValueError(f"component not registered: {name}")
    return found


def _parse(text: str, name: str) -> Release:
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f"could not parse {go_quote(text)} as version")
    parts = match[1].split(".")
    if len(parts) < 2:
        raise ValueError(f"illegal version string {go_quote(text)}")
    if parts[0].startswith("0") and parts[0] != "0":
        raise ValueError(f"illegal zero-prefixed version component {go_quote(parts[0])} in {go_quote(text)}")
    if len(parts) > 2 and int(parts[2]):
        raise ValueError(f"patch version not allowed, got: {name}={'.'.join(str(int(part)) for part in parts)}")
    return Release(int(parts[0]), int(parts[1]))
