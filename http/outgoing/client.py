"""The client for requests to other servers, with a pool of connections per server.

    Outgoing        a child of the supervision tree that owns all pools, and closes them when idle or stopped
    OutgoingClient  requests to one server: ``await client.ask("POST", body=…)``
    Answer          status, headers and the complete, bounded body; the caller interprets it
    AskError        no usable answer

Redirects, cookies and environment variables are ignored.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Awaitable, Mapping
from time import perf_counter
from types import MappingProxyType
from typing import Final

import trio

from kubechronicle.http.headers import CURRENT, TRACEPARENT
from kubechronicle.http.outgoing.addresses import Reach
from kubechronicle.http.outgoing.calls import Unprocessed
from kubechronicle.http.outgoing.errors import AskError as AskError
from kubechronicle.http.outgoing.errors import failed, shown
from kubechronicle.http.outgoing.keep_alive import NEVER, BadAnswer, PreparedHead, Received
from kubechronicle.http.outgoing.networks import DIRECT, Network, Networks
from kubechronicle.http.outgoing.pools import Connection, Pool, PoolTarget, target_of
from kubechronicle.http.outgoing.remote_server import Credentials, RemoteServer, load_credentials
from kubechronicle.http.outgoing.shared import FAILED, Shared
from kubechronicle.http.wire.heads import BadField

# -- answers -----------------------------------------------------------------------------------------------------------
#
# Answers of other servers, as callers see them.


COMPRESSED: Final = "the answer is compressed though that was not asked for"
LATE: Final = "no answer within the time-out"


Answer = Received


def answer_of(method: str, target: PoolTarget, found: Received) -> Answer:
    """Return an answer of a kept connection. AskError: it is compressed."""
    if "content-encoding" in found.headers and found.headers["content-encoding"].lower() != "identity":
        raise failed(method, target.url, COMPRESSED)
    return found


def unusable(method: str, target: PoolTarget, error: BadAnswer) -> AskError:
    """Return the error of an answer of a kept connection that cannot be used."""
    if error.late:
        return failed(method, target.url, LATE, timed_out=True)
    return failed(method, target.url, str(error), transient=error.broken)


log = logging.getLogger(__name__)

# Seconds for a request in all (k8s.io/apiserver/pkg/util/webhook: defaultRequestTimeout).
TIMEOUT: Final = 30.0
# Bytes of an answer's body.
MAX_ANSWER: Final = 3 * 1024 * 1024
# Concurrent connections to one server. Further requests wait for one within their timeout.
MAX_CONNECTIONS: Final = 64
# Seconds without a request after which a server's connections are closed (net/http: IdleConnTimeout).
IDLE: Final = 90.0

AGENT: Final = "kubechronicle"
JSON: Final = "application/json"
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})

UNAUTHORIZED: Final = 401


class OutgoingClient:
    """Requests to one server. Made by Outgoing.client."""

    def __init__(
        self,
        outgoing: Shared,
        peer: RemoteServer,
        *,
        timeout: float,
        max_answer: int,
        max_connections: int,
        network: Network,
        reach: Reach,
    ) -> None:
        self.peer = peer
        self.timeout = timeout
        self._outgoing = outgoing
        self._network = network
        self._reach = reach
        self._max_answer = max_answer
        self._slots = trio.Semaphore(max_connections)
        self._version: tuple[object, ...] | None = None
        self._credentials: Credentials | None = None
        self._loading = trio.Lock()
        self._pool: Pool | None = None
        self._used = 0  # the round of the last use
        self._constant = peer.plugin is None and not peer.version()  # there are no files, which could change

    @property
    def outgoing(self) -> Shared:
        return self._outgoing

    async def ask(
        self,
        method: str = "POST",
        url: str = "",
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """Send a request and return the answer, whatever its status. Raises AskError.

        ``url``: another URL, perhaps relative to the server's. On another origin only the client certificate is sent
        as a credential.
        ``headers``: besides the usual ones, or in their place; an empty ``accept`` is not sent
        ``timeout``: seconds
        """
        limit = self.timeout if timeout is None else timeout
        try:
            with trio.fail_after(limit):
                return await self.exchange(method, url, body=body, headers=headers or NO_HEADERS)
        except trio.TooSlowError:
            raise failed(method, target_of(self.peer.url, url).url, LATE, timed_out=True) from None

    def exchange(
        self,
        method: str,
        url: str = "",
        *,
        body: bytes = b"",
        headers: Mapping[str, str] = NO_HEADERS,
        deadline: float = NEVER,
    ) -> Awaitable[Answer]:
        """Send a request as ``ask`` does, until a deadline (trio time): without one, the caller has a time-out.

        Await the result at once. It costs least if each request has the same object as ``headers``.
        """
        pool = self._pool
        if pool is not None and body and self._is_ready(pool):
            head = pool.known_head(method, url, headers)
            connection = None if head is None else pool.own.take()
            if head is not None and connection is not None:
                return self._sent_at_once(pool, connection, head, body, method, url, headers, deadline)
        return self._exchange_in_time(method, url, body, headers, deadline)

    async def _exchange_in_time(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str], deadline: float
    ) -> Answer:
        if deadline == NEVER:
            return await self._exchange_of_any_kind(method, url, body, headers)
        with trio.move_on_at(deadline):
            return await self._exchange_of_any_kind(method, url, body, headers)
        raise failed(method, target_of(self.peer.url, url).url, LATE, timed_out=True)

    def _is_ready(self, pool: Pool) -> bool:
        """Tell whether a request may use the pool at once."""
        if not self._slots.value or self._outgoing.nursery is None or CURRENT.get():
            return False
        return self._constant or (self.peer.plugin is None and self.peer.version() == self._version)

    async def _sent_at_once(
        self,
        pool: Pool,
        connection: Connection,
        head: PreparedHead,
        body: bytes,
        method: str,
        url: str,
        headers: Mapping[str, str],
        deadline: float,
    ) -> Answer:
        """Send a request on a connection of the pool, or on another one if that does not take it. AskError."""
        self._slots.acquire_nowait()
        pool.in_use += 1
        target, began, code, size = target_of(self.peer.url, url), perf_counter(), FAILED, 0
        found: Answer | None = None
        try:
            found = await connection.exchange(head, body, limit=self._max_answer, deadline=deadline)
            code, size = str(found.status), len(found.body)
        except Unprocessed:
            pass
        except BadAnswer as error:
            raise unusable(method, target, error) from None
        finally:
            self._slots.release()
            self._outgoing.metrics.ended(target.host, method, code, perf_counter() - began, len(body), size)
            pool.in_use -= 1
            self._used = self._outgoing.round
            if pool.retired and not pool.in_use:
                pool.close()
        if found is None:
            return await self._exchange_in_time(method, url, body, headers, deadline)
        return answer_of(method, target, found)

    async def _exchange_of_any_kind(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        try:
            self._slots.acquire_nowait()  # its other form gives way to all other tasks
        except trio.WouldBlock:
            await self._slots.acquire()
        target, began, code, size = target_of(self.peer.url, url), perf_counter(), FAILED, 0
        try:
            answer = await self._exchange(method, url, body, headers)
            code, size = str(answer.status), len(answer.body)
            if answer.status == UNAUTHORIZED and self.peer.plugin is not None and self._credentials is not None:
                self.peer.plugin.refused(self._credentials.serial)
            return answer
        finally:
            self._slots.release()
            self._outgoing.metrics.ended(target.host, method, code, perf_counter() - began, len(body), size)

    async def tls_context(self) -> ssl.SSLContext:
        """Return the context for connections to the server, from its present files. Raises AskError."""
        await self._load()
        assert self._credentials is not None
        return self._credentials.context

    async def _exchange(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        target = target_of(self.peer.url, url)
        if not target.secure and not self.peer.http_allowed:
            raise failed(method, target.url, "it is not https")
        pool = await self._enter()
        try:
            fields = {"accept": JSON, "accept-encoding": "identity", "user-agent": AGENT}
            if body:
                fields["content-type"] = JSON
            if pool.authorization and target.own:
                fields["authorization"] = pool.authorization
            fields |= headers
            if not fields["accept"]:
                del fields["accept"]
            if traceparent := CURRENT.get():
                fields[TRACEPARENT] = traceparent
            head = pool.head(method, target, fields)
            found = await pool.connections(target).send(head, body, limit=self._max_answer)
            if body and target.own and not traceparent:
                pool.note_head(method, url, headers, head)
            return answer_of(method, target, found)
        except BadField as error:
            raise failed(method, target.url, str(error)) from None
        except BadAnswer as error:
            raise unusable(method, target, error) from None
        finally:
            self._leave(pool)

    async def _enter(self) -> Pool:
        """Return the pool of the current files, for one request."""
        if self._credentials is None or self.peer.version() != self._version:
            await self._load()
        self._outgoing.check_open()
        pool = self._pool
        if pool is None:
            pool = self._pool = self._new_pool()
        pool.in_use += 1
        self._used = self._outgoing.round
        return pool

    def _leave(self, pool: Pool) -> None:
        """End the use of a pool. That of former files is closed after its last request."""
        pool.in_use -= 1
        self._used = self._outgoing.round
        if pool.retired and not pool.in_use:
            pool.close()

    async def _load(self) -> None:
        async with self._loading:
            version = self.peer.version()
            if self._credentials is not None and version == self._version:
                return
            try:
                # The result of a program serves the next request if this one gives up.
                programs = self.peer.plugin is not None
                credentials = await trio.to_thread.run_sync(load_credentials, self.peer, abandon_on_cancel=programs)
            except ValueError as error:
                if self._credentials is None:
                    raise AskError(f"{shown(self.peer.url)}: {error}") from None
                log.warning(
                    "Credentials not reloaded, the former ones stay: %s", error, extra={"peer": shown(self.peer.url)}
                )
            else:
                self._credentials = credentials
                version = self.peer.version() if self.peer.plugin is not None else version
                self._retire()
            self._version = version

    def _new_pool(self) -> Pool:
        assert self._credentials is not None
        return Pool(
            self.peer,
            self._credentials,
            idle=self._outgoing.idle,
            max_answer=self._max_answer,
            connect=self._outgoing.networks.connect_to(self._network, self._reach),
            deadlines=self._outgoing.deadlines,
            start=self._outgoing.start,
        )

    def _retire(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.retired = True
            if not pool.in_use:
                pool.close()

    # -- for Outgoing only --------------------------------------------------------------------------------------------

    def close_if_idle(self, since: int) -> None:
        """Close the connections if none was used after the round ``since``."""
        if self._pool is not None and not self._pool.in_use and self._used <= since:
            self._retire()

    def close(self) -> None:
        """Close all connections at once, also those in use."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


class Outgoing(Shared):
    """All requests of this server to others. ``run`` is a child of the supervision tree, and requests need it.

    ``idle``, ``networks``: as in Shared
    """

    def __init__(self, *, idle: float = IDLE, networks: Networks = DIRECT) -> None:
        super().__init__(idle=idle, networks=networks)
        self._clients: set[OutgoingClient] = set()

    def client(
        self,
        peer: RemoteServer,
        *,
        timeout: float = TIMEOUT,
        max_answer: int = MAX_ANSWER,
        max_connections: int = MAX_CONNECTIONS,
        network: Network = Network.DIRECT,
        reach: Reach = Reach.OTHERS,
    ) -> OutgoingClient:
        """Return a client. It reads the server's files with its first request. ``network``: the one of the server."""
        client = OutgoingClient(
            self,
            peer,
            timeout=timeout,
            max_answer=max_answer,
            max_connections=max_connections,
            network=network,
            reach=reach,
        )
        self._clients.add(client)
        return client

    def forget(self, client: OutgoingClient) -> None:
        """Close the connections of a client that is not needed any more."""
        self._clients.discard(client)
        client.close()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Close idle connections until cancelled. Then end all requests and close all connections."""
        try:
            async with trio.open_nursery() as nursery:
                self.nursery = nursery
                nursery.start_soon(self.deadlines.run)
                task_status.started()
                while True:
                    await trio.sleep(self.idle / 2)
                    self.round += 1
                    for client in list(self._clients):
                        client.close_if_idle(self.round - 3)
        finally:
            self.nursery = None
            for client in list(self._clients):
                client.close()
