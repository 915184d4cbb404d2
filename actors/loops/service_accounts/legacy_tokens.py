"""Tracking of tokens in Secrets: the day of their last use (KEP-2799). Administrators and kube-controller-manager's
cleaner read it before they delete such a token.

    label kubernetes.io/legacy-token-last-used=YYYY-MM-DD on the Secret, written at most once a day
    ConfigMap kube-apiserver-legacy-service-account-token-tracking of kube-system, since: YYYY-MM-DD, the first day
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import trio

from kubechronicle.actors.loops.bootstrap.config_map import KeptConfigMap
from kubechronicle.actors.loops.causes import NO_CHANGE
from kubechronicle.actors.loops.edits import edit_if_exists
from kubechronicle.actors.loops.retries import RETRIED
from kubechronicle.actors.store import Store
from kubechronicle.actors.writing.writes import Target

log = logging.getLogger(__name__)

LAST_USED: Final = "kubernetes.io/legacy-token-last-used"
CONFIG_MAP: Final = "kube-apiserver-legacy-service-account-token-tracking"
SINCE: Final = "since"
COMPONENT: Final = "legacy-token-tracking-controller"
INTERVAL: Final = 300.0
# Uses that wait to be written. Further ones are dropped, until the next use.
MAX_WAITING: Final = 1024

_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")


def today() -> date:
    return datetime.now(UTC).date()


def is_current(label: str, day: date) -> bool:
    """Return True if the label is up to date. Another server's clock may be past midnight already."""
    return label in (day.isoformat(), (day + timedelta(days=1)).isoformat())


class LegacyTokenTracking:
    """``used`` may be called from any task. ``ready`` is True once the ConfigMap exists."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept = KeptConfigMap(store, CONFIG_MAP, _since, component=COMPONENT, interval=INTERVAL)
        self._new_uses, self._uses = trio.open_memory_channel[tuple[str, str, str]](MAX_WAITING)
        self._secrets = store.registry.builtin("", "v1", "secrets")

    @property
    def ready(self) -> bool:
        return self._kept.ready

    @ready.setter
    def ready(self, ready: bool) -> None:
        self._kept.ready = ready

    def used(self, namespace: str, name: str, uid: str) -> bool:
        """Note that the Secret's token was used today. Return False if the queue is full."""
        try:
            self._new_uses.send_nowait((namespace, name, uid))
        except trio.WouldBlock:
            return False
        return True

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the ConfigMap and write the labels until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(lambda *, task_status: self._kept.run(task_status=task_status))
            task_status.started()
            while True:
                namespace, name, uid = await self._uses.receive()
                try:
                    await self._label(namespace, name, uid)
                except RETRIED as error:
                    log.warning("The use of the token of Secret %s/%s was not noted: %s", namespace, name, error)

    async def _label(self, namespace: str, name: str, uid: str) -> None:
        def change(secret: dict[str, Any]) -> dict[str, Any]:
            metadata, day = secret["metadata"], today()
            labels = metadata.get("labels") or {}
            if metadata["uid"] != uid or is_current(labels.get(LAST_USED, ""), day):
                return secret
            return {**secret, "metadata": {**metadata, "labels": {**labels, LAST_USED: day.isoformat()}}}

        target = Target(rt=self._secrets, namespace=namespace, name=name, manager=COMPONENT)
        await edit_if_exists(self._store, COMPONENT, target, change, cause=NO_CHANGE)


def _since(held: Mapping[str, str]) -> dict[str, str]:
    """Return the ConfigMap's data with the first day of tracking. A valid day is kept."""
    try:
        valid = bool(_DATE.fullmatch(held.get(SINCE, ""))) and bool(date.fromisoformat(held[SINCE]))
    except ValueError:
        valid = False
    return dict(held) if valid else {**held, SINCE: today().isoformat()}
