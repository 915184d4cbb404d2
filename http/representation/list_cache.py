"""Lists, whole or page by page, put together once for all who ask before anything in them changes: a cluster's
informers begin anew together.

A list that is asked for a second time is kept as it is sent, in chunks; one that is asked for once costs no memory.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Hashable, Sequence

import trio

from kubechronicle.eventlog.entries import Entry
from kubechronicle.http.pieces import Items, kept_items
from kubechronicle.http.representation.encoding_cache import Encodings

TURN = 0.004
"""Seconds of work on one list, after which others get their turn."""
FEW = 64
"""Entries of a list that is put together each time."""


class Turns:
    """Lets others have their turn from time to time."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    async def pause(self) -> None:
        if time.perf_counter() - self._began > TURN:
            await trio.lowlevel.checkpoint()
            self._began = time.perf_counter()


async def list_items(
    encodings: Encodings | None, variant: Hashable, entries: Sequence[Entry], make: Callable[[], Awaitable[Items]]
) -> Items:
    """The items of these entries: as they are kept, or else as they are made. ``variant`` tells by which rules."""
    if encodings is None or len(entries) < FEW:
        return await make()
    variant = ("list", variant)
    kept: Items | None = encodings.of_list(variant, entries)
    if kept:
        return kept
    erasures = encodings.erasures
    items = await make()
    if erasures != encodings.erasures:
        return items
    if kept is None:
        encodings.keep_list(variant, entries, (), 0)
    elif encodings.holds(items.length):
        chunks, turns = [], Turns()
        for chunk in items.chunks(b"", b""):
            chunks.append(chunk)
            await turns.pause()
        items = kept_items(chunks)
        if erasures == encodings.erasures:
            encodings.keep_list(variant, entries, items, items.length)
    return items
