"""EventRecorder: Events that a control loop records about objects.

The name of an Event is derived from the object and the message. A message repeated about the same object only
increments the count of one Event. So a lasting fault makes one Event, shared by all servers that see it.
"""

from __future__ import annotations

import hashlib
import logging
from datetime import UTC, datetime
from typing import Final

import trio

from kubechronicle.actors.loops.retries import RETRIED
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.positions import Loss
from kubechronicle.eventlog.tail import Tail

log = logging.getLogger(__name__)


class EventRecorder:
    def __init__(self, store: Store, component: str) -> None:
        self._store = store
        self._component = component
        self._rt = store.registry.builtin("", "v1", "events")

    async def warn(self, entry: Entry, reason: str, message: str, *, action: str = "") -> None:
        """Log a warning about an object, and record it as an Event of type Warning."""
        log.warning("%s/%s %s: %s", entry.key.resource, entry.key.name, reason, message)
        await self.record(entry, reason, message, action=action)

    async def record(
        self, entry: Entry, reason: str, message: str, *, action: str = "", event_type: str = "Warning"
    ) -> None:
        """Record an Event about an object, in its namespace or in ``default``."""
        involved = entry.object()
        namespace = entry.key.namespace or "default"
        digest = hashlib.sha256(f"{entry.key}{entry.uid}{reason}{message}".encode()).hexdigest()[:32]
        name = f"{entry.key.name}.{digest[:16]}"
        if names.dns_subdomain(name):
            name = digest  # the object's name is no Event name, such as an IPv6 address
        target = Target(rt=self._rt, namespace=namespace, name=name, manager=self._component)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

        def repeated(event: Object) -> Object:
            return {**event, "count": event.get("count", 0) + 1, "lastTimestamp": now}

        try:
            if self._store.reads.peek(self._rt.resource, namespace, target.name) is not None:
                await self._store.writes.edit(
                    system_caller(self._component, "update", cause=entry.revision), target, repeated
                )
            else:
                event = self._event(involved, target, reason, message, action, now) | {"type": event_type}
                await self._store.writes.create(
                    system_caller(self._component, "create", cause=entry.revision), target, event
                )
        except StatusError as error:
            # The namespace is terminating, a quota is full, or another server was faster: the log line above remains.
            log.info("the event %s could not be recorded: %s", target.name, error)

    def _event(self, involved: Object, target: Target, reason: str, message: str, action: str, now: str) -> Object:
        meta = involved["metadata"]
        reference = {
            "apiVersion": involved["apiVersion"],
            "kind": involved["kind"],
            "namespace": meta.get("namespace"),
            "name": meta["name"],
            "uid": meta.get("uid"),
            "resourceVersion": meta.get("resourceVersion"),
        }
        event = {
            "apiVersion": self._rt.api_version,
            "kind": self._rt.kind,
            "metadata": {"name": target.name, "namespace": target.namespace},
            "involvedObject": {name: value for name, value in reference.items() if value},
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "reportingComponent": self._component,
        }
        return {**event, "action": action} if action else event


# -- log losses --------------------------------------------------------------------------------------------------------
#
# Records an Event for each time that the log went back (eventlog/positions.py), about the Service ``kubernetes``.
#
# Every server tells what it had applied itself, so servers may name different changes. The Event is written to the log
# as it is now, when it takes writes again.


COMPONENT: Final = "kubechronicle"
REASON: Final = "ChangesLost"
RETRY_DELAY: Final = 2.0  # seconds between attempts to write the Event
ATTEMPTS: Final = 150
LONGEST: Final = 1000  # characters of the message, as Events limit them


class LogLosses:
    """The control loop."""

    def __init__(self, store: Store, tail: Tail) -> None:
        self._store = store
        self._tail = tail
        self._recorder = EventRecorder(store, COMPONENT)
        self._recorded = len(tail.losses)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            lost = self._tail.lost
            while self._recorded < len(self._tail.losses):
                await self._record(self._tail.losses[self._recorded])
                self._recorded += 1
            await lost.wait()

    async def _record(self, loss: Loss) -> None:
        for _ in range(ATTEMPTS):
            try:
                entry = self._store.reads.peek("services", "default", "kubernetes")
                entry = entry or self._store.reads.peek("namespaces", "", "default")
                if entry is not None:
                    await self._recorder.warn(entry, REASON, loss.summary()[:LONGEST])
                    return
            except RETRIED:
                pass
            await trio.sleep(RETRY_DELAY)
