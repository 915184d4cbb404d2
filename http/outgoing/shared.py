"""The parts that all clients of this server share: ways to other servers, metrics, deadlines, tasks beside requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from kubechronicle.eventlog.restarts import start_apart
from kubechronicle.http.outgoing.deadlines import Deadlines
from kubechronicle.http.outgoing.errors import AskError
from kubechronicle.http.outgoing.metrics import OutgoingMetrics
from kubechronicle.http.outgoing.networks import Networks


class Shared:
    """``idle``: seconds for which an unused connection is kept. ``networks``: the ways to other servers.

    ``metrics``: counts the requests.
    ``round``: counts the halves of ``idle``, so that a request need not look at the clock.
    ``nursery``: of requests that several tasks wait for; None while the server starts or stops.
    """

    def __init__(self, *, idle: float, networks: Networks) -> None:
        self.idle = idle
        self.round = 0
        self.networks = networks
        self.metrics = OutgoingMetrics()
        self.deadlines = Deadlines()
        self.nursery: trio.Nursery | None = None

    def start(self, function: Callable[[], Awaitable[None]]) -> None:
        """Run a task that outlives the request, and knows nothing of it. Raises AskError as ``check_open``."""
        self.check_open()
        assert self.nursery is not None
        start_apart(self.nursery, function)

    def check_open(self) -> None:
        """Raise AskError while the server starts or stops."""
        if self.nursery is None:
            raise AskError("no request is sent while the server starts or stops")
