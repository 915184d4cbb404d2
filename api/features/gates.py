"""Feature gates: the switches of a Kubernetes release, and their states at an emulated version.

The gates are data, api/kinds/MINOR/feature_gates.json, which ops/development/kinds/gates.py writes: for each gate its
states by version, oldest first. A gate has the newest state that is not newer than the emulated version. So the same
table gives the defaults of every version that a program emulates. Rules, texts and refusals are kube-apiserver's
(component-base ``featuregate``).

    gates = FeatureGates(versions, {"HPAScaleToZero": True})
    gates.enabled("HPAScaleToZero")   # True

``AllAlpha`` and ``AllBeta`` set the gates of their stage that nobody has set.

The versions of a server: of its program, emulated, and of the oldest server that it works beside (KEP-4330).

    effective_version(["1.34"], [])   # of a program of 1.36: 1.36, emulated 1.34, works beside servers of 1.33

Texts and refusals are kube-apiserver's (component-base ``compatibility``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

import orjson

from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.kinds import SERVED
from kubechronicle.api.values.objects import parse_bool

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


ALPHA: Final = "ALPHA"
BETA: Final = "BETA"
DEPRECATED: Final = "DEPRECATED"
UNBORN: Final = "PRE-ALPHA"
"""The stage of a gate that a later version than the emulated one introduces."""
ALL: Final = {"AllAlpha": ALPHA, "AllBeta": BETA}
"""The gates that set all others of a stage."""


@dataclass(frozen=True, slots=True)
class Spec:
    """The state of a gate from ``version`` on. ``stage``: ALPHA, BETA, DEPRECATED, "" for general availability.

    ``locked``: it cannot be set otherwise. ``compatibility``: the lowest --min-compatibility-version with it.
    """

    version: Release
    stage: str
    default: bool
    locked: bool = False
    compatibility: Release | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """A gate of a release: its states, oldest first, and the gates that must be on with it."""

    name: str
    specs: tuple[Spec, ...]
    needs: tuple[str, ...] = ()

    def at(self, versions: EffectiveVersion) -> Spec:
        """Return the state at the emulated version."""
        for spec in reversed(self.specs):
            least = spec.compatibility
            if spec.version <= versions.emulation and (least is None or least <= versions.compatibility):
                return spec
        return _UNBORN


_UNBORN: Final = Spec(Release(0, 0), UNBORN, default=False)


@cache
def gates_of(release: Release) -> Mapping[str, Gate]:
    """Return the gates that kube-apiserver of a release knows, by name."""
    file = resources.files("kubechronicle.api").joinpath("kinds", str(release), "feature_gates.json")
    known: Mapping[str, Any] = orjson.loads(file.read_bytes())
    return {
        name: Gate(name, tuple(map(_spec, each["specs"])), tuple(each.get("needs", ()))) for name, each in known.items()
    }


def _spec(given: Mapping[str, Any]) -> Spec:
    least = given.get("compatibility")
    return Spec(
        _release(given["version"]),
        given["stage"],
        default=given["default"],
        locked=given.get("locked", False),
        compatibility=_release(least) if least else None,
    )


def _release(text: str) -> Release:
    major, minor = text.split(".")
    return Release(int(major), int(minor))


class FeatureGates:
    """The gates of a server: on or off. Immutable. ``given``: those that the operator has set.

    ValueError with kube-apiserver's message: an unknown gate, one that is locked otherwise, one of a later version, or
    one that needs a gate that is off.
    """

    __slots__ = ("_on", "_specs", "versions")

    def __init__(self, versions: EffectiveVersion = DEFAULT, given: Mapping[str, bool] | None = None) -> None:
        given = given or {}
        known = gates_of(versions.binary)
        self.versions = versions
        self._specs = {name: gate.at(versions) for name, gate in known.items()}
        _check(self._specs, given, versions)
        for_all = {stage: given[name] for name, stage in ALL.items() if name in given}
        self._on = {
            name: given.get(name, spec.default if name in ALL else for_all.get(spec.stage, spec.default))
            for name, spec in self._specs.items()
        }
        if unmet := _unmet(known.values(), self._on):
            raise ValueError(_together(unmet))

    def enabled(self, name: str) -> bool:
        """Tell whether a gate is on. KeyError for a gate that no version up to the program's has."""
        return self._on[name]

    def knows(self, name: str) -> bool:
        """Tell whether the program's release has a gate."""
        return name in self._on

    def spec(self, name: str) -> Spec:
        """Return the state of a gate at the emulated version, as it is without the operator's choice."""
        return self._specs[name]

    def shown(self) -> Iterator[tuple[str, str, bool]]:
        """Yield name, stage and value of each gate that the emulated version knows, by name."""
        for name, spec in sorted(self._specs.items()):
            if spec.stage != UNBORN:
                yield name, spec.stage, self._on[name]

    def changed(self) -> frozenset[str]:
        """Return the gates whose value is not the default of the program's own version."""
        own = gates_of(self.versions.binary)
        return frozenset(name for name, on in self._on.items() if on != own[name].at(DEFAULT).default)


def _check(specs: Mapping[str, Spec], given: Mapping[str, bool], versions: EffectiveVersion) -> None:
    found = []
    for name, value in given.items():
        spec = specs.get(name)
        if spec is None:
            raise ValueError(f"unrecognized feature gate: {name}")
        attempt = f"cannot set feature gate {name} to {str(value).lower()}"
        if spec.locked and spec.default != value:
            found.append(f"{attempt}, feature is locked to {str(spec.default).lower()}")
        elif spec.stage == UNBORN:
            found.append(
                f"{attempt}, feature is PreAlpha at emulated version {versions.emulation}, "
                f"min compatibility version {versions.compatibility}"
            )
    if found:
        raise ValueError(_together(found))


def _unmet(gates: Iterable[Gate], on: Mapping[str, bool]) -> list[str]:
    return [
        f"{gate.name} is enabled, but depends on features that are disabled: [{' '.join(off)}]"
        for gate in gates
        if on[gate.name] and (off := [name for name in gate.needs if not on[name]])
    ]


def _together(problems: Sequence[str]) -> str:
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"


def parse(pairs: Iterable[tuple[str, str]]) -> dict[str, bool]:
    """Return the choices of --feature-gates: pairs of GATE or kube:GATE, and a text. ValueError for a bad one."""
    found: dict[str, bool] = {}
    prefixes = set()
    for given, text in pairs:
        component, colon, name = given.rpartition(":")
        if component not in ("", COMPONENT):
            raise ValueError(f"component not registered: {component}")
        prefixes.add(bool(colon))
        if not text:
            raise ValueError(f"missing bool value for {name}")
        try:
            found[name] = parse_bool(text)
        except ValueError as error:
            raise ValueError(f"invalid value of {name}={text}, err: {error}") from None
    if len(prefixes) > 1:
        raise ValueError(
            "set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use"
        )
    return found
