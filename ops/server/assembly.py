"""An assembled server: its parts, and how it runs, drains and hands over. composition.py makes one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from kubechronicle.actors.resource_actors import ResourceActors
from kubechronicle.actors.store import Store
from kubechronicle.actors.supervisor import Supervisor
from kubechronicle.eventlog.consistency import Sole
from kubechronicle.eventlog.tail import Tail
from kubechronicle.eventlog.views.views import Views
from kubechronicle.http.app import HttpApplication
from kubechronicle.http.authorization.current_authorizers import Authorization
from kubechronicle.http.health import Unhealthy
from kubechronicle.http.outgoing.client import Outgoing
from kubechronicle.http.wire.listener import Server, serve
from kubechronicle.ops.server.databases.units import Storage
from kubechronicle.ops.server.own_objects import OwnObjects
from kubechronicle.ops.server.plan import Plan

if TYPE_CHECKING:
    from kubechronicle.http.authentication.oidc.authenticator import JwtAuthenticators


@dataclass(slots=True)
class Assembly:
    """The parts of a server, and the supervision tree that runs them."""

    plan: Plan
    store: Store
    storage: Storage
    own: OwnObjects
    authorization: Authorization
    application: HttpApplication
    outgoing: Outgoing
    tree: Supervisor
    jwt: JwtAuthenticators | None = None
    listening: trio.Event = field(default_factory=trio.Event)
    server: Server | None = None
    draining: bool = False
    handing_over: bool = False

    @property
    def views(self) -> Views:
        """The views of the main log."""
        return self.storage.main.views

    @property
    def tail(self) -> Tail:
        return self.storage.main.tail

    @property
    def actors(self) -> ResourceActors:
        return self.storage.actors

    @property
    def sole(self) -> Sole | None:
        """Given if no other process appends to the main log."""
        return self.storage.main.sole

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the tree until it is stopped. Raise SupervisorGaveUp when a child keeps crashing."""
        await self.tree.run(task_status=task_status)

    async def drain(self) -> None:
        """Fail readiness, leave the endpoints, end the watches, finish the requests, stop the tree."""
        self.draining = True
        await self.own.bootstrap.withdraw()
        if self.plan.http.edge.retry_after:
            await self.application.drain.reject(self.plan.http.request_timeout)
        if self.plan.watch_grace:
            await self.application.drain.begin_slowly(self.plan.watch_grace)
        self.application.drain.begin()
        if self.server is not None:
            await self.server.drain(self.plan.drain_grace)
        self.tree.request_stop()

    def check_not_draining(self) -> None:
        """Raise Unhealthy from the beginning of the drain."""
        if self.draining:
            raise Unhealthy("the server is shutting down")

    async def hand_over(self, patience: float) -> None:
        """Drain for a successor process that already accepts connections on the same port.

        The endpoints and /readyz stay as they are. Clients have ``patience`` seconds to close their connections.
        """
        self.handing_over = True
        self.application.drain.begin()
        if self.server is not None:
            await self.server.drain(self.plan.drain_grace, patience=patience)
        self.tree.request_stop()

    async def serve_http(self, *, task_status: trio.TaskStatus[Server]) -> None:
        async with trio.open_nursery() as nursery:
            self.server = await nursery.start(serve, self.application.application, self.plan.listen, self.tree.failures)
            self.listening.set()
            task_status.started(self.server)
        if self.draining or self.handing_over:
            # The listener has drained. The tree is about to stop this child, which must not look crashed.
            await trio.sleep_forever()
