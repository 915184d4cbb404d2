"""Listener: waits for appends of other replicas, with LISTEN on the connection that appends, and with a poll.

A notification only wakes this server; a lost, doubled, late or forged one changes nothing but latency. Every role that
can connect can send one: so a payload is never an instruction, looks are paced, and in a flood the listener stops
listening for a while, and polls. The listener sends one notification to itself to test delivery. Behind a pooler in
transaction mode none arrives, and then the poll is more frequent. Our own appends do not wake this server, which
applies them from memory. Postgres sends a connection its own notification together with the answer of the statement. A
separate connection would be woken for each batch, which adds a tenth to the time of a single change.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from uuid import uuid4

import trio

from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.postgres.session import PostgresSession, SessionPool

logger = logging.getLogger(__name__)

CHANNEL = "kubechronicle"
POLL_SECONDS = 1.0  # while notifications work: bounds the delay after a connection that died silently
POLL_WITHOUT_NOTIFICATIONS_SECONDS = 0.1
PROBE_SECONDS = 2.0  # timeout of a notification to ourselves, after which notifications count as not working
CHECK_SECONDS = 15.0  # interval of the liveness check of the listening connection
BACKOFF_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # between attempts to connect; the last one repeats

NOTIFY = "select pg_notify($1, $2)"
BRANCH = "branch "  # begins a payload about a branch, whose id follows (branch_rows.py)
LOOK_AT_CLAIM = "room"  # payload that makes the sole appender look for a request (locks.py)
CLAIM_POLL_SECONDS = 5.0  # as long as no notification arrives, a request waits for this
CLAIM_PAUSE_SECONDS = 0.02  # between two looks for a request
LOOKS, LOOKS_PER_SECOND = 100, 200.0  # looks at once, and then per second: a look is two short queries
FLOOD = 5000  # notifications in a second; the head row allows fewer appends by far
QUIET_SECONDS = 30.0  # without listening, after a flood


class Listener:
    """``connection``: returns the session to listen on, which others may use under ``lock``. ``senders``: see
    ``_probe``."""

    def __init__(
        self, connection: Callable[[], Awaitable[PostgresSession]], lock: trio.Lock, senders: SessionPool
    ) -> None:
        self._connection = connection
        self._lock = lock
        self._senders = senders
        self._notified = trio.Event()
        self._claim_in_doubt = trio.Event()
        self._replaced = False  # the connection, since the last wait_claim_in_doubt
        self._looks, self._looked_at = float(LOOKS), -math.inf
        self._second, self._in_second = 0, 0
        self._flooded = trio.Event()
        self._probes: dict[str, trio.Event] = {}
        self._branches: dict[str, trio.Event] = {}
        self.on_branch: Callable[[str], None] = self.branch_changed
        self._warned = False
        self._own_pid = 0
        self.works = False
        self.notifications = 0  # received from others since the start

    def wake(self) -> None:
        """Let ``wait_notified`` return."""
        self._notified.set()

    async def wait_notified(self) -> None:
        """Return at a notification since the last call, or after the poll interval."""
        with trio.move_on_after(POLL_SECONDS if self.works else POLL_WITHOUT_NOTIFICATIONS_SECONDS):
            await self._notified.wait()
        await self._pace()
        self._notified = trio.Event()

    async def wait_branch(self, branch: str) -> None:
        """Return at the next notification about a branch."""
        await self._branches.setdefault(branch, trio.Event()).wait()

    def branch_changed(self, branch: str) -> None:
        """Let ``wait_branch`` return."""
        if (waiting := self._branches.pop(branch, None)) is not None:
            waiting.set()

    async def _pace(self) -> None:
        now = trio.current_time()
        self._looks = min(LOOKS, self._looks + (now - self._looked_at) * LOOKS_PER_SECOND) - 1
        self._looked_at = now
        if self._looks < 0:
            await trio.sleep(-self._looks / LOOKS_PER_SECOND)

    async def wait_claim_in_doubt(self) -> bool:
        """Return True when the connection was replaced since the last call; False when it is time to look for a request
        of shared appends: at a notification, or after some seconds."""
        with trio.move_on_after(CLAIM_POLL_SECONDS):
            await self._claim_in_doubt.wait()
        if not self._replaced:
            await trio.sleep(CLAIM_PAUSE_SECONDS)
        self._claim_in_doubt = trio.Event()
        replaced, self._replaced = self._replaced, False
        return replaced

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Listen, on one connection after another. Reports started once delivery was tested or the first attempt
        failed."""
        probed = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_listening, probed)
            await probed.wait()
            task_status.started()

    async def _keep_listening(self, probed: trio.Event) -> None:
        failures = 0
        while True:
            try:
                session = await self._connection()
                async with self._lock:
                    await session.listen(CHANNEL, self._on_notification)
                self._own_pid = session.backend_pid
                self._doubt_claim()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._check_connection, session, probed)
                    nursery.start_soon(self._rest_in_floods, session)
                    await session.wait_closed()
                    nursery.cancel_scope.cancel()
            except LogError as error:
                logger.debug("the listener has no connection: %s", error)
            failures, self.works = 0 if self.works else failures + 1, False
            self._notified.set()  # a notification may have been missed
            self._doubt_claim()
            probed.set()
            await trio.sleep(BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)])

    async def _check_connection(self, session: PostgresSession, probed: trio.Event) -> None:
        """Test the delivery of notifications; then query the server at intervals, since a dead peer sends nothing.

        While no delivery was proved, each interval has another test: a busy machine may have delayed the former one.
        """
        try:
            await self._probe()
            probed.set()
            while True:
                await trio.sleep(CHECK_SECONDS)
                async with self._lock:
                    with trio.move_on_after(CHECK_SECONDS):
                        await session.fetch("select 1")
                if not (self.works or self._flooded.is_set()):
                    await self._probe()
        except LogError as error:
            logger.debug("the listener's liveness check failed: %s", error)
            session.terminate()

    def _doubt_claim(self) -> None:
        self._replaced = True
        self._claim_in_doubt.set()

    async def _rest_in_floods(self, session: PostgresSession) -> None:
        """Stop listening for a while after a flood. The polls go on, and are more frequent meanwhile."""
        try:
            while True:
                await self._flooded.wait()
                logger.warning(
                    "more than %d notifications in a second: not listening for %g s. Which role sends NOTIFY %s?",
                    FLOOD,
                    QUIET_SECONDS,
                    CHANNEL,
                )
                self.works = False
                async with self._lock:
                    await session.execute(f"unlisten {CHANNEL}")
                await trio.sleep(QUIET_SECONDS)
                self._flooded = trio.Event()
                async with self._lock:
                    await session.execute(f"listen {CHANNEL}")
                await self._probe()
        except LogError as error:
            logger.debug("the listener could not rest: %s", error)
            session.terminate()

    def _count_notification(self) -> None:
        second = int(trio.current_time())
        if second != self._second:
            self._second, self._in_second = second, 0
        self._in_second += 1
        if self._in_second > FLOOD:
            self._flooded.set()

    async def _probe(self) -> None:
        """Test whether a notification from another connection (``senders``) arrives.

        If none can be sent, the listening connection is kept: the other connections may be full, and it may be the only
        one left for appends.
        """
        nonce = f"proof {uuid4()}"
        arrived = self._probes[nonce] = trio.Event()
        try:
            with trio.move_on_after(CHECK_SECONDS) as sending:
                await self._senders.fetch(NOTIFY, CHANNEL, nonce)
            if sending.cancelled_caught:
                return
            with trio.move_on_after(PROBE_SECONDS):
                await arrived.wait()
        except LogError as error:
            logger.debug("no notification could be sent: %s", error)
            return
        finally:
            del self._probes[nonce]
        self.works = arrived.is_set()
        self._notified.set()
        if not self.works and not self._warned:
            self._warned = True
            logger.warning(
                "Postgres notifications do not arrive, probably because of a connection pooler in transaction mode: "
                "changes made by other servers are seen by polling every %g s. Connect directly or in session mode.",
                POLL_WITHOUT_NOTIFICATIONS_SECONDS,
            )

    def _on_notification(self, sender: int, payload: str) -> None:
        self._count_notification()
        probe = self._probes.get(payload)
        if probe is not None:
            probe.set()
        elif payload == LOOK_AT_CLAIM:
            self._claim_in_doubt.set()
        elif payload.startswith(BRANCH):
            self.on_branch(payload.removeprefix(BRANCH))
        elif sender != self._own_pid and not payload.startswith("proof"):
            self.notifications += 1
            self._notified.set()
