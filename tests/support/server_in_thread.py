"""The server of in_process.py in a thread of its own, for tests of programs that block.

``Running`` sends requests to it from other threads. ``InThread`` is a transport for clients (ops/client/transport.py).
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import trio
from in_process import ADMIN, AUTHORIZATION, InProcess, open_server

from kubechronicle.http.messages import Request
from kubechronicle.ops.client.transport import Reply
from kubechronicle.ops.errors import OperatorError

PATIENCE = 60.0


@dataclass
class Running:
    """A running server, for other threads."""

    server: InProcess
    token: trio.lowlevel.TrioToken

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return trio.from_thread.run(function, *arguments, trio_token=self.token)
        except (trio.Cancelled, trio.RunFinishedError):  # the server ended during the call
            raise OperatorError("the server has ended") from None
        except BaseExceptionGroup as group:  # a call with several tasks
            if group.split(trio.Cancelled)[1] is not None:
                raise
            raise OperatorError("the server has ended") from None

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request as the administrator and return the JSON of the answer."""
        kind = "merge-patch+json" if method == "PATCH" else "json"
        return self._asked(method, path, body, {"Content-Type": f"application/{kind}", "User-Agent": "hand/1.0"})

    def ask_as(self, user: str, method: str, path: str, body: Any = None) -> Any:
        """Send a request as another administrator, by impersonation."""
        kind = "merge-patch+json" if method == "PATCH" else "json"
        fields = {"Content-Type": f"application/{kind}", "Impersonate-User": user}
        return self._asked(method, path, body, fields | {"Impersonate-Group": "system:masters"})

    def _asked(self, method: str, path: str, body: Any, fields: Mapping[str, str]) -> Any:
        data = None if body is None else json.dumps(body).encode()
        reply = InThread(self, ADMIN).send(method, path, fields, data)
        assert reply.status < 300, reply
        return json.loads(reply.body)


class InThread:
    """A transport (ops/client/transport.py) to the server in its thread."""

    def __init__(self, running: Running, token: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        self._running, self._token, self._headers = running, token, headers

    def _request(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Request:
        fields = {name.lower(): value for name, value in {**headers, **dict(self._headers)}.items()}
        fields["authorization"] = f"Bearer {self._token}"
        return Request.of(method, path, headers=fields, body=body or b"")

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        application = self._running.server.assembly.application.application
        response = self._running.run(application, self._request(method, path, headers, body))
        answer = response.body if isinstance(response.body, bytes) else self._running.run(read_chunks, response.body)
        return Reply(response.status, dict(response.headers), answer)

    def lines(self, path: str, headers: Mapping[str, str]) -> Iterator[bytes] | Reply:
        application = self._running.server.assembly.application.application
        response = self._running.run(application, self._request("GET", path, headers, None))
        if isinstance(response.body, bytes):
            return Reply(response.status, dict(response.headers), response.body)
        return self._lines(cast("AsyncGenerator[bytes, None]", response.body))

    def _lines(self, chunks: AsyncGenerator[bytes, None]) -> Iterator[bytes]:
        left = b""
        with contextlib.suppress(StopAsyncIteration):
            while True:
                *whole, left = (left + self._running.run(chunks.__anext__)).split(b"\n")
                yield from whole


async def read_chunks(chunks: AsyncIterable[bytes]) -> bytes:
    """Return the body of a long list, which is sent in chunks."""
    return b"".join([chunk async for chunk in chunks])


@contextlib.contextmanager
def server_in_thread(**options: Any) -> Iterator[Running]:
    """Run a server within the block."""
    ready, servers = threading.Event(), []
    stop = trio.CancelScope()

    async def serve() -> None:
        with stop:
            async with open_server(authorization=AUTHORIZATION, loops=True, **options) as server:
                # Wait for the objects of the bootstrap loops, so that tests know the next revision.
                while (await server.ask("GET", "/readyz")).status != 200:  # noqa: ASYNC110  there is no event for it
                    await trio.sleep(0.01)
                servers.append(Running(server, trio.lowlevel.current_trio_token()))
                ready.set()
                await trio.sleep_forever()

    thread = threading.Thread(target=trio.run, args=(serve,), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE)
    yield servers[0]
    servers[0].token.run_sync_soon(stop.cancel)
    thread.join(PATIENCE)
