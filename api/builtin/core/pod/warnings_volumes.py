"""Warnings about removed volume sources, and about overlapping files in one volume."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kubechronicle.api.builtin.common.resource_amounts import fractional_warnings
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.values.objects import Object

_REMOVED_SOURCES: Final[Mapping[str, str]] = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
"""Volume sources that are deprecated or no longer work."""
_SPELLINGS: Final[Mapping[str, str]] = {"storageos": "storageOS"}
"""Sources that warnings spell differently from requests."""
_WITH_ITEMS: Final = ("configMap", "secret", "downwardAPI")


def volume_warnings(volumes: Sequence[Object], field: str) -> list[str]:
    """Return warnings about each volume's source, and then about overlapping files."""
    warnings: list[str] = []
    for index, volume in enumerate(volumes):
        path = f"{field}[{index}]"
        warnings += [
            f"{path}.{_SPELLINGS.get(name, name)}: {text}" for name, text in _REMOVED_SOURCES.items() if name in volume
        ]
        template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
        if template is not None:
            resources = (template.get("spec") or {}).get("resources") or {}
            inner = f"{path}.ephemeral.volumeClaimTemplate.spec.resources"
            warnings += fractional_warnings(resources.get("requests"), f"{inner}.requests", "storage")
            warnings += fractional_warnings(resources.get("limits"), f"{inner}.limits", "storage")
    for volume in volumes:
        warnings += _overlapping(volume)
    return warnings


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    source: str = ""

    def __str__(self) -> str:
        return f"{go_quote(self.path)} ({self.source})" if self.source else go_quote(self.path)

    def overlaps(self, other: _File) -> bool:
        """Return whether one of two paths is the other, or a directory above it."""
        if not self.path or not other.path:
            return False
        return f"{self.path}/".startswith(f"{other.path}/") or f"{other.path}/".startswith(f"{self.path}/")


def _overlapping(volume: Object) -> list[str]:
    projected = volume.get("projected")
    if projected is not None:
        return _overlapping_sources(projected, volume.get("name", ""))
    for member in _WITH_ITEMS:
        source = volume.get(member)
        if source is not None and source.get("items"):
            files = [_File(item.get("path", "").rstrip("/")) for item in source["items"]]
            return list(_overlap_warnings(volume.get("name", ""), _described(member, source), files))
    return []


def _overlapping_sources(projected: Object, name: str) -> list[str]:
    warnings: list[str] = []
    files: list[_File] = []
    for source in projected.get("sources") or ():
        if not any(value is not None for value in source.values()):
            warnings.append(f"volume {go_quote(name)} (Projected) has no sources provided")
            continue
        known = len(files)
        files += _projected_files(source)
        warnings += _overlap_warnings(name, "Projected", files, known)
    return warnings


def _projected_files(source: Object) -> Iterator[_File]:
    for member, given in source.items():
        if member in _WITH_ITEMS:
            described = _described(member, given, projected=True)
            for item in given.get("items") or ():
                yield _File(item.get("path", "").rstrip("/"), described)
        elif member == "serviceAccountToken":
            yield _File(given.get("path", "").rstrip("/"), "ServiceAccountToken")


def _described(member: str, source: Object, *, projected: bool = False) -> str:
    if member == "configMap":
        return f"ConfigMap {go_quote(source.get('name', ''))}"
    if member == "secret":
        return f"Secret {go_quote(source.get('name' if projected else 'secretName', ''))}"
    return "DownwardAPI"


def _overlap_warnings(name: str, described: str, files: Sequence[_File], known: int = 0) -> Iterator[str]:
    """Yield warnings about the files from ``known`` on that overlap with earlier ones."""
    for position in range(known, len(files)):
        for other in files[:position]:
            if files[position].overlaps(other):
                pair = f"{files[position]} with {other}"
                yield f"volume {go_quote(name)} ({described}): overlapping paths: {pair}"
