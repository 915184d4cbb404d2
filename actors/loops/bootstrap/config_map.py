"""A ConfigMap of kube-system that the server itself keeps: made when it is missing, put right when it was changed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import trio

from kubechronicle.actors.errors import ActorError
from kubechronicle.actors.reading.reads import Selection
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.selectors.field_selectors import parse_field_selector
from kubechronicle.eventlog.errors import Compacted, LogError

log = logging.getLogger(__name__)

NAMESPACE: Final = "kube-system"
# Seconds before what failed is tried again, doubling.
FIRST_RETRY: Final = 0.5
LONGEST_RETRY: Final = 60.0

Wanted = Callable[[Mapping[str, str]], dict[str, str]]
"""The data there should be, of the data there are."""


class KeptConfigMap:
    """``wanted`` is asked after every change of the ConfigMap, and every ``interval`` seconds; ``ready`` once it has
    been looked at."""

    def __init__(self, store: Store, name: str, wanted: Wanted, *, component: str, interval: float) -> None:
        self.ready = False
        self._store = store
        self._name, self._wanted = name, wanted
        self._component, self._interval = component, interval
        self._rt = self._type()

    def _type(self) -> ResourceType:
        rt = self._store.registry.known("", "v1", "configmaps")
        assert rt is not None, "configmaps are a built-in resource"
        return rt

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep it until cancelled. Reports started when it has been looked at, or that has failed once."""
        retry, started = FIRST_RETRY, False
        while True:
            try:
                if not started:
                    await self.settle()
                    started = True
                    task_status.started()
                await self._follow()
            except Compacted:
                continue
            except (StatusError, LogError, ActorError) as error:
                log.warning("ConfigMap %s could not be kept, trying again: %s", self._name, error)
                if not started:
                    started = True
                    task_status.started()
                await trio.sleep(retry)
                retry = min(2 * retry, LONGEST_RETRY)

    async def _follow(self) -> None:
        fields = parse_field_selector(f"metadata.name={self._name}", self._rt)
        selection = Selection(namespace=NAMESPACE, fields=fields)
        watching = await self._store.reads.watch(self._rt, selection, revision=None)
        while True:
            await self.settle()
            await watching.cursor.next_batch(trio.current_time() + self._interval)

    async def settle(self) -> None:
        """Make it, or put it right. StatusError, LogError, ActorError."""
        target = Target(rt=self._rt, namespace=NAMESPACE, name=self._name, manager=self._component)
        present = self._store.reads.peek(self._rt.resource, NAMESPACE, self._name)
        if present is None:
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": self._name}, "data": self._wanted({})}
            try:
                await self._store.writes.create(system_caller(self._component, "create"), target, body)
            except StatusError as error:
                if error.reason != "AlreadyExists":
                    raise
        elif self._changed(held := present.object()) is not held:
            await self._store.writes.edit(system_caller(self._component, "update"), target, self._changed)
        self.ready = True

    def _changed(self, obj: dict[str, Any]) -> dict[str, Any]:
        held = obj.get("data") or {}
        wanted = self._wanted(held)
        return obj if wanted == held else {**obj, "data": wanted}
