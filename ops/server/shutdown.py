"""Shutdown of a server: the first signal drains it, a second one stops it at once."""

from __future__ import annotations

import logging
import signal
from functools import partial
from typing import TYPE_CHECKING

import trio

from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.restarts import TaskFailures, keep_running
from kubechronicle.ops.settings.settings import Settings

if TYPE_CHECKING:
    from kubechronicle.ops.server.assembly import Assembly

log = logging.getLogger(__name__)

# Seconds for the whole drain. Kubelets give a pod 30, systemd gives a service 90.
DRAIN_TIMEOUT = 25.0
# Seconds in which clients of a replaced process may close their connections (Server.drain).
HANDOVER_PATIENCE = 5.0


class Shutdown:
    """Drain the server at SIGTERM or SIGINT, and stop it at once at a second signal."""

    def __init__(self, settings: Settings) -> None:
        self.scope = trio.CancelScope()
        """The scope of everything that serves."""
        self.assembly: Assembly | None = None
        self._delay = settings.shutdown_delay_duration
        self._limit = DRAIN_TIMEOUT + settings.shutdown_watch_termination_grace_period
        if settings.shutdown_send_retry_after:
            self._limit += settings.request_timeout

    async def start(self, nursery: trio.Nursery, failures: TaskFailures) -> None:
        """Begin to wait for signals in the nursery."""
        waiting = trio.Event()
        keep = partial(keep_running, returns=True, up=waiting)
        nursery.start_soon(keep, "signals", self.wait_for_signals, failures)
        await waiting.wait()

    async def wait_for_signals(self, *, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
            task_status.started()
            number = await anext(received)
            log.info("Stopping", extra={"signal": signal.Signals(number).name})
            if self.assembly is None:
                self.scope.cancel()
                return
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._drain, self.assembly, nursery.cancel_scope)
                    await anext(received)
                    log.warning("Stopping at once")
                    nursery.cancel_scope.cancel()
            finally:
                self.scope.cancel()

    async def hand_over(self) -> None:
        """Drain this process after a successor has taken over its port."""
        if self.assembly is not None:
            with trio.move_on_after(HANDOVER_PATIENCE + DRAIN_TIMEOUT):
                await self.assembly.hand_over(HANDOVER_PATIENCE)
        self.scope.cancel()

    async def _drain(self, assembly: Assembly, done: trio.CancelScope) -> None:
        assembly.draining = True  # /readyz fails from here on
        await trio.sleep(self._delay)
        with trio.move_on_after(self._limit) as limit:
            try:
                await assembly.drain()
            except LogError as error:
                log.warning("Could not leave the endpoints", extra={"err": str(error)})
        if limit.cancelled_caught:
            log.warning("Draining took too long and was cut short", extra={"seconds": self._limit})
        done.cancel()
