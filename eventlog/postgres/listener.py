"""Waiting for other replicas' appends: LISTEN on the connection that appends, and a poll behind it.

NOTIFY is only a wake-up: lost, doubled or late it changes nothing but latency. Whether it arrives at all is tested by
sending ourselves one; behind a pooler in transaction mode it does not, and then the poll is faster. Our own appends do
not wake us, since what this server appended it applies from memory. Postgres tells a connection of its own notification
together with the answer; another connection would have to be woken for each batch, and this server by it, which costs
a lone change a tenth of its time.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from uuid import uuid4

import trio

from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.postgres.session import Pool, Session

logger = logging.getLogger(__name__)

CHANNEL = "kubechronicle"
POLL_SECONDS = 1.0  # behind working notifications: bounds the damage of a connection that died silently
POLL_WITHOUT_NOTIFICATIONS_SECONDS = 0.1
PROOF_SECONDS = 2.0  # how long a notification to ourselves may take before they count as not working
CHECK_SECONDS = 15.0  # how often the listening connection is asked whether it is still there
BACKOFF_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # between attempts to connect; the last one repeats

NOTIFY = "select pg_notify($1, $2)"
RELEASE_CLAIM = "room"  # what somebody says who is to append beside a server that appends alone (sole.py)


class Listener:
    """``connection``: the session to listen on, opened if there is none. It may be used by others, under ``lock``."""

    def __init__(self, connection: Callable[[], Awaitable[Session]], lock: trio.Lock, senders: Pool) -> None:
        self._connection = connection
        self._lock = lock
        self._senders = senders
        self._woken = trio.Event()
        self._claim_in_doubt = trio.Event()
        self._proofs: dict[str, trio.Event] = {}
        self._warned = False
        self._own_pid = 0
        self.works = False
        self.notifications = 0  # heard since the start, from others

    async def wait_notified(self) -> None:
        """Until a notification since the last call, or the poll interval."""
        with trio.move_on_after(POLL_SECONDS if self.works else POLL_WITHOUT_NOTIFICATIONS_SECONDS):
            await self._woken.wait()
        self._woken = trio.Event()

    async def wait_claim_in_doubt(self) -> None:
        """Until, since the last call, the connection was another or somebody asked for room."""
        await self._claim_in_doubt.wait()
        self._claim_in_doubt = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Keep listening, on one connection after another. Started once it is known whether notifications arrive, or
        that the first attempt failed."""
        proved = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_listening, proved)
            await proved.wait()
            task_status.started()

    async def _keep_listening(self, proved: trio.Event) -> None:
        failures = 0
        while True:
            try:
                session = await self._connection()
                async with self._lock:
                    await session.listen(CHANNEL, self._heard)
                self._own_pid = session.backend_pid
                self._claim_in_doubt.set()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._look_after, session, proved)
                    await session.wait_closed()
                    nursery.cancel_scope.cancel()
            except LogError as error:
                logger.debug("the listener has no connection: %s", error)
            failures, self.works = 0 if self.works else failures + 1, False
            self._woken.set()  # something may have been missed
            self._claim_in_doubt.set()
            proved.set()
            await trio.sleep(BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)])

    async def _look_after(self, session: Session, proved: trio.Event) -> None:
        """See whether notifications arrive; then ask now and then whether the server is there: a dead peer says
        nothing, and is found out by the question's never being answered."""
        try:
            known = await self._prove()
            proved.set()
            while True:
                await trio.sleep(CHECK_SECONDS)
                async with self._lock:
                    with trio.move_on_after(CHECK_SECONDS):
                        await session.fetch("select 1")
                known = known or await self._prove()
        except LogError as error:
            logger.debug("the listener's question failed: %s", error)
            session.terminate()

    async def _prove(self) -> bool:
        """See whether a notification sent over another connection arrives. False if none could be sent: that says
        nothing of the connection that listens, over which perhaps the only appends go that Postgres has room for."""
        nonce = f"proof {uuid4()}"
        arrived = self._proofs[nonce] = trio.Event()
        try:
            with trio.move_on_after(CHECK_SECONDS) as sending:
                await self._senders.fetch(NOTIFY, CHANNEL, nonce)
            if sending.cancelled_caught:
                return False
            with trio.move_on_after(PROOF_SECONDS):
                await arrived.wait()
        except LogError as error:
            logger.debug("no notification could be sent: %s", error)
            return False
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
        return True

    def _heard(self, sender: int, payload: str) -> None:
        proof = self._proofs.get(payload)
        if proof is not None:
            proof.set()
        elif payload == RELEASE_CLAIM:
            self._claim_in_doubt.set()
        elif sender != self._own_pid and not payload.startswith("proof"):
            self.notifications += 1
            self._woken.set()
