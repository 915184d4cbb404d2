"""Unreadable objects: a view has an entry without contents for an object that could not be decrypted when it was read.

    the key is missing          entry without contents, ``view.unreadable`` names it; reads try again, then fail
    the key is there again      the next read, or ``Rereading``, takes the contents from the log

A read asks the log each time, as kube-apiserver decrypts at each read. Objects that nobody reads matter as well: the
server's own rules follow the views. So a task tries them again whenever the keys may have changed, and at intervals.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

import trio

from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.records import Key
from kubechronicle.eventlog.views.views import Views

log = logging.getLogger(__name__)

# Seconds after which unreadable objects are tried again. A key service may have come back.
INTERVAL: Final = 10.0
# Objects of one resource that may fail in one pass. With a lost key all of them fail.
FAILURES: Final = 3


async def reread(views: Views, key: Key) -> str:
    """Try to read an unreadable object again. Return the reason if it still cannot be decrypted, else "". LogError."""
    old = views[key.resource].get(key.namespace, key.name)
    if old is None or not old.unreadable or views.read_object is None:
        return ""
    record = await views.read_object(key, revision=old.revision)
    if record is None or record.erased or record.revision != old.revision:
        return ""
    if not record.problem:
        views.put_readable(old, record)
    return record.problem


class Rereading:
    """Reads unreadable objects again. ``run`` must be running.

    ``needed``: resources without which the server cannot work. Starting waits until they can be decrypted.
    """

    def __init__(self, views: Views, needed: Collection[str] = ()) -> None:
        self._views = views
        self._needed = needed
        self._wanted = trio.Event()
        self._reason = ""  # why the last object could not be decrypted

    def notice_change(self) -> None:
        """Try at once: keys have changed."""
        self._wanted.set()

    def missing(self) -> list[str]:
        """Return the needed resources with objects that cannot be decrypted."""
        return [name for name in self._needed if self._views[name].unreadable]

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await self._try_all()
        while missing := self.missing():
            log.error(
                "Waiting for keys: objects without which this server cannot work cannot be decrypted",
                extra={"resources": ",".join(missing), "err": self._reason},
            )
            await self._wait()
            await self._try_all()
        task_status.started()
        while True:
            await self._wait()
            await self._try_all()

    async def _wait(self) -> None:
        with trio.move_on_after(INTERVAL):
            await self._wanted.wait()
        self._wanted = trio.Event()

    async def _try_all(self) -> None:
        for view in self._views:
            if view.unreadable:
                await self._try(view.resource, sorted(view.unreadable))

    async def _try(self, resource: str, names: list[tuple[str, str]]) -> None:
        failed = 0
        for namespace, name in names:
            try:
                problem = await reread(self._views, Key(resource, namespace, name))
            except LogError as error:
                self._reason = str(error)
                return
            if problem:
                self._reason = problem
                failed += 1
                if failed == FAILURES:
                    return
