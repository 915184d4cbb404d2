"""Answers of other servers, as callers see them."""

from __future__ import annotations

from typing import Final

from kubechronicle.http.outgoing.errors import AskError, failed
from kubechronicle.http.outgoing.keep_alive import BadAnswer, Received
from kubechronicle.http.outgoing.pools import PoolTarget

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
