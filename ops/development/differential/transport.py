"""Keep-alive connections to the two servers, and the answers read from them."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from kubechronicle.api.codecs import cbor, errors, protobuf

MAGIC = b"k8s\x00"  # the first bytes of an object in protobuf
TIMEOUT = 20.0  # seconds for one answer; a server that hangs is a difference, not the end of the run
UNANSWERED = 0  # the status of a request without an answer


@dataclass(frozen=True, slots=True)
class Target:
    """The address of a server, the bearer token of a user in system:masters, and its process if a tool started it."""

    url: str
    token: str
    pid: int = 0


@dataclass(slots=True)
class Answer:
    """An answer as received."""

    status: int
    content_type: str = ""
    warnings: list[str] = field(default_factory=list)
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    def decoded(self) -> Any:
        """Return the body as data: JSON, YAML, protobuf, CBOR, or text."""
        media = self.content_type.split(";")[0]
        if "stream=watch" in self.content_type or b"\n{" in self.body:
            with contextlib.suppress(ValueError):
                return [json.loads(line) for line in self.body.split(b"\n") if line.strip()]
        if media.endswith("json"):
            with contextlib.suppress(ValueError):
                data = json.loads(self.body)
                return [data] if isinstance(data, dict) and data.keys() == {"type", "object"} else data
        if media.endswith("yaml"):
            with contextlib.suppress(yaml.YAMLError, ValueError):
                return yaml.load(self.body, Loader=yaml.CSafeLoader)
        if media.endswith("cbor"):  # kube-apiserver shuffles the members
            with contextlib.suppress(errors.DecodeError):
                return cbor.decode(self.body)[0]
        if media.endswith("protobuf"):
            with contextlib.suppress(Exception):  # bytes that do not decode are compared as text
                return (
                    protobuf.decode(self.body, default_api_version="v1")
                    if self.body.startswith(MAGIC)
                    else list(watch_events(self.body))
                )
        return self.body.decode("utf-8", "replace")


def watch_events(stream: bytes) -> Iterator[dict[str, Any]]:
    """Yield the events of a protobuf watch: frames of a WatchEvent, with its type and an enveloped object."""
    at = 0
    while at < len(stream):
        size = int.from_bytes(stream[at : at + 4], "big")
        frame = stream[at + 4 : at + 4 + size]
        at += 4 + size
        start = frame.index(MAGIC)
        yield {"type": frame[2 : 2 + frame[1]].decode(), "object": protobuf.decode(frame[start:])}


class Connection:
    """One connection to one server. It is opened again when the server has closed it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        url = urllib.parse.urlsplit(target.url)
        self._host, self._port, self._secure = url.hostname or "127.0.0.1", url.port, url.scheme == "https"
        self._context = ssl.create_default_context()
        self._context.check_hostname, self._context.verify_mode = False, ssl.CERT_NONE
        self._connection: http.client.HTTPConnection | None = None
        self._sent: tuple[str, str, bytes | None, Mapping[str, str]] | None = None

    def _open(self) -> http.client.HTTPConnection:
        if self._connection is None:
            if self._secure:
                self._connection = http.client.HTTPSConnection(
                    self._host, self._port, context=self._context, timeout=TIMEOUT
                )
            else:
                self._connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def send(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> None:
        """Send a request; receive() reads its answer. So two servers work at the same time."""
        full = {"Authorization": f"Bearer {self.target.token}", "Accept": "application/json", **headers}
        self._sent = (method, path, body, {name: value for name, value in full.items() if value})
        if not self._write():
            self._write()

    def _write(self) -> bool:
        assert self._sent is not None
        method, path, body, headers = self._sent
        try:
            self._open().request(method, path, body=body, headers=dict(headers))
        except (OSError, http.client.HTTPException):
            self.close()
            return False
        return True

    def receive(self) -> Answer:
        answer, error = self._read()
        if answer is None and self._write():
            # The server had closed the idle connection before it saw the request.
            answer, error = self._read()
        return answer or Answer(UNANSWERED, body=repr(error).encode())

    def _read(self) -> tuple[Answer | None, Exception | None]:
        if self._connection is None:
            return None, None
        try:
            got = self._connection.getresponse()
            body = got.read()
        except (http.client.RemoteDisconnected, http.client.ResponseNotReady, ConnectionError) as error:
            self.close()
            return None, error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            return Answer(UNANSWERED, body=type(error).__name__.encode()), error
        headers = {name.lower(): value for name, value in got.getheaders()}
        warnings = got.headers.get_all("Warning") or []
        if got.will_close:
            self.close()
        return Answer(got.status, headers.get("content-type", ""), warnings, body, headers), None

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        self.send(method, path, body, headers or {})
        return self.receive()

    def get_json(self, path: str) -> Any:
        """Return a JSON document. Raises ConnectionError without one."""
        answer = self.ask("GET", path)
        if answer.status != 200:
            raise ConnectionError(
                f"GET {self.target.url}{path}: {answer.status} {answer.body[:200].decode('utf-8', 'replace')}"
            )
        return json.loads(answer.body)
