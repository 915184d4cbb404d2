"""Warnings about removed volume sources, and about overlapping files in one volume."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple

from kubechronicle.api.builtin.common.resource_amounts import fractional_warnings
from kubechronicle.api.builtin.core.pod.options import NO_GIT_REPOSITORIES
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.strategy.strategy import MOST_WARNINGS
from kubechronicle.api.values.objects import Object

_REMOVED_SOURCES: Final[Mapping[str, str]] = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": f"deprecated in v1.11{NO_GIT_REPOSITORIES}",
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
    # Of n files, n² pairs may overlap.
    return [*warnings, *islice(chain.from_iterable(map(_overlapping, volumes)), MOST_WARNINGS)]


class _File(NamedTuple):
    path: str
    source: str = ""

    def __str__(self) -> str:
        return f"{go_quote(self.path)} ({self.source})" if self.source else go_quote(self.path)


class _Directory:
    """A directory or file. ``here``: numbers of the files of this path; ``below``: these and of all files below it."""

    __slots__ = ("below", "entries", "here")

    def __init__(self) -> None:
        self.entries: dict[str, _Directory] = {}
        self.here: list[int] = []
        self.below: list[int] = []


class _Files:
    """The files of a volume so far. Two overlap if they have the same path, or one is a directory above the other.

    The numbers of the distinct files stand in a tree of directories, so that no file is compared with all others.
    ``_reported``: file -> the number of the first file that was not yet returned as overlapping with it.
    """

    def __init__(self) -> None:
        self._root = _Directory()
        self._order: list[_File] = []
        self._reported: dict[_File, int] = {}

    def add(self, file: _File) -> list[_File]:
        """Add a file. Return the earlier ones that overlap with it, but each pair of equal files only once."""
        if not file.path:
            return []
        first, number = self._reported.get(file), len(self._order)
        self._reported[file] = number
        passed = [self._root]
        for name in file.path.split("/"):
            passed.append(passed[-1].entries.setdefault(name, _Directory()))
        overlapping = _from(first or 0, passed[-1].below)
        for directory in passed[1:-1]:
            overlapping += _from(first or 0, directory.here)
        if first is None:
            self._order.append(file)
            passed[-1].here.append(number)
            for directory in passed[1:]:
                directory.below.append(number)
        return [self._order[each] for each in sorted(overlapping)]


def _from(first: int, numbers: list[int]) -> list[int]:
    return numbers[bisect_left(numbers, first) :]


def _overlapping(volume: Object) -> Iterator[str]:
    projected = volume.get("projected")
    if projected is not None:
        yield from _overlapping_sources(projected, volume.get("name", ""))
        return
    for member in _WITH_ITEMS:
        source = volume.get(member)
        if source is not None and source.get("items"):
            files = (_File(item.get("path", "").rstrip("/")) for item in source["items"])
            yield from _overlap_warnings(volume.get("name", ""), _described(member, source), files, _Files())
            return


def _overlapping_sources(projected: Object, name: str) -> Iterator[str]:
    known = _Files()
    for source in projected.get("sources") or ():
        if not any(value is not None for value in source.values()):
            yield f"volume {go_quote(name)} (Projected) has no sources provided"
            continue
        yield from _overlap_warnings(name, "Projected", _projected_files(source), known)


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


def _overlap_warnings(name: str, described: str, files: Iterable[_File], known: _Files) -> Iterator[str]:
    """Yield warnings about files that overlap with earlier ones."""
    for file in files:
        for other in known.add(file):
            yield f"volume {go_quote(name)} ({described}): overlapping paths: {file} with {other}"
