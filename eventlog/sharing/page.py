"""SharedPage: memory that all processes of a server map, in which the one that owns the log (hub.py) writes the news.

It begins with words, each of eight aligned bytes, which are written and read in one instruction:

    HEAD        the newest revision that the hub knows to be committed
    CLAIM       the number of the present claim to append alone (consistency.py); 0: there is none
    RESTARTS    how often the log went back
    BEGUN       the end of the frame that is being written, in bytes since the start
    WRITTEN     the end of the newest complete frame
    WANTED      not 0: a reader waits for records; readers set it, and the hub clears it

A ring of frames with the newest records follows. A frame has a length, a checksum, the RESTARTS of its time, and its
contents:

             BEGUN - RING_BYTES          a reader                   WRITTEN    BEGUN
    overwritten  ┆  frame    frame    frame  ┆  frame    frame    frame  ┆ frame ┆

The hub writes a record's frame before the HEAD that covers it, so a reader that finds HEAD finds the record, or that it
was overwritten. It writes BEGUN before it overwrites anything. So a reader copies first, and then looks whether the
copy is of whole frames; the checksum covers processors that reorder writes. A reader that was too slow reads the log.
Nobody waits for a lock, and a process that is killed leaves none behind.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import Final
from zlib import crc32

HEAD, CLAIM, RESTARTS, BEGUN, WRITTEN, WANTED = range(6)

WORDS_BYTES: Final = mmap.PAGESIZE
RING_BYTES: Final = 16 * 1024 * 1024
"""Some 10,000 changes of 1 KB. A reader that is further behind reads the log."""
LARGEST: Final = RING_BYTES // 4
"""Bytes of a frame. A larger one would leave no room for readers; its records are read from the log."""
_FRAME: Final = struct.Struct("<III")


def make_page() -> int:
    """Return the descriptor of new memory of zeros, which the caller closes. Unused parts take no memory."""
    descriptor = os.memfd_create("kubechronicle-log")
    os.ftruncate(descriptor, WORDS_BYTES + RING_BYTES)
    return descriptor


class SharedPage:
    """See the head of this file. ``words`` stay mapped as long as this object is kept."""

    def __init__(self, descriptor: int) -> None:
        whole = memoryview(mmap.mmap(descriptor, WORDS_BYTES + RING_BYTES))
        self.words = whole[:WORDS_BYTES].cast("Q")
        self._ring = whole[WORDS_BYTES:]

    def write(self, content: bytes) -> None:
        """Add a frame; the hub only. One above LARGEST is left out."""
        words = self.words
        frame = b"".join((_FRAME.pack(len(content), crc32(content), words[RESTARTS]), content))
        if len(frame) > LARGEST:
            return
        end = words[WRITTEN] + len(frame)
        words[BEGUN] = end
        place = words[WRITTEN] % RING_BYTES
        first = min(len(frame), RING_BYTES - place)
        self._ring[place : place + first] = frame[:first]
        self._ring[: len(frame) - first] = frame[first:]
        words[WRITTEN] = end

    def erase(self) -> None:
        """Overwrite the ring with zeros; the hub only. Readers take what they have not read from the log."""
        words = self.words
        words[BEGUN] = words[WRITTEN] + 2 * RING_BYTES
        for place in range(0, min(words[WRITTEN], RING_BYTES), len(_ZEROS)):
            self._ring[place : place + len(_ZEROS)] = _ZEROS
        words[WRITTEN] = words[BEGUN]

    def copy(self, begin: int, end: int) -> bytes | None:
        """Return the bytes between two places; None: they were overwritten."""
        if end - begin <= RING_BYTES:
            place = begin % RING_BYTES
            first = min(end - begin, RING_BYTES - place)
            found = bytes(self._ring[place : place + first]) + bytes(self._ring[: end - begin - first])
            if self.words[BEGUN] - begin <= RING_BYTES:
                return found
        return None


class RingReader:
    """Reads the frames that are written from now on."""

    def __init__(self, page: SharedPage) -> None:
        self._page = page
        self._at = page.words[WRITTEN]

    def frames(self, restarts: int) -> list[memoryview] | None:
        """Return the contents of new frames that were written after so many restarts of the log, in their order.

        None: some were overwritten; the next call goes on behind them.
        """
        end = self._page.words[WRITTEN]
        if self._at == end:
            return []
        data = self._page.copy(self._at, end)
        self._at = end
        return None if data is None else _contents(memoryview(data), restarts)


def _contents(data: memoryview, restarts: int) -> list[memoryview] | None:
    found: list[memoryview] = []
    at = 0
    while at < len(data):
        length, checksum, of = _FRAME.unpack_from(data, at)
        content = data[at + _FRAME.size : at + _FRAME.size + length]
        if len(content) != length or crc32(content) != checksum:
            return None
        if of == restarts:
            found.append(content)
        at += _FRAME.size + length
    return found


_ZEROS: Final = bytes(1 << 16)
