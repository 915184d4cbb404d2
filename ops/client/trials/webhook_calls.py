"""Calls of webhooks that are tried: reviews to one address, over a connection that is kept."""

from __future__ import annotations

import ssl
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from kubechronicle.api.admission.reviews import CallFailed
from kubechronicle.ops.client.connection import PORTS, Address, Disconnected, HttpError, ServerConnection
from kubechronicle.ops.errors import OperatorError

MAX_ANSWER: Final = 16 * 1024 * 1024
"""Bytes of an answer that are read."""


class WebhookCalls:
    """Sends reviews to ``url``. ``authority``: a file with the certificates to trust; "": those of the system."""

    def __init__(self, url: str, authority: str = "") -> None:
        self._url, parts = url, urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise OperatorError(f"--webhook-url {url}: must be a URL such as https://127.0.0.1:8443/validate")
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._address = Address(parts.scheme, parts.hostname, parts.port or PORTS[parts.scheme])
        self._connection: ServerConnection | None = None
        try:
            self._context = ssl.create_default_context(cafile=authority or None)
        except OSError as error:
            raise OperatorError(f"--webhook-ca {authority}: {error.strerror or error}") from None
        self._context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as the server has it (remote_server.py)

    def ask(self, name: str, body: bytes, timeout: float) -> Any:
        """Return the decoded answer to a review (JSON). CallFailed. OperatorError: nobody is at the address."""
        try:
            status, answer = self._exchange(body, timeout)
        except (Disconnected, ConnectionResetError, BrokenPipeError):  # it was idle for too long
            try:
                status, answer = self._exchange(body, timeout)
            except (OSError, HttpError) as error:
                raise _failed(error) from None
        except (OSError, HttpError) as error:
            raise _failed(error) from None
        if status != 200:
            raise CallFailed(f"failed to call webhook: the server answered with status {status}")
        try:
            return orjson.loads(answer)
        except orjson.JSONDecodeError:
            raise CallFailed("failed to call webhook: the answer is not JSON") from None

    def _exchange(self, body: bytes, timeout: float) -> tuple[int, bytes]:
        connection, self._connection = self._connection or self._connect(timeout), None
        connection.timeout = timeout
        try:
            response = connection.request("POST", self._path, (("Content-Type", "application/json"),), body)
            answer = response.body(MAX_ANSWER)
            if len(answer) > MAX_ANSWER:
                raise CallFailed("failed to call webhook: the answer is too large")
            if response.kept:
                self._connection = connection
            return response.status, answer
        finally:
            if self._connection is None:
                connection.close()

    def _connect(self, timeout: float) -> ServerConnection:
        try:
            return ServerConnection(self._address, context=self._context, name=self._address.host, timeout=timeout)
        except OSError as error:
            raise OperatorError(f"--webhook-url {self._url}: {error}; is the webhook running there?") from None


def _failed(error: Exception) -> CallFailed:
    why = "no answer within the time of the webhook" if isinstance(error, TimeoutError) else str(error)
    return CallFailed(f"failed to call webhook: {why}")
