"""Reads that are bounded by bytes: the rows come in small parts from a cursor, until they have enough bytes.

Postgres can't tell the length of a stored object without decompressing it, so a statement can't bound the bytes itself.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import Final

from kubechronicle.eventlog.postgres.session import ConnectionLost, Pool, Row
from kubechronicle.eventlog.queries import chunks
from kubechronicle.eventlog.queries.chunks import Chunk

FEW: Final = 8
"""Rows that are read without a cursor, which takes three more round trips."""

PART: Final = 64
"""Most objects in the rows that a cursor returns at once. Their bytes are known when they have arrived."""


async def fetch_bounded(
    pool: Pool, statement: str, *arguments: object, limit: int, size: Callable[[Row], int], objects: int = 2
) -> Chunk[Row]:
    """Return the rows of a statement that has a ``limit``, up to the part that reaches CHUNK_BYTES. LogUnavailable.

    The statement returns at least one row. ``size``: returns the bytes of the objects in a row. ``objects``: their
    number.
    """
    if limit <= FEW:
        return Chunk(await pool.fetch(statement, *arguments))
    try:
        return await _fetch_with_cursor(pool, statement, *arguments, size=size, most=PART // objects)
    except ConnectionLost:  # an idle connection that died unnoticed, as in Pool.fetch
        pool.drop_idle()
    return await _fetch_with_cursor(pool, statement, *arguments, size=size, most=PART // objects)


async def _fetch_with_cursor(
    pool: Pool, statement: str, *arguments: object, size: Callable[[Row], int], most: int
) -> Chunk[Row]:
    result: Chunk[Row] = Chunk()
    total = 0
    async with (
        pool.session() as session,
        session.reading(),
        aclosing(session.rows(statement, *arguments, chunk=most, size=size)) as parts,
    ):
        async for part in parts:
            result += part
            total += sum(map(size, part))
            if total >= chunks.CHUNK_BYTES:
                result.cut = True
                break
    return result
