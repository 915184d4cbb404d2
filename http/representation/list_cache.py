"""Cached lists and pages of lists, valid until one of their objects changes.

A cluster's informers restart together and list the same objects. The second request for a list stores its chunks; a
list that is requested once costs no memory.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Hashable, Sequence

import trio

from kubechronicle.eventlog.entries import Entry
from kubechronicle.http.list_body import Items, chunked_items
from kubechronicle.http.representation.encoding_cache import EncodingCache

TURN = 0.004
"""Seconds of work on one list after which other tasks run."""
FEW = 64
"""Entries of a list up to which it is not cached."""


class Pauses:
    """Lets other tasks run from time to time."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    async def pause(self) -> None:
        if time.perf_counter() - self._began > TURN:
            await trio.lowlevel.checkpoint()
            self._began = time.perf_counter()


async def list_items(
    cache: EncodingCache | None, variant: Hashable, entries: Sequence[Entry], encode: Callable[[], Awaitable[Items]]
) -> Items:
    """Return the items of these entries, from the cache or newly encoded. ``variant``: the representation."""
    if cache is None or len(entries) < FEW:
        return await encode()
    variant = ("list", variant)
    cached: Items | tuple[()] | None = cache.get_list(variant, entries)
    if cached:
        return cached
    erasures = cache.erasures
    items = await encode()
    if erasures != cache.erasures:
        return items
    if cached is None:
        cache.put_list(variant, entries, (), 0)
    elif cache.admits(items.length):
        chunks, pauses = [], Pauses()
        for chunk in items.chunks(b"", b""):
            chunks.append(chunk)
            await pauses.pause()
        items = chunked_items(chunks)
        if erasures == cache.erasures:
            cache.put_list(variant, entries, items, items.length)
    return items
