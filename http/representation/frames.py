"""The writes of a watch: the frames of its events, joined within a bound, and compressed for clients that accept it.

A compressed watch is a sequence of gzip members, one a write, as in kube-apiserver: a watch that waits holds no state
of a compressor, and watchers of one representation share the members.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kubechronicle.actors.large_work import LARGE_BYTES
from kubechronicle.eventlog.entries import Event
from kubechronicle.http.representation.compression import segment
from kubechronicle.http.representation.event_encoder import EventEncoder
from kubechronicle.http.request_metrics import bucket_of

CHUNK_BYTES: Final = 64 * 1024
"""Bytes of frames joined into one write."""
MANY_BYTES: Final = 1024 * 1024
"""Bytes of the events of a batch from which their frames are made in a thread."""


class JoinedFrames:
    """Frames of one batch, joined; ``sent``: as they are sent, maybe compressed; the buckets of their sizes."""

    __slots__ = ("buckets", "frame", "sent", "size")

    def __init__(self, frames: list[bytes], *, gzipped: bool) -> None:
        self.buckets = tuple(map(bucket_of, frames))
        self.frame = frames[0] if len(frames) == 1 else b"".join(frames)
        self.size = len(self.frame)
        # Longer ones are not pushed.
        self.sent = segment(self.frame) if gzipped and 0 < self.size <= CHUNK_BYTES else self.frame


def is_slow(encoder: EventEncoder, events: Sequence[Event]) -> bool:
    """Return True if the frames of these events must be made in a thread: large objects are encoded, or many rows."""
    work = [encoder.work(event.entry) for event in events]
    return max(work, default=0) > LARGE_BYTES or sum(work) > MANY_BYTES


def joined(frames: list[bytes]) -> Iterator[bytes]:
    """Join frames into writes of bounded size."""
    pending: list[bytes] = []
    size = 0
    for frame in frames:
        pending.append(frame)
        size += len(frame)
        if size >= CHUNK_BYTES:
            yield b"".join(pending)
            pending, size = [], 0
    if pending:
        yield b"".join(pending)
