"""Signals become an orderly end of a server, and a second one a quick end."""

from __future__ import annotations

import logging
import signal
from typing import TYPE_CHECKING

import trio

from kubechronicle.eventlog.errors import LogError
from kubechronicle.ops.settings.settings import Settings

if TYPE_CHECKING:
    from kubechronicle.ops.server.assembly import Assembly

log = logging.getLogger(__name__)

# Seconds an orderly end may take in all before it is cut short: kubelets give a pod 30, systemd a service 90.
DRAIN_TIMEOUT = 25.0
# Seconds in which the clients of a server that is replaced go by themselves (Server.drain).
PATIENCE = 5.0


class Stop:
    """Turns signals into an orderly end, and a second one into a quick one. ``scope`` is everything that serves."""

    def __init__(self, settings: Settings) -> None:
        self.scope = trio.CancelScope()
        self.assembly: Assembly | None = None
        self._delay = settings.shutdown_delay_duration

    async def wait_for_signals(self, *, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
            task_status.started()
            number = await anext(received)
            log.info("Stopping", extra={"signal": signal.Signals(number).name})
            if self.assembly is None:
                self.scope.cancel()
                return
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._drain, self.assembly, nursery.cancel_scope)
                await anext(received)
                log.warning("Stopping at once")
                nursery.cancel_scope.cancel()
            self.scope.cancel()

    async def hand_over(self) -> None:
        """End in order, with another process serving in the place of this one: the server as a whole goes on."""
        if self.assembly is not None:
            with trio.move_on_after(PATIENCE + DRAIN_TIMEOUT):
                await self.assembly.hand_over(PATIENCE)
        self.scope.cancel()

    async def _drain(self, assembly: Assembly, done: trio.CancelScope) -> None:
        assembly.draining = True  # /readyz fails from here on
        await trio.sleep(self._delay)
        with trio.move_on_after(DRAIN_TIMEOUT) as limit:
            try:
                await assembly.drain()
            except LogError as error:
                log.warning("Could not leave the endpoints", extra={"err": str(error)})
        if limit.cancelled_caught:
            log.warning("Draining took too long and was cut short", extra={"seconds": DRAIN_TIMEOUT})
        done.cancel()
