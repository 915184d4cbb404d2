"""The choice of a feed's destination by its address.

    -                              lines of JSON on stdout
    file:changes.jsonl             the same, appended to a file
    https://audit.example.com/in   batches of CloudEvents, by POST
    kafka://one:9092,two/changes   a topic of Kafka
    nats://nats:4222/k8s.changes   a subject of NATS JetStream

An adapter is imported only if it is chosen: the clients of brokers are optional.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import urlsplit

import httpx
import orjson

from kubechronicle.api.values.objects import Object
from kubechronicle.ops import terminal
from kubechronicle.ops.client.feeds.sinks import SOURCE, Sink, Unavailable, attributes, encoded, revision_of
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.version import program_version

# -- lines -------------------------------------------------------------------------------------------------------------
#
# Lines of JSON: on stdout, and appended to a file.


TAIL: Final = 64 * 1024
"""Bytes that are read at once while the last line is searched."""


class StdoutSink:
    """Delivered means written. A reader that wants to go on later remembers the last ``metadata.name``."""

    def __init__(self) -> None:
        self._out = terminal.stdout()

    def send(self, changes: Sequence[Object]) -> None:
        for change in changes:
            self._out.json(change)
        self._out.flush()

    def close(self) -> None:
        self._out.flush()


class FileSink:
    """Delivered means on the disk."""

    def __init__(self, path: str) -> None:
        self._path = Path(path).expanduser()
        try:
            self._file = self._path.open("a+b")
            _remove_torn_line(self._file)
        except OSError as error:
            raise OperatorError(f"cannot write {self._path}: {error.strerror}") from None

    def send(self, changes: Sequence[Object]) -> None:
        begun = self._file.seek(0, os.SEEK_END)
        try:
            self._file.write(b"".join(encoded(change) + b"\n" for change in changes))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:  # such as a full disk
            self._file = self._path.open("a+b")
            self._file.truncate(begun)
            raise Unavailable(f"cannot write {self._path}: {error.strerror}") from None

    def close(self) -> None:
        self._file.close()


def _remove_torn_line(file: BinaryIO) -> None:
    """Remove a last line without its end: of a feed that was killed. It was not delivered, and comes again."""
    end = file.seek(0, os.SEEK_END)
    while end:
        begin = max(end - TAIL, 0)
        file.seek(begin)
        place = file.read(end - begin).rfind(b"\n")
        if place >= 0:
            end = begin + place + 1
            break
        end = begin
    file.truncate(end)


# -- webhook -----------------------------------------------------------------------------------------------------------
#
# A webhook: batches of CloudEvents by POST (CloudEvents HTTP binding §3.3, ``application/cloudevents-batch+json``).
#
# 2xx acknowledges the whole batch. 408, 425, 429 and 5xx are asked again, after Retry-After if it is there. A batch
# that is too large (413) is halved. Any other answer is an error of the settings, and ends the feed.


CONTENT_TYPE: Final = "application/cloudevents-batch+json; charset=utf-8"
TIMEOUT: Final = 30.0
MOST_BYTES: Final = 1024 * 1024
"""Bytes of changes in one request, unless one change is larger."""
ASKED_AGAIN: Final = frozenset((408, 425, 429))
TOO_LARGE: Final = 413
LONGEST_PAUSE: Final = 300.0


class WebhookSink:
    """``config``: headers of the requests, and ``source``: the source of the events."""

    def __init__(self, url: str, config: Mapping[str, str]) -> None:
        self._url = url
        headers = {name: value for name, value in config.items() if name != "source"}
        self._source = config.get("source", SOURCE)
        self._client = httpx.Client(
            timeout=TIMEOUT,
            headers={"User-Agent": f"kubechronicle-feed/{program_version()}", **headers, "Content-Type": CONTENT_TYPE},
        )

    def send(self, changes: Sequence[Object]) -> None:
        for part in parts(changes):
            self._post(part)

    def close(self) -> None:
        self._client.close()

    def _post(self, changes: Sequence[Object]) -> None:
        events = [{**attributes(change, self._source), "data": change} for change in changes]
        try:
            answer = self._client.post(self._url, content=orjson.dumps(events))
        except httpx.InvalidURL as error:
            raise OperatorError(f"--to {self._url}: {error}") from None
        except httpx.HTTPError as error:
            raise Unavailable(f"no answer from {self._url}: {error or type(error).__name__}") from None
        if answer.is_success:
            return
        if answer.status_code == TOO_LARGE and len(changes) > 1:
            half = len(changes) // 2
            self._post(changes[:half])
            self._post(changes[half:])
            return
        why = f"{self._url} answered {answer.status_code} {answer.reason_phrase}"
        if answer.status_code >= 500 or answer.status_code in ASKED_AGAIN:
            raise Unavailable(why, _seconds(answer.headers.get("retry-after", "")))
        raise OperatorError(f"{why} to revision {revision_of(changes[0])}; it was not delivered")


def parts(changes: Sequence[Object]) -> Sequence[Sequence[Object]]:
    """Split changes into parts of at most MOST_BYTES, or one change."""
    found: list[list[Object]] = []
    held = 0
    for change in changes:
        size = len(encoded(change))
        if not found or held + size > MOST_BYTES:
            found.append([])
            held = 0
        found[-1].append(change)
        held += size
    return found


def _seconds(text: str) -> float:
    return min(float(text), LONGEST_PAUSE) if text.isdigit() else 0.0


KEYS: Final = ("revision", "object")


def open_sink(address: str, *, config_file: str = "", key: str = "revision") -> Sink:
    """Return the destination at an address. ``key``: of messages of Kafka: revision or object. OperatorError."""
    config = _config(config_file)
    if address == "-":
        return StdoutSink()
    try:
        parts = urlsplit(address)
        topic, hosts = parts.path.strip("/"), parts.netloc
    except ValueError:
        parts = None
    if parts is not None and parts.scheme == "file":
        return FileSink(address.partition(":")[2].removeprefix("//"))
    if parts is not None and parts.scheme in ("http", "https") and hosts:
        from kubechronicle.ops.client.feeds.opening import WebhookSink

        return WebhookSink(address, config)
    if parts is not None and parts.scheme == "kafka" and hosts and topic:
        from kubechronicle.ops.client.feeds.kafka import KafkaSink

        return KafkaSink(hosts, topic, config, key=key)
    if parts is not None and parts.scheme in ("nats", "tls") and hosts and topic:
        from kubechronicle.ops.client.feeds.nats import NatsSink

        return NatsSink(f"{parts.scheme}://{hosts}", topic.replace("/", "."), config)
    raise OperatorError(
        f"--to {address}: must be -, file:PATH, https://…, kafka://HOST:PORT/TOPIC or nats://HOST:PORT/SUBJECT"
    )


def _config(file: str) -> Mapping[str, str]:
    """Return the settings in a file: one ``name = value`` a line; # begins a comment. OperatorError."""
    if not file:
        return {}
    try:
        lines = Path(file).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"cannot read --sink-config {file}: {error}") from None
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, sign, value = line.partition("=")
        if not sign or not name.strip():
            raise OperatorError(f"{file}:{number}: must be name = value")
        found[name.strip()] = value.strip()
    return found
