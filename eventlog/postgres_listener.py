"""Waiting for other replicas' appends: LISTEN on a connection of its own, and a poll behind it.

NOTIFY is only a wake-up: lost, doubled or late it changes nothing but latency. Whether it arrives at all is tested by
sending ourselves one; behind a pooler in transaction mode it does not, and then the poll is faster. Our own appends do
not wake us, since what this server appended it applies from memory.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from uuid import uuid4

import trio

from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.postgres_session import Pool, Session

logger = logging.getLogger(__name__)

CHANNEL = "kubechronicle"
POLL_SECONDS = 1.0  # behind working notifications: bounds the damage of a connection that died silently
POLL_WITHOUT_NOTIFICATIONS_SECONDS = 0.1
PROOF_SECONDS = 2.0  # how long a notification to ourselves may take before they count as not working
CHECK_SECONDS = 15.0  # how often a quiet listening connection is asked whether it is still there
BACKOFF_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # between attempts to connect; the last one repeats

NOTIFY = "select pg_notify($1, $2)"


class Listener:
    def __init__(self, connect: Callable[[], Awaitable[Session]], senders: Pool, *, own_pid: Callable[[], int]) -> None:
        self._connect = connect
        self._senders = senders
        self._own_pid = own_pid
        self._woken = trio.Event()
        self._proofs: dict[str, trio.Event] = {}
        self._warned = False
        self.works = False
        self.notifications = 0  # heard since the start, from others

    async def wait_notified(self) -> None:
        """Until a notification since the last call, or the poll interval."""
        with trio.move_on_after(POLL_SECONDS if self.works else POLL_WITHOUT_NOTIFICATIONS_SECONDS):
            await self._woken.wait()
        self._woken = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Keep listening, reconnecting for ever. Started once it is known whether notifications arrive, or that the
        first attempt failed."""
        failures = 0
        started = False
        while True:
            try:
                session = await self._connect()
            except LogError as error:
                logger.debug("the listener cannot connect: %s", error)
            else:
                try:
                    await self._prove(session)
                    failures = 0
                    if not started:
                        task_status.started()
                        started = True
                    await self._watch(session)
                except LogError as error:
                    logger.debug("the listener lost its connection: %s", error)
                finally:
                    self.works = False
                    session.terminate()
            self._woken.set()  # something may have been missed
            if not started:
                task_status.started()
                started = True
            await trio.sleep(BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)])
            failures += 1

    async def _prove(self, session: Session) -> None:
        """Listen, and see whether a notification sent over another connection arrives."""
        await session.listen(CHANNEL, self._heard)
        nonce = f"proof {uuid4()}"
        arrived = self._proofs[nonce] = trio.Event()
        try:
            await self._senders.fetch(NOTIFY, CHANNEL, nonce)
            with trio.move_on_after(PROOF_SECONDS):
                await arrived.wait()
        finally:
            del self._proofs[nonce]
        self.works = arrived.is_set()
        self._woken.set()
        if not self.works and not self._warned:
            self._warned = True
            logger.warning(
                "Postgres notifications do not arrive, probably because of a connection pooler in transaction mode: "
                "changes made by other servers are seen by polling every %g s. Connect directly or in session mode.",
                POLL_WITHOUT_NOTIFICATIONS_SECONDS,
            )

    async def _watch(self, session: Session) -> None:
        """Until the connection is gone. A dead peer answers nothing, so it is asked now and then."""
        while not session.closed:
            with trio.move_on_after(CHECK_SECONDS):
                await session.wait_closed()
            if not session.closed:
                with trio.move_on_after(CHECK_SECONDS):
                    await session.fetch("select 1")

    def _heard(self, sender: int, payload: str) -> None:
        proof = self._proofs.get(payload)
        if proof is not None:
            proof.set()
        elif sender != self._own_pid() and not payload.startswith("proof"):
            self.notifications += 1
            self._woken.set()
