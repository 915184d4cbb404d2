"""Tokens of service accounts in Secrets: put into those made for an account, and taken away with the account.

Does what kube-controller-manager's serviceaccount-token-controller does (api/access/account_tokens.py has the rules): a Secret
of type kubernetes.io/service-account-token gets a token, its namespace and the authority by which pods know this
server; one whose account is not there, or another one than it was made for, is deleted.
"""

from __future__ import annotations

import logging

import trio

from kubechronicle.actors.errors import ActorError
from kubechronicle.actors.loops.work_queue import WorkQueue
from kubechronicle.actors.reading.reads import Selection
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.access import account_tokens
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.errors import Compacted, LogError
from kubechronicle.eventlog.records import Operation

log = logging.getLogger(__name__)

COMPONENT = "serviceaccount-token-controller"
# The field manager under which kube-controller-manager writes the same.
MANAGER = "kube-controller-manager"
# Seconds before what failed is tried again, doubling.
FIRST_RETRY = 1.0
LONGEST_RETRY = 60.0
RESYNC_INTERVAL = 60.0

Place = tuple[str, str]
"""Namespace and name of a Secret."""


class AccountTokens:
    def __init__(self, store: Store, root_ca: bytes, sign: account_tokens.Sign) -> None:
        """``root_ca``: certificates (PEM), may be empty."""
        self._store = store
        self._root_ca = root_ca
        self._sign = sign
        self._secrets, self._accounts = self._type("secrets"), self._type("serviceaccounts")
        self._queue: WorkQueue[Place] = WorkQueue(first=FIRST_RETRY, longest=LONGEST_RETRY)

    def _type(self, plural: str) -> ResourceType:
        rt = self._store.registry.known("", "v1", plural)
        assert rt is not None, f"{plural} are a built-in resource"
        return rt

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch Secrets for new ones, and accounts for those that go."""
        self._queue = WorkQueue(first=FIRST_RETRY, longest=LONGEST_RETRY)
        task_status.started()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._queue.run)
            nursery.start_soon(self._follow, self._secrets)
            nursery.start_soon(self._follow, self._accounts)
            await self._work()

    async def _follow(self, rt: ResourceType) -> None:
        while True:
            try:
                watching = await self._store.reads.watch(rt, Selection(), revision=None)
                self._add_all("")
                while True:
                    events = await watching.cursor.next_batch(trio.current_time() + RESYNC_INTERVAL)
                    for event in events:
                        if event.operation is Operation.DELETE and rt is self._accounts:
                            self._add_all(event.entry.key.namespace)
                        elif event.operation is not Operation.DELETE and rt is self._secrets:
                            self._add(event.entry)
                    if not events:
                        self._add_all("")
            except Compacted:
                continue
            except (StatusError, LogError) as error:
                log.warning("%s could not be watched, trying again: %s", rt.plural, error)
                await trio.sleep(FIRST_RETRY)

    def _add_all(self, namespace: str) -> None:
        for entry in self._store.reads.entries(self._secrets.resource, namespace):
            self._add(entry)

    def _add(self, entry: Entry) -> None:
        if entry.fields.get("type") == account_tokens.SECRET_TYPE:
            self._queue.add((entry.key.namespace, entry.key.name))

    async def _work(self) -> None:
        while True:
            place = await self._queue.take()
            try:
                await self._settle(*place)
            except (StatusError, LogError, ActorError) as error:
                log.info("Secret %s/%s could not be looked after, trying again: %s", *place, error)
                self._queue.retry(place)
            else:
                self._queue.done(place)

    async def _settle(self, namespace: str, name: str) -> None:
        """Complete the Secret, or delete it for want of its account."""
        entry = self._store.reads.peek(self._secrets.resource, namespace, name)
        if entry is None:
            return
        secret = entry.object()
        account = self._account(namespace, account_tokens.account_name(secret))
        try:
            if account is None or not account_tokens.is_for(secret, account.uid):
                await self._delete_unless_known(entry)
            elif not account_tokens.is_complete(secret, self._root_ca):
                await self._complete(entry, account.uid)
        except StatusError as error:
            if error.code != 404:  # otherwise somebody else has deleted it
                raise

    def _account(self, namespace: str, name: str) -> Entry | None:
        return self._store.reads.peek(self._accounts.resource, namespace, name) if name else None

    def _target(self, entry: Entry) -> Target:
        return Target(rt=self._secrets, namespace=entry.key.namespace, name=entry.key.name, manager=MANAGER)

    async def _complete(self, entry: Entry, account_uid: str) -> None:
        def change(secret: Object) -> Object:
            if secret["metadata"]["uid"] != entry.uid:
                return secret
            return account_tokens.completed(secret, account_uid, root_ca=self._root_ca, sign=self._sign)

        await self._store.writes.edit(system_caller(COMPONENT, "update"), self._target(entry), change)

    async def _delete_unless_known(self, entry: Entry) -> None:
        """The account may have been made on another replica: what is not in the view is looked for in the log first."""
        await self._store.reads.wait_consistent()
        found = self._store.reads.peek(self._secrets.resource, entry.key.namespace, entry.key.name)
        if found is None or found.uid != entry.uid:
            return
        secret = found.object()
        account = self._account(entry.key.namespace, account_tokens.account_name(secret))
        if account is None or not account_tokens.is_for(secret, account.uid):
            options = DeleteOptions(precondition_uid=entry.uid)
            await self._store.writes.delete(system_caller(COMPONENT, "delete"), self._target(entry), options)
        else:
            await self._complete(found, account.uid)
