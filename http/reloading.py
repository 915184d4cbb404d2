"""Configuration files that are reloaded without a restart.

The identity of a file (inode, size, time) is checked every second. The file is read when it has changed, and at least
once a minute. It takes effect as a whole or not at all: if it cannot be used, the server logs the reason and keeps the
former configuration. The metrics are kube-apiserver's, with a prefix for each file such as
apiserver_authentication_config_controller.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

log = logging.getLogger(__name__)

POLL_INTERVAL: Final = 1.0
# Seconds after which an unchanged file is read again, and one that could not be used yet is tried again.
READ_INTERVAL: Final = 60.0
# Bytes of a configuration file. More is an error.
MAX_FILE: Final = 8 << 20

_Identity = tuple[int, int, int]


class Unusable(ValueError):
    """The content of the file is invalid. The message is for the operator."""


class NotLoadedYet(Exception):
    """The content of the file cannot be used now, but perhaps later. The message is for the operator."""


def sha256_label(text: str | bytes) -> str:
    """Return "sha256:" and the digest, as a label that does not reveal the text; "" for an empty one."""
    data = text.encode() if isinstance(text, str) else text
    return f"sha256:{hashlib.sha256(data).hexdigest()}" if data else ""


@dataclass(slots=True, eq=False)
class ReloadMetrics(Collector):
    """The number of reloads of a file, and the hash of its current content.

    ``prefix``: the prefix of the metric names.
    ``subject``: the part that the file configures, for help texts and logs.
    ``server``: the name of this server among those that share the cluster.
    """

    prefix: str
    subject: str
    server: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)
    in_force: str = ""

    def count(self, status: str) -> None:
        """Count a reload. ``status``: success or failure."""
        self.counts[status] = self.counts.get(status, 0) + 1
        self.times[status] = time.time()

    def collect(self) -> Iterable[Metric]:
        server = sha256_label(self.server)
        labels = ["status", "apiserver_id_hash"]
        reloads = CounterMetricFamily(
            f"{self.prefix}_automatic_reloads",
            f"Total number of automatic reloads of {self.subject} split by status and apiserver identity.",
            labels=labels,
        )
        stamps = GaugeMetricFamily(
            f"{self.prefix}_automatic_reload_last_timestamp_seconds",
            f"Timestamp of the last automatic reload of {self.subject} split by status and apiserver identity.",
            labels=labels,
        )
        info = GaugeMetricFamily(
            f"{self.prefix}_last_config_info",
            f"Information about the last applied {self.subject} with hash as label, split by apiserver identity.",
            labels=["apiserver_id_hash", "hash"],
        )
        for status, number in self.counts.items():
            reloads.add_metric([status, server], number)
            stamps.add_metric([status, server], self.times[status])
        if self.in_force:
            info.add_metric([server, self.in_force], 1)
        return [reloads, stamps, info]


class ReloadedFile:
    """Watches one file and applies its changes.

    ``apply``: applies new content. Raises Unusable or NotYet; returns False if the meaning is the same, which is not
    counted as a reload.
    ``applied``: the content that is in force at the start.
    """

    def __init__(
        self,
        path: Path,
        apply: Callable[[bytes], Awaitable[bool | None]],
        *,
        applied: bytes,
        metrics: ReloadMetrics,
    ) -> None:
        self._path = path
        self._apply = apply
        self._judged = applied
        self._metrics = metrics
        metrics.in_force = sha256_label(applied)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch the file until cancelled."""
        task_status.started()
        seen: _Identity | None = None
        read = -READ_INTERVAL
        while True:
            identity = await trio.to_thread.run_sync(_identity, self._path)
            if identity != seen or trio.current_time() - read >= READ_INTERVAL:
                seen, read = identity, trio.current_time()
                await self.look()
            await trio.sleep(POLL_INTERVAL)

    async def look(self) -> None:
        """Read the file, and apply it if its content is new."""
        try:
            data = await trio.to_thread.run_sync(_read, self._path)
        except OSError as error:
            self._failed(f"cannot read it: {error.strerror or error}")
            return
        if data == self._judged:
            return
        try:
            changed = await self._apply(data)
        except Unusable as error:
            self._judged = data  # the same content is not tried again
            self._failed(str(error))
        except NotLoadedYet as error:
            self._failed(str(error))
        else:
            self._judged = data
            if changed is False:
                return
            self._metrics.in_force = sha256_label(data)
            self._metrics.count("success")
            log.info("Reloaded", extra={"config": self._metrics.subject, "file": str(self._path)})

    def _failed(self, why: str) -> None:
        self._metrics.count("failure")
        log.error(
            "A changed file cannot be used; the former configuration stays in force",
            extra={"config": self._metrics.subject, "file": str(self._path), "err": why},
        )


def _identity(path: Path) -> _Identity | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise OSError(f"it has more than {MAX_FILE} bytes")
    return data
