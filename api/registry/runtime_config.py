"""--runtime-config: the choice of served API versions.

Texts, precedence and rejections are kube-apiserver's (apiserver pkg/server/resourceconfig and options), but a resource
that does not exist is rejected as well. In any order of the text, later rules of this list win over earlier ones:

    1. by default, present versions are served; removed ones (lives.py), alphas and betas are not
    2. api/all, then api/ga, api/beta, api/alpha     all versions of that kind that the emulated version has not removed
    3. GROUP/VERSION (v1 for the core group)         one version
    4. GROUP/VERSION/RESOURCE                        one resource of it, in a served or unserved version
    5. a type that is newer than the emulated version is not served, unless one of the two settings of emulation says so
    6. a type whose feature gate is off is not served (GATES)

A version that Kubernetes still has in its Go packages, but no longer serves, is accepted and has no resources.
Unserved types are still stored, decoded and converted: they only have no path.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.features.gates import PROGRAM, FeatureGates, Release
from kubechronicle.api.kinds import reading
from kubechronicle.api.registry.lives import version_priority
from kubechronicle.api.registry.registry import (
    Registry,
    ResourceType,
    builtin_registry,
    known_registry,
    serving,
)
from kubechronicle.api.registry.resources import GATES
from kubechronicle.api.values.objects import parse_bool

_PATTERNS: Final[Mapping[str, re.Pattern[str]]] = {
    "api/all": re.compile(r".*"),
    "api/ga": re.compile(r"v\d+", re.ASCII),
    "api/beta": re.compile(r"v\d+beta\d+", re.ASCII),
    "api/alpha": re.compile(r"v\d+alpha\d+", re.ASCII),
}
_CONSIDER: Final = "Consider setting --runtime-config-emulation-forward-compatible=true"


def parse(text: str) -> dict[str, str]:
    """Return the pairs of a comma-separated list of KEY=VALUE; the last pair of a key counts, VALUE may be absent."""
    pairs: dict[str, str] = {}
    for part in text.split(","):
        key, _, value = part.partition("=")
        if part.strip():
            pairs[key.strip()] = value.strip()
    return pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulation:
    """The feature gates, with the emulated version. None: the usual ones.

    ``forward``: types that the version has are served in their newer versions, too.
    ``enables``: versions and resources that --runtime-config names are served even if they are newer.
    """

    gates: FeatureGates | None = None
    forward: bool = False
    enables: bool = False

    @property
    def release(self) -> Release:
        """The emulated version."""
        return PROGRAM if self.gates is None else self.gates.versions.emulation

    def has_removed(self, rt: ResourceType) -> bool:
        """Return whether the version is without this type: only a rule that names it serves it."""
        return rt.removed is not None and rt.removed <= self.release

    def has(self, rt: ResourceType) -> bool:
        """Return whether the gate of a type is on, or it has none."""
        gate = GATES.get((rt.group, rt.plural))
        return gate is None or (self.gates or FeatureGates()).enabled(gate)


def registry_for(pairs: Mapping[str, str], emulation: Emulation = Emulation()) -> Registry:
    """Return the registry that the pairs describe. ValueError with one line if they are not valid."""
    if not pairs and emulation.gates is None:
        return builtin_registry()
    if dict(pairs) == {"api/all": "false"}:
        raise ValueError("invalid key with only api/all=false")
    known = tuple(known_registry())
    served = set(builtin_registry())
    for key, pattern in _PATTERNS.items():
        if key in pairs:
            if pairs[key] not in ("true", "false"):
                raise ValueError(f"invalid value {key}={pairs[key]}")
            found = {rt for rt in known if pattern.fullmatch(rt.version) and not emulation.has_removed(rt)}
            served = served | found if pairs[key] == "true" else served - found
    for length in (2, 3):
        for key, value in pairs.items():
            if key not in _PATTERNS and len(parts := _parts(key)) == length:
                found = _named(known, key, parts)
                served = served | found if _is_true(key, value) else served - found
    if emulation.forward:
        served |= _newer(served, known)
    served -= set(_too_new(served, pairs, emulation))
    return serving(rt for rt in served if emulation.has(rt))


def _newer(served: Collection[ResourceType], known: Collection[ResourceType]) -> set[ResourceType]:
    """Return the types of newer versions of a group than one that is served, alpha versions apart."""
    oldest: dict[str, str] = {}
    for rt in served:
        if not _PATTERNS["api/alpha"].fullmatch(rt.version):
            oldest[rt.group] = max(rt.version, oldest.get(rt.group, rt.version), key=version_priority)
    return {
        rt for rt in known if rt.group in oldest and version_priority(rt.version) < version_priority(oldest[rt.group])
    }


def _too_new(
    served: Collection[ResourceType], pairs: Mapping[str, str], emulation: Emulation
) -> Iterator[ResourceType]:
    """Yield the served types that the emulated version does not have. ValueError if one of them is named in ``pairs``.

    Older versions of a resource come first, as an older one that is served lets a newer one be served (``forward``).
    """
    named = {_parts(key) for key, value in pairs.items() if key not in _PATTERNS and _is_true(key, value)}
    kept: set[tuple[str, str]] = set()
    whole: dict[tuple[str, str], bool] = {}
    for rt in sorted(served, key=lambda rt: version_priority(rt.version), reverse=True):
        path = (rt.group, rt.version, rt.plural)
        introduced = rt.introduced
        new = (
            introduced is not None
            and introduced > emulation.release
            and not (emulation.forward and (rt.group, rt.plural) in kept)
        )
        if new and not (emulation.enables and (path in named or path[:2] in named)):
            if path in named:
                raise ValueError(
                    f"cannot enable resource {rt.api_version}, Resource={rt.plural} in runtime-config because it is "
                    f"introduced at {introduced} after the current version {emulation.release}. {_CONSIDER}"
                )
            whole.setdefault(path[:2], True)
            yield rt
        else:
            whole[path[:2]] = False
            if not _PATTERNS["api/alpha"].fullmatch(rt.version):
                kept.add((rt.group, rt.plural))
    for (group, version), gone in whole.items():
        if gone and (group, version) in named:
            raise ValueError(
                f"cannot enable version {group}/{version} in runtime-config because all the resources have been "
                f"introduced after the current version {emulation.release}. {_CONSIDER}"
            )


def _parts(key: str) -> tuple[str, ...]:
    """Return (group, version) or (group, version, resource); "v1", "/v1" and "api/v1" are the core group's."""
    parts = tuple(key.split("/"))
    if len(parts) == 1 and parts[0]:
        return ("", *parts)
    if parts[0] == "api":
        return ("", *parts[1:])
    if len(parts) not in (2, 3):
        raise ValueError(f"invalid key {key}")
    return parts


def _named(known: tuple[ResourceType, ...], key: str, parts: tuple[str, ...]) -> set[ResourceType]:
    group, version, *resource = parts
    of_version = {rt for rt in known if (rt.group, rt.version) == (group, version)}
    if not of_version:
        if f"{group}/{version}" in reading.release().group_versions:
            return set()
        if group not in {rt.group for rt in known}:
            raise ValueError(f"unknown api groups {group}")
        raise ValueError(f"group version {f'{group}/{version}' if group else version} that has not been registered")
    if not resource:
        return of_version
    if resource[0] != resource[0].lower():
        raise ValueError(
            f"invalid key {key}: group/version/resource and resource is always lowercase plural, "
            f"not {go_quote(resource[0])}"
        )
    found = {rt for rt in of_version if rt.plural == resource[0]}
    if not found:
        raise ValueError(f"invalid key {key}: there is no resource {go_quote(resource[0])}")
    return found


def _is_true(key: str, value: str) -> bool:
    try:
        return not value or parse_bool(value)
    except ValueError as error:
        raise ValueError(f"invalid value of {key}: {value}, err: {error}") from None
