"""How the repair loops go about it: a first pass that must succeed, then one every few minutes."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from kubechronicle.actors.allocation.metrics import RepairFigures
from kubechronicle.actors.errors import ActorError
from kubechronicle.api.errors.status import StatusError
from kubechronicle.eventlog.errors import LogError

log = logging.getLogger(__name__)

# kube-apiserver's --service-cluster-ip repair interval.
INTERVAL = 180.0
# The first pass is repeated this often before the loop gives up and is started anew.
START_ATTEMPTS = 10
RETRY_DELAY = 0.5


async def keep_checking(
    check: Callable[[], Awaitable[None]],
    figures: RepairFigures,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Check, report started, check again and again. Raises what the first pass fails with to the end."""
    for attempt in range(START_ATTEMPTS):
        try:
            await check()
            break
        except (StatusError, LogError, ActorError):
            figures.failures += 1
            if attempt == START_ATTEMPTS - 1:
                raise
            await trio.sleep(RETRY_DELAY)
    task_status.started()
    while True:
        await trio.sleep(INTERVAL)
        try:
            await check()
        except (StatusError, LogError, ActorError) as error:
            figures.failures += 1
            log.warning("a repair pass failed, the next one is in %d seconds: %s", INTERVAL, error)
