"""Cached lists and pages of lists, valid until one of their objects changes.

A cluster's informers restart together and list the same objects. The second request for a list stores its chunks; a
list that is requested once costs no memory.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Hashable, Sequence
from operator import is_
from typing import TypeVar

from kubechronicle.actors.pauses import Pauses
from kubechronicle.eventlog.entries import Entry
from kubechronicle.http.list_body import Items, chunked_items, joined_items
from kubechronicle.http.representation.encoding_cache import CachedEncoder, EncodingCache, Flight, scope_of

FEW = 64
"""Entries of a list up to which it is not cached."""
PART = 64
"""Entries of a list up to which it is encoded at once."""
TOGETHER = 256
"""Entries that are looked up between two pauses. Each that must be encoded is followed by a pause of its own."""
T = TypeVar("T")


async def list_items(
    cache: EncodingCache | None,
    variant: Hashable,
    entries: Sequence[Entry],
    encode: Callable[[], Awaitable[Items]],
    *,
    keeps: bool = True,
    most: int = sys.maxsize,
) -> Items:
    """Return the items of these entries, from the cache or newly encoded. Equal lists at the same time wait for one.

    ``variant``: the representation. ``keeps``: cache the list; False if it also depends on the time. ``most``: bytes up
    to which it is cached.
    """
    if cache is None or len(entries) < FEW:
        return await encode()
    variant = ("list", variant)
    key = (variant, scope_of(entries), len(entries))
    while True:
        cached: Items | tuple[()] | None = cache.get_list(variant, entries) if keeps else None
        if cached:
            return cached
        flight = cache.flights.get(key)
        if flight is None:
            return await _lead(
                cache, key, entries, encode, variant if keeps else None, known=cached is not None, most=most
            )
        if not _are_same(flight.entries, entries):
            return await encode()
        flight.followers += 1
        await flight.ended.wait()
        if flight.items is not None:
            items: Items = flight.items
            return items


async def _lead(
    cache: EncodingCache,
    key: Hashable,
    entries: Sequence[Entry],
    encode: Callable[[], Awaitable[Items]],
    variant: Hashable | None,
    *,
    known: bool,
    most: int,
) -> Items:
    """Encode a list for all requests that wait for it. ``variant``: under which it is cached, if it was ``known``."""
    cache.fit()  # looks at every view, so not for a list that is found
    erasures = cache.erasures
    flight = cache.flights[key] = Flight(entries)
    try:
        items = await encode()
        fits = variant is not None and items.length <= most and cache.admits(items.length)
        if fits and not known and not flight.followers:
            if erasures == cache.erasures:
                cache.put_list(variant, entries, (), 0)
        elif fits or flight.followers:
            items = await _joined(items)
            if fits and erasures == cache.erasures:
                cache.put_list(variant, entries, items, items.length)
        flight.items = items
        return items
    finally:
        if cache.flights.get(key) is flight:
            del cache.flights[key]
        flight.ended.set()


async def _joined(items: Items) -> Items:
    chunks, pauses = [], Pauses()
    for chunk in items.chunks(b"", b""):
        chunks.append(chunk)
        await pauses.pause()
    return chunked_items(chunks)


def _are_same(some: Sequence[Entry], others: Sequence[Entry]) -> bool:
    return some is others or all(map(is_, some, others))


async def encode_all(
    entries: Sequence[Entry],
    encoder: CachedEncoder[T],
    separator: bytes,
    change: Callable[[list[T]], list[bytes]] | None = None,
) -> Items:
    """Encode all entries, with pauses. ``change``: makes the bytes of some encodings."""
    encoded, pauses = list[bytes](), Pauses()
    for start in range(0, len(entries), TOGETHER):
        part = await encoder.all_large(entries[start : start + TOGETHER])
        encoded += change(part) if change is not None else part  # type: ignore[arg-type]  # else bytes
        await pauses.pause()
    return joined_items(encoded, separator=separator)
