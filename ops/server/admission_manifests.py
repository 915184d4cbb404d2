"""Manifests of admission (KEP-5793): directories of webhook configurations and policies, read while the server runs.

A directory is looked at every second, and read when a file in it has changed, at least once a minute. Its files take
effect together or not at all: if one cannot be used, the former configuration stays in force, and the failure is logged
and counted. The metrics are kube-apiserver's (``pkg/admission/plugin/manifest/metrics``).
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import trio
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.actors.admission.state import CurrentManifests
from kubechronicle.api.configuration.admission_manifests import EXTENSIONS, File, Manifests, hash_of, load
from kubechronicle.api.configuration.files import ConfigFileError
from kubechronicle.http.reloading import MAX_FILE, sha256_label

log = logging.getLogger(__name__)

POLL_INTERVAL: Final = 1.0
READ_INTERVAL: Final = 60.0
"""Seconds after which unchanged files are read again."""
MAX_FILES: Final = 1000
"""Files of a directory. More is an error."""
PREFIX: Final = "apiserver_manifest_admission_config_controller"

_Identity = tuple[tuple[str, int, int, int], ...]


def read_directory(directory: Path) -> list[File]:
    """Return the manifest files of a directory in the order of their names. ConfigFileError."""
    try:
        paths = [each for each in sorted(directory.iterdir()) if _is_manifest(each)]
    except OSError as error:
        raise ConfigFileError(f'failed to read manifest directory "{directory}": {error.strerror}') from None
    if len(paths) > MAX_FILES:
        raise ConfigFileError(f'manifest directory "{directory}" has more than {MAX_FILES} files')
    return [(str(path), _content(path)) for path in paths]


def _is_manifest(path: Path) -> bool:
    return path.suffix.lower() in EXTENSIONS and not path.is_dir()


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE + 1)
    except OSError as error:
        raise ConfigFileError(f'failed to read file "{path}": {error.strerror}') from None
    if len(content) > MAX_FILE:
        raise ConfigFileError(f'failed to read file "{path}": it has more than {MAX_FILE} bytes')
    return content


def load_directory(plugin: str, directory: Path) -> Manifests:
    """Return the objects in the directory of a plugin. ConfigFileError."""
    return load(plugin, read_directory(directory))


@dataclass(slots=True, eq=False)
class ManifestMetrics(Collector):
    """The reloads by (status, plugin), and the hashes in force. ``server``: the name of this server."""

    server: str
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    times: dict[tuple[str, str], float] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)

    def count(self, status: str, plugin: str) -> None:
        self.counts[status, plugin] += 1
        self.times[status, plugin] = time.time()

    def collect(self) -> Iterable[Metric]:
        server, split = sha256_label(self.server), "split by status, plugin, and apiserver identity."
        labels = ["status", "plugin", "apiserver_id_hash"]
        reloads = CounterMetricFamily(
            f"{PREFIX}_automatic_reloads",
            f"Total number of automatic reloads of admission manifest configuration {split}",
            labels=labels,
        )
        stamps = GaugeMetricFamily(
            f"{PREFIX}_automatic_reload_last_timestamp_seconds",
            f"Timestamp of the last automatic reload of admission manifest configuration {split}",
            labels=labels,
        )
        info = GaugeMetricFamily(
            f"{PREFIX}_last_config_info",
            "Information about the last applied admission manifest configuration with hash as label, split by plugin "
            "and apiserver identity.",
            labels=["plugin", "apiserver_id_hash", "hash"],
        )
        for key, number in self.counts.items():
            reloads.add_metric([*key, server], number)
            stamps.add_metric([*key, server], self.times[key])
        for plugin, digest in self.hashes.items():
            info.add_metric([plugin, server, digest], 1)
        return [reloads, stamps, info]


class ReloadedManifests:
    """The directories of all plugins. ``current``: their objects in force; ``metrics``: of the reloads."""

    def __init__(self, loaded: Mapping[str, tuple[Path, Manifests]], server: str) -> None:
        self.current = {plugin: CurrentManifests(manifests) for plugin, (_, manifests) in loaded.items()}
        self.metrics = ManifestMetrics(server)
        self._directories = {plugin: directory for plugin, (directory, _) in loaded.items()}
        self._read = {plugin: manifests.hash for plugin, (_, manifests) in loaded.items()}
        for plugin in loaded:
            self._succeeded(plugin)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the directories until cancelled."""
        task_status.started()
        async with trio.open_nursery() as nursery:
            for plugin in self._directories:
                nursery.start_soon(self._follow, plugin)

    async def _follow(self, plugin: str) -> None:
        seen: _Identity | None = None
        read = -READ_INTERVAL
        while True:
            identity = await trio.to_thread.run_sync(_identity, self._directories[plugin])
            if identity != seen or trio.current_time() - read >= READ_INTERVAL:
                seen, read = identity, trio.current_time()
                await self.look(plugin)
            await trio.sleep(POLL_INTERVAL)

    async def look(self, plugin: str) -> None:
        """Read the files of a plugin, and apply them if their contents are new."""
        directory = self._directories[plugin]
        try:
            manifests = await trio.to_thread.run_sync(partial(_changed, plugin, directory, self._read[plugin]))
        except ConfigFileError as error:
            self.metrics.count("failure", plugin)
            log.error(
                "Changed manifests cannot be used; the former configuration stays in force",
                extra={"plugin": plugin, "directory": str(directory), "err": str(error)},
            )
            return
        if manifests is None:
            return
        self._read[plugin] = manifests.hash
        self.current[plugin].current = manifests
        self._succeeded(plugin)
        log.info("Reloaded manifests", extra={"plugin": plugin, "directory": str(directory)})

    def _succeeded(self, plugin: str) -> None:
        self.metrics.count("success", plugin)
        self.metrics.hashes[plugin] = self.current[plugin].current.hash


def _changed(plugin: str, directory: Path, known: str) -> Manifests | None:
    """Return the objects in a directory, None if the files have the known hash. ConfigFileError."""
    files = read_directory(directory)
    return None if hash_of(files) == known else load(plugin, files)


def _identity(directory: Path) -> _Identity | None:
    """Return a value that changes with the files, None if the directory cannot be read."""
    found = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.lower().endswith(EXTENSIONS):
                    stat = entry.stat()
                    found.append((entry.name, stat.st_ino, stat.st_size, stat.st_mtime_ns))
    except OSError:
        return None
    return tuple(sorted(found))
