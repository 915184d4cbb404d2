"""Configuration files that count while the server runs: whoever changes one need not start the server anew.

A file is looked at each second and read when it is another one (another inode, size or time), or was read a minute
ago. What it says takes effect as a whole or not at all: of a file that can't be used the operator is told in the log,
and what was in force before stays. Counted as kube-apiserver counts it, per file, by prefixes such as
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
# Seconds after which a file is read although it looks the same, and one is tried again that could not be used yet.
READ_INTERVAL: Final = 60.0
# Bytes of a configuration file: more is a mistake.
MAX_FILE: Final = 8 << 20

_Identity = tuple[int, int, int]


class Unusable(ValueError):
    """What the file says is wrong and will never be right. The message is for the operator."""


class NotYet(Exception):
    """What the file says can't be put in force now, but perhaps later. The message is for the operator."""


def sha256_label(text: str | bytes) -> str:
    """How metrics name what should not be spelled out: "sha256:" and the digest, "" for nothing."""
    data = text.encode() if isinstance(text, str) else text
    return f"sha256:{hashlib.sha256(data).hexdigest()}" if data else ""


@dataclass(slots=True, eq=False)
class ReloadFigures(Collector):
    """How often a file was read again, and which one is in force. ``prefix`` of the names; ``what`` it configures;
    ``server``: the name of this server among those that share the cluster."""

    prefix: str
    what: str
    server: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)
    in_force: str = ""

    def count(self, status: str) -> None:
        """``status``: success or failure."""
        self.counts[status] = self.counts.get(status, 0) + 1
        self.times[status] = time.time()

    def collect(self) -> Iterable[Metric]:
        server = sha256_label(self.server)
        labels = ["status", "apiserver_id_hash"]
        reloads = CounterMetricFamily(
            f"{self.prefix}_automatic_reloads",
            f"Total number of automatic reloads of {self.what} split by status and apiserver identity.",
            labels=labels,
        )
        stamps = GaugeMetricFamily(
            f"{self.prefix}_automatic_reload_last_timestamp_seconds",
            f"Timestamp of the last automatic reload of {self.what} split by status and apiserver identity.",
            labels=labels,
        )
        info = GaugeMetricFamily(
            f"{self.prefix}_last_config_info",
            f"Information about the last applied {self.what} with hash as label, split by apiserver identity.",
            labels=["apiserver_id_hash", "hash"],
        )
        for status, number in self.counts.items():
            reloads.add_metric([status, server], number)
            stamps.add_metric([status, server], self.times[status])
        if self.in_force:
            info.add_metric([server, self.in_force], 1)
        return [reloads, stamps, info]


class ReloadedFile:
    """Looks after one file. ``apply`` puts new content in force, or raises Unusable or NotYet, or answers False: it
    says the same in other words, which counts for nothing. ``applied`` is what is in force at the start."""

    def __init__(
        self,
        path: Path,
        apply: Callable[[bytes], Awaitable[bool | None]],
        *,
        applied: bytes,
        figures: ReloadFigures,
    ) -> None:
        self._path = path
        self._apply = apply
        self._judged = applied
        self._figures = figures
        figures.in_force = sha256_label(applied)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look after the file until cancelled."""
        task_status.started()
        seen: _Identity | None = None
        read = -READ_INTERVAL
        while True:
            found = await trio.to_thread.run_sync(_identity, self._path)
            if found != seen or trio.current_time() - read >= READ_INTERVAL:
                seen, read = found, trio.current_time()
                await self.look()
            await trio.sleep(POLL_INTERVAL)

    async def look(self) -> None:
        """Read the file, and put it in force if it says something new."""
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
            self._judged = data  # and is not looked at again
            self._failed(str(error))
        except NotYet as error:
            self._failed(str(error))
        else:
            self._judged = data
            if changed is False:
                return
            self._figures.in_force = sha256_label(data)
            self._figures.count("success")
            log.info("Reloaded", extra={"config": self._figures.what, "file": str(self._path)})

    def _failed(self, why: str) -> None:
        self._figures.count("failure")
        log.error(
            "A changed file cannot be used, what was in force stays",
            extra={"config": self._figures.what, "file": str(self._path), "err": why},
        )


def _identity(path: Path) -> _Identity | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise OSError(f"it has more than {MAX_FILE} bytes")
    return data
