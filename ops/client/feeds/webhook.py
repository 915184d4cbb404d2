"""A webhook: batches of CloudEvents by POST (CloudEvents HTTP binding §3.3, ``application/cloudevents-batch+json``).

2xx acknowledges the whole batch. 408, 425, 429 and 5xx are asked again, after Retry-After if it is there. A batch that
is too large (413) is halved. Any other answer is an error of the settings, and ends the feed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import httpx
import orjson

from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.feeds.sinks import SOURCE, Unavailable, attributes, encoded, revision_of
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.version import program_version

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
