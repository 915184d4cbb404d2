"""Tokens of service accounts in Secrets: those made for an account, and the tracking of their use."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import trio

from kubechronicle.actors.loops.bootstrap.authentication_trust import KeptConfigMap
from kubechronicle.actors.loops.edits import NO_CHANGE, delete_if_exists, deletion_of, edit_if_exists
from kubechronicle.actors.loops.reflector import follow_each
from kubechronicle.actors.loops.retries import RETRIED
from kubechronicle.actors.loops.work_queue import WorkQueue
from kubechronicle.actors.reading.selection import in_turns
from kubechronicle.actors.store import Store
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.access import account_tokens
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry, Event
from kubechronicle.eventlog.records import Operation

# -- account tokens ----------------------------------------------------------------------------------------------------
#
# Tokens of service accounts in Secrets: added to the Secrets made for an account, deleted with the account.
#
# Does the work of kube-controller-manager's serviceaccount-token-controller (rules: api/access/account_tokens.py). A
# Secret of type kubernetes.io/service-account-token gets a token, its namespace and the certificate authority by which
# pods know this server. It is deleted if its account does not exist, or is not the one it was made for.


CONTROLLER = "serviceaccount-token-controller"
# The field manager under which kube-controller-manager writes the same.
MANAGER = "kube-controller-manager"
# Seconds before a failed key is retried, doubling.
FIRST_RETRY = 1.0
LONGEST_RETRY = 60.0
RESYNC_INTERVAL = 60.0

SecretKey = tuple[str, str]
"""Namespace and name of a Secret."""


class AccountTokens:
    """``root_ca``: certificates (PEM), may be empty."""

    def __init__(self, store: Store, root_ca: bytes, sign: account_tokens.Sign) -> None:
        self._store = store
        self._root_ca = root_ca
        self._sign = sign
        self._secrets = store.registry.builtin("", "v1", "secrets")
        self._accounts = store.registry.builtin("", "v1", "serviceaccounts")
        self._queue: WorkQueue[SecretKey] = WorkQueue(
            first=FIRST_RETRY, longest=LONGEST_RETRY, measures=store.queue(CONTROLLER)
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow Secrets for new ones, and accounts for deleted ones."""
        self._queue = WorkQueue(first=FIRST_RETRY, longest=LONGEST_RETRY, measures=self._store.queue(CONTROLLER))
        task_status.started()
        async with trio.open_nursery() as nursery:
            self._queue.start(nursery, self._reconcile, component=CONTROLLER)
            changes = ((self._secrets, self._on_secrets), (self._accounts, self._on_accounts))
            follow_each(
                nursery, self._store.reads, changes, component=CONTROLLER, on_list=self._add_all, resync=RESYNC_INTERVAL
            )

    async def _on_secrets(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.operation is not Operation.DELETE:
                self._add(event.entry)

    async def _on_accounts(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.operation is Operation.DELETE:
                await self._add_secrets_of(event.entry.key.namespace)

    async def _add_all(self) -> None:
        await self._add_secrets_of("")

    async def _add_secrets_of(self, namespace: str) -> None:
        async for part in in_turns(self._store.reads.entries(self._secrets.resource, namespace)):
            for entry in part:
                self._add(entry)

    def _add(self, entry: Entry) -> None:
        if entry.fields.get("type") == account_tokens.SECRET_TYPE:
            self._queue.add((entry.key.namespace, entry.key.name))

    async def _reconcile(self, key: SecretKey) -> float:
        """Complete the Secret, or delete it if it has no account."""
        namespace, name = key
        entry = self._store.reads.peek(self._secrets.resource, namespace, name)
        if entry is None:
            return 0.0
        secret = entry.object()
        account = self._account(namespace, account_tokens.account_name(secret))
        if account is None or not account_tokens.is_for(secret, account.uid):
            await self._delete_after_consistent_read(entry)
        elif not account_tokens.is_complete(secret, self._root_ca):
            await self._complete(entry, account.uid)
        return 0.0

    def _account(self, namespace: str, name: str) -> Entry | None:
        return self._store.reads.peek(self._accounts.resource, namespace, name) if name else None

    def _target(self, entry: Entry) -> Target:
        return Target(rt=self._secrets, namespace=entry.key.namespace, name=entry.key.name, manager=MANAGER)

    async def _complete(self, entry: Entry, account_uid: str) -> None:
        def change(secret: Object) -> Object:
            if secret["metadata"]["uid"] != entry.uid:
                return secret
            return account_tokens.completed(secret, account_uid, root_ca=self._root_ca, sign=self._sign)

        await edit_if_exists(self._store, CONTROLLER, self._target(entry), change, cause=entry.revision)

    async def _delete_after_consistent_read(self, entry: Entry) -> None:
        """Delete the Secret if the newest state has no account for it: another replica may just have created one."""
        await self._store.reads.wait_consistent()
        current = self._store.reads.peek(self._secrets.resource, entry.key.namespace, entry.key.name)
        if current is None or current.uid != entry.uid:
            return
        secret = current.object()
        account = self._account(entry.key.namespace, account_tokens.account_name(secret))
        if account is None or not account_tokens.is_for(secret, account.uid):
            options = DeleteOptions(precondition_uid=entry.uid)
            name = account_tokens.account_name(secret)
            gone = deletion_of(self._store.reads, self._accounts.resource, entry.key.namespace, name)
            await delete_if_exists(
                self._store, CONTROLLER, self._target(entry), options, cause=gone or current.revision
            )


# -- legacy tokens -----------------------------------------------------------------------------------------------------
#
# Tracking of tokens in Secrets: the day of their last use (KEP-2799). Administrators and kube-controller-manager's
# cleaner read it before they delete such a token.
#
#     label kubernetes.io/legacy-token-last-used=YYYY-MM-DD on the Secret, written at most once a day
#     ConfigMap kube-apiserver-legacy-service-account-token-tracking of kube-system, since: YYYY-MM-DD, the first day


log = logging.getLogger(__name__)

LAST_USED: Final = "kubernetes.io/legacy-token-last-used"
CONFIG_MAP: Final = "kube-apiserver-legacy-service-account-token-tracking"
SINCE: Final = "since"
TRACKING: Final = "legacy-token-tracking-controller"
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
        self._kept = KeptConfigMap(store, CONFIG_MAP, _since, component=TRACKING, interval=INTERVAL)
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

        target = Target(rt=self._secrets, namespace=namespace, name=name, manager=TRACKING)
        await edit_if_exists(self._store, TRACKING, target, change, cause=NO_CHANGE)


def _since(held: Mapping[str, str]) -> dict[str, str]:
    """Return the ConfigMap's data with the first day of tracking. A valid day is kept."""
    try:
        valid = bool(_DATE.fullmatch(held.get(SINCE, ""))) and bool(date.fromisoformat(held[SINCE]))
    except ValueError:
        valid = False
    return dict(held) if valid else {**held, SINCE: today().isoformat()}
