"""A subject of NATS JetStream, written with nats-py. A stream must take the subject: only streams acknowledge.

Each message waits for its acknowledgement before the next one is sent, so that a failure leaves no gap. Its Nats-Msg-Id
is the revision: within its window of duplicates, the stream drops repetitions.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.feeds.sinks import SOURCE, Unavailable, attributes, encoded, load_client, revision_of
from kubechronicle.ops.errors import OperatorError

CONNECTING: Final = 10
ACKNOWLEDGING: Final = 10.0
"""Seconds for the acknowledgement of one message."""
SETTINGS: Final = ("user", "password", "token", "creds", "source")


class NatsSink:
    """``config``: user and password, token, or creds (a file); and ``source``: the source of the events."""

    def __init__(self, server: str, subject: str, config: Mapping[str, str]) -> None:
        if unknown := [name for name in config if name not in SETTINGS]:
            raise OperatorError(f"NATS has no setting {unknown[0]}; there are {', '.join(SETTINGS)}")
        self._nats = load_client("nats", "nats")
        self._server, self._subject, self._source = server, subject, config.get("source", SOURCE)
        # The client answers pings and connects again while nothing is sent. So its event loop runs all the time.
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        try:
            self._connection: Any = self._run(self._connect(config))
        except Exception as error:
            raise OperatorError(f"NATS at {server}: {error or type(error).__name__}") from None
        self._stream = self._connection.jetstream(timeout=ACKNOWLEDGING)

    def send(self, changes: Sequence[Object]) -> None:
        for change in changes:
            self._publish(change)

    def close(self) -> None:
        self._run(self._connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _connect(self, config: Mapping[str, str]) -> Any:
        async def silent(*_: object) -> None:
            """Failures show when a message is not acknowledged."""

        credentials = {
            "user": config.get("user"),
            "password": config.get("password"),
            "token": config.get("token"),
            "user_credentials": config.get("creds"),
        }
        connecting = self._nats.connect(
            self._server,
            name="kubechronicle-feed",
            connect_timeout=CONNECTING,
            max_reconnect_attempts=-1,
            allow_reconnect=True,
            error_cb=silent,
            **{name: value for name, value in credentials.items() if value},
        )
        return await asyncio.wait_for(connecting, CONNECTING)

    def _publish(self, change: Object) -> None:
        errors, js_errors = self._nats.errors, self._nats.js.errors
        revision = revision_of(change)
        headers = {f"ce-{name}": value for name, value in attributes(change, self._source).items()}
        headers |= {"content-type": "application/json", "Nats-Msg-Id": revision}
        try:
            self._run(self._stream.publish(self._subject, encoded(change), headers=headers))
        except js_errors.NoStreamResponseError:
            raise OperatorError(
                f"no stream of NATS at {self._server} takes {self._subject}; add one: "
                f"nats stream add --subjects {self._subject}"
            ) from None
        except errors.MaxPayloadError:
            raise OperatorError(f"revision {revision} is larger than max_payload of NATS at {self._server}") from None
        except (errors.Error, js_errors.Error, OSError, TimeoutError) as error:
            why = str(error) or type(error).__name__
            raise Unavailable(f"NATS at {self._server} has not acknowledged revision {revision}: {why}") from None
