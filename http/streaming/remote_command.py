"""Remote commands (exec, attach): the streams of a session, and its outcome on the error stream.

Lives here: what protocols v1 to v5 of remotecommand.k8s.io say, without I/O. Not here: SPDY and WebSocket frames, the
connections (translation.py).

    channel   0 stdin   1 stdout   2 stderr   3 error   4 resize   255 N: the client closes channel N (v5)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson

from kubechronicle.api.errors import status

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
V5: Final = "v5.channel.k8s.io"
PROTOCOLS: Final = (V5, "v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io")
"""Protocols to offer to a kubelet, the best first."""
WITH_STATUS: Final = frozenset(PROTOCOLS[:2])
WITH_RESIZE: Final = frozenset(PROTOCOLS[:3])
MAX_RESIZES: Final = 512
"""Bytes of an incomplete message about the terminal's size. Each read of a part of it parses it from its begin."""


class CommandStreams(NamedTuple):
    """The streams that a client asks for."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False

    def opened(self, protocol: str) -> list[tuple[int, str]]:
        """Return channels and types of the streams to open at the kubelet, in kube-apiserver's order."""
        wanted = [(ERROR, "error", True), (STDIN, "stdin", self.stdin), (STDOUT, "stdout", self.stdout)]
        wanted.append((STDERR, "stderr", self.stderr and not self.tty))
        wanted.append((RESIZE, "resize", self.tty and protocol in WITH_RESIZE))
        return [(channel, name) for channel, name, open_it in wanted if open_it]

    @property
    def first_output(self) -> int:
        """Return the lowest channel that the server writes to: an empty message there says that the session exists."""
        return STDOUT if self.stdout else STDERR if self.stderr else ERROR


def internal_error(message: str) -> dict[str, Any]:
    """Return the Status of a failure between API server and container, without kind, as on the error stream."""
    body = status.internal_error(message).body()
    return {name: value for name, value in body.items() if name not in ("kind", "apiVersion")}


SUCCESS: Final[Mapping[str, Any]] = {"metadata": {}, "status": "Success"}


def outcome(protocol: str, message: bytes | bytearray) -> Mapping[str, Any]:
    """Return the Status of a session from what the kubelet wrote to the error stream.

    Before v4 the message is a text, and an empty one is success. Source: client-go ``tools/remotecommand``.
    """
    if not message:
        return SUCCESS
    text = message.decode("utf-8", "replace")
    if protocol not in WITH_STATUS:
        return internal_error(f"error executing remote command: {text}")
    try:
        sent = orjson.loads(message)
    except orjson.JSONDecodeError as error:
        return internal_error(f"error stream protocol error: {error} in {json.dumps(text)}")
    kind = sent.get("status") if isinstance(sent, dict) else None
    if kind == "Success":
        return SUCCESS
    if kind != "Failure":
        return internal_error("error stream protocol error: unknown error")
    if sent.get("reason") != "NonZeroExitCode":
        return internal_error(str(sent.get("message", "")))
    return _exited(sent.get("details"))


def _exited(details: Any) -> Mapping[str, Any]:
    if not isinstance(details, dict):
        return internal_error("error stream protocol error: details must be set")
    for cause in details.get("causes") or ():
        if not isinstance(cause, dict) or cause.get("reason") != "ExitCode":
            continue
        code = str(cause.get("message", ""))
        if not (code.isascii() and code.isdecimal() and len(code.lstrip("0")) <= 3 and int(code[-3:]) < 256):
            return internal_error(f"error stream protocol error: invalid exit code value {json.dumps(code)}")
        code = str(int(code[-3:]))
        return {
            "metadata": {},
            "status": "Failure",
            "message": f"command terminated with non-zero exit code: command terminated with exit code {code}",
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": code}]},
        }
    return internal_error("error stream protocol error: no ExitCode cause given")


_DECODER: Final = json.JSONDecoder()
_BLANKS: Final = re.compile(r"\s*")


class Resizes:
    """The decoder of the client's messages about the size of its terminal: JSON objects one after another."""

    def __init__(self) -> None:
        self._text = ""
        self._broken = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield each complete size, encoded anew for the kubelet. After a broken one all others are ignored."""
        if self._broken:
            return
        text, at = self._text + data.decode("utf-8", "replace"), 0
        self._text = ""
        while (at := _BLANKS.match(text, at).end()) < len(text):  # type: ignore[union-attr] # it matches always
            try:
                size, at = _DECODER.raw_decode(text, at)
            except (ValueError, RecursionError):
                self._text = text[at : at + MAX_RESIZES + 1]
                self._broken = len(self._text) > MAX_RESIZES or text[at] != "{" or "}" in self._text
                return
            known = _size(size)
            if known is None:
                self._broken = True
                return
            yield known


def _size(value: Any) -> bytes | None:
    """Return a size as the kubelet reads it. Names of fields match in any case, as Go decodes them."""
    if not isinstance(value, dict):
        return None
    fields = {"width": 0, "height": 0}
    for name, number in value.items():
        if name.lower() in fields:
            if type(number) is not int or not 0 <= number < 1 << 16:
                return None
            fields[name.lower()] = number
    return b'{"Width":%d,"Height":%d}\n' % (fields["width"], fields["height"])
