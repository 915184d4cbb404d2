"""Calls of webhooks that are tried: reviews to one address, over a connection that is kept."""

from __future__ import annotations

import http.client
import ssl
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from kubechronicle.api.admission.reviews import CallFailed
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
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
        if parts.scheme == "https":
            try:
                context = ssl.create_default_context(cafile=authority or None)
                context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as the server has it (remote_server.py)
            except OSError as error:
                raise OperatorError(f"--webhook-ca {authority}: {error.strerror or error}") from None
            self._connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=30, context=context)

    def ask(self, name: str, body: bytes, timeout: float) -> Any:
        """Return the decoded answer to a review (JSON). CallFailed. OperatorError: nobody is at the address."""
        try:
            status, answer = self._exchange(body, timeout)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            self._connection.close()  # it was idle for too long
            try:
                status, answer = self._exchange(body, timeout)
            except (OSError, http.client.HTTPException) as error:
                raise self._failed(error) from None
        except (OSError, http.client.HTTPException) as error:
            raise self._failed(error) from None
        if status != 200:
            raise CallFailed(f"failed to call webhook: the server answered with status {status}")
        try:
            return orjson.loads(answer)
        except orjson.JSONDecodeError:
            raise CallFailed("failed to call webhook: the answer is not JSON") from None

    def _exchange(self, body: bytes, timeout: float) -> tuple[int, bytes]:
        self._connection.timeout = timeout
        if self._connection.sock is None:
            try:
                self._connection.connect()
            except OSError as error:
                raise OperatorError(f"--webhook-url {self._url}: {error}; is the webhook running there?") from None
        self._connection.sock.settimeout(timeout)
        self._connection.request("POST", self._path, body, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        answer = response.read(MAX_ANSWER + 1)
        if len(answer) > MAX_ANSWER:
            self._connection.close()
            raise CallFailed("failed to call webhook: the answer is too large")
        return response.status, answer

    def _failed(self, error: Exception) -> CallFailed:
        self._connection.close()
        why = "no answer within the time of the webhook" if isinstance(error, TimeoutError) else str(error)
        return CallFailed(f"failed to call webhook: {why}")
