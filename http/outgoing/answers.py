"""Answers of other servers, and of their kept connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kubechronicle.http.outgoing.errors import AskError, failed
from kubechronicle.http.outgoing.keep_alive import BadAnswer, Received
from kubechronicle.http.outgoing.pools import Target

COMPRESSED: Final = "the answer is compressed though that was not asked for"
LATE: Final = "no answer within the time-out"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer. ``headers``: by name in lower case; the last of equal names."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


def answer_of(method: str, target: Target, found: Received) -> Answer:
    """Return an answer of a kept connection. AskError: it is compressed."""
    if found.headers.get("content-encoding", "identity").lower() != "identity":
        raise failed(method, target.url, COMPRESSED)
    return Answer(*found)


def unusable(method: str, target: Target, error: BadAnswer) -> AskError:
    """Return the error of an answer of a kept connection that cannot be used."""
    if error.late:
        return failed(method, target.url, LATE, timed_out=True)
    return failed(method, target.url, str(error), transient=error.broken)
