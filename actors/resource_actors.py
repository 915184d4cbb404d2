"""The resource actors as one child of the supervision tree: one per resource type, started on demand.

They share no state, so each is restarted alone (one_for_one). While one keeps crashing, writes of its resource fail.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from kubechronicle.actors.resource_actor import Commit, ResourceActor, ResourceActorStatistics, Submit
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Transaction
from kubechronicle.eventlog.restarts import TaskFailures, keep_running, start_apart

# The longest pause in seconds before an actor is restarted: all writes of the resource wait for it.
LONGEST_PAUSE = 2.0


class ResourceActors:
    """``peek(resource, namespace, name)``: the object in the view. ``submit``: the appender's."""

    def __init__(
        self,
        *,
        peek: Callable[[str, str, str], Entry | None],
        submit: Submit,
        failures: TaskFailures | None = None,
    ) -> None:
        self._peek = peek
        self._submit = submit
        self._actors: dict[str, ResourceActor] = {}
        self._nursery: trio.Nursery | None = None
        self._failures = failures if failures is not None else TaskFailures()

    def begin(self, transaction: Transaction, *, deadline: float) -> Commit:
        """Send a transaction to the actor of its main change. MailboxFull: nothing happened."""
        resource = transaction.changes[transaction.main].key.resource
        actor = self._actors.get(resource)
        if actor is None:
            actor = self._make(resource)
        return actor.begin(transaction, deadline=deadline)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the actors, including those started later, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                for actor in self._actors.values():
                    nursery.start_soon(self._keep_running, actor)
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def _make(self, resource: str) -> ResourceActor:
        def current_revision(namespace: str, name: str) -> int:
            entry = self._peek(resource, namespace, name)
            return entry.revision if entry is not None else 0

        actor = ResourceActor(resource, current_revision=current_revision, submit=self._submit)
        self._actors[resource] = actor
        if self._nursery is not None:
            start_apart(self._nursery, self._keep_running, actor)
        return actor

    async def _keep_running(self, actor: ResourceActor) -> None:
        name = f"actor of {actor.resource}"
        await keep_running(name, actor.run, self._failures, essential=True, longest=LONGEST_PAUSE)

    def statistics(self) -> dict[str, ResourceActorStatistics]:
        return {resource: actor.statistics() for resource, actor in self._actors.items()}
