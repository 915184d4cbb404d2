"""A ConfigMap of kube-system that the server itself keeps: created when it is missing, repaired when it was changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import trio

from kubechronicle.actors.loops.edits import create_unless_exists
from kubechronicle.actors.loops.reflector import Reflector
from kubechronicle.actors.loops.retries import FIRST_DELAY, LONGEST_DELAY, first_pass
from kubechronicle.actors.reading.reads import Selection
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.selectors.field_selectors import parse_field_selector
from kubechronicle.eventlog.backoff import delays

NAMESPACE: Final = "kube-system"

Wanted = Callable[[Mapping[str, str]], dict[str, str]]
"""Returns the data that the ConfigMap should have, from the data it has."""


class KeptConfigMap:
    """``wanted`` is called after every change of the ConfigMap, and every ``interval`` seconds.

    ``ready`` is True once the ConfigMap was found or put in order, or admission has rejected it: kube-apiserver is
    ready as soon as its controllers have started, so that an administrator can repair admission.
    """

    def __init__(self, store: Store, name: str, wanted: Wanted, *, component: str, interval: float) -> None:
        self.ready = False
        self._store = store
        self._name, self._wanted = name, wanted
        self._component, self._interval = component, interval
        self._rt = store.registry.builtin("", "v1", "configmaps")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the ConfigMap until cancelled. Report started after the first attempt, also if that failed."""
        await first_pass(
            self.reconcile, subject=f"the ConfigMap {self._name}", on_error=self._failed, task_status=task_status
        )
        fields = parse_field_selector(f"metadata.name={self._name}", self._rt)
        reflector = Reflector(
            self._store.reads,
            self._rt,
            component=self._component,
            on_list=self.reconcile,
            selection=Selection(namespace=NAMESPACE, fields=fields),
            resync=self._interval,
            delays=delays(FIRST_DELAY, LONGEST_DELAY),
        )
        await reflector.run()

    def _failed(self, error: Exception) -> None:
        if isinstance(error, StatusError):
            self.ready = True

    async def reconcile(self) -> None:
        """Create or repair the ConfigMap. StatusError, LogError, ActorError."""
        target = Target(rt=self._rt, namespace=NAMESPACE, name=self._name, manager=self._component)
        present = self._store.reads.peek(self._rt.resource, NAMESPACE, self._name)
        if present is None:
            obj = {"metadata": {"name": self._name}, "data": self._wanted({})}
            await create_unless_exists(self._store, self._component, target, obj)
        elif self._changed(held := present.object()) is not held:
            caller = system_caller(self._component, "update", cause=present.revision)
            await self._store.writes.edit(caller, target, self._changed)
        self.ready = True

    def _changed(self, obj: dict[str, Any]) -> dict[str, Any]:
        held = obj.get("data") or {}
        wanted = self._wanted(held)
        return obj if wanted == held else {**obj, "data": wanted}
