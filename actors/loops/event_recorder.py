"""Events a control loop records about objects. What is told again of the same object is counted in one event, whose
name follows from what it tells; so a fault that stays makes one event, and two servers that see it share it.
"""

from __future__ import annotations

import hashlib
import logging
from datetime import UTC, datetime

from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry

log = logging.getLogger(__name__)


class EventRecorder:
    def __init__(self, store: Store, component: str) -> None:
        self._store = store
        self._component = component
        rt = store.registry.known("", "v1", "events")
        assert rt is not None, "events are a built-in resource"
        self._rt = rt

    async def warn(self, entry: Entry, reason: str, message: str, *, action: str = "") -> None:
        """Tell of something wrong with an object: an Event of type Warning, in its namespace or in ``default``."""
        log.warning("%s/%s %s: %s", entry.key.resource, entry.key.name, reason, message)
        involved = entry.object()
        namespace = entry.key.namespace or "default"
        digest = hashlib.sha256(f"{entry.key}{entry.uid}{reason}{message}".encode()).hexdigest()[:32]
        name = f"{entry.key.name}.{digest[:16]}"
        if names.dns_subdomain(name):
            name = digest  # the name of an address of IPv6, for one, is no name for an Event
        target = Target(rt=self._rt, namespace=namespace, name=name, manager=self._component)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

        def again(event: Object) -> Object:
            return {**event, "count": event.get("count", 0) + 1, "lastTimestamp": now}

        try:
            if self._store.reads.peek(self._rt.resource, namespace, target.name) is not None:
                await self._store.writes.edit(system_caller(self._component, "update"), target, again)
            else:
                event = self._event(involved, target, reason, message, action, now)
                await self._store.writes.create(system_caller(self._component, "create"), target, event)
        except StatusError as error:
            # The namespace ends, a quota is full, another server was faster: the log line above must do.
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
            "type": "Warning",
            "reportingComponent": self._component,
        }
        return {**event, "action": action} if action else event
