"""Reads that are bounded by bytes: the rows come in small parts from a cursor, until they have enough bytes.

Postgres can't tell the length of a stored object without decompressing it, so a statement can't bound the bytes itself.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import Final

from kubechronicle.eventlog.postgres.session import ConnectionLost, Row, SessionPool
from kubechronicle.eventlog.queries import chunks
from kubechronicle.eventlog.queries.chunks import Chunk

FEW: Final = 8
"""Rows that are read without a cursor, which takes three more round trips."""

PART: Final = 512
"""Most objects in the rows that a cursor returns at once. Their bytes are known when they have arrived."""
PART_BYTES: Final = 64 * 1024 * 1024
"""Bytes of such rows, after which the connection is dropped: large objects have followed small ones."""
SMALL_BYTES: Final = 4 * 1024 * 1024
"""Bytes of rows that are read without a cursor, as they are usually small. With more, the connection is dropped."""
SMALL_PART: Final = 8
"""Most objects in the rows that are returned at once by the second attempt, whatever their bytes."""


async def fetch_bounded(
    pool: SessionPool,
    statement: str,
    *arguments: object,
    limit: int,
    size: Callable[[Row], int],
    objects: int = 2,
    enough: int = 0,
    small: bool = False,
) -> Chunk[Row]:
    """Return the rows of a statement that has a ``limit``, up to the part that has enough bytes. LogUnavailable.

    ``size``: returns the bytes of the objects in a row. ``objects``: their number. ``enough``: 0: CHUNK_BYTES.
    ``small``: all rows together are usually small, and read at once.
    """
    if limit <= FEW:
        return Chunk(await pool.fetch(statement, *arguments))
    if small:
        try:
            async with pool.session() as session:
                return Chunk(await session.fetch(statement, *arguments, most_bytes=SMALL_BYTES))
        except ConnectionLost:  # as below
            pool.drop_idle()
    read = partial(_fetch_with_cursor, pool, statement, *arguments, size=size, enough=enough or chunks.CHUNK_BYTES)
    try:
        return await read(most=PART // objects, most_bytes=PART_BYTES)
    except ConnectionLost:  # an idle connection that died unnoticed, as in Pool.fetch; or there were too many bytes
        pool.drop_idle()
    return await read(most=SMALL_PART // objects, most_bytes=None)


async def _fetch_with_cursor(
    pool: SessionPool,
    statement: str,
    *arguments: object,
    size: Callable[[Row], int],
    enough: int,
    most: int,
    most_bytes: int | None,
) -> Chunk[Row]:
    result: Chunk[Row] = Chunk()
    total = 0
    async with (
        pool.session() as session,
        session.reading(),
        aclosing(session.rows(statement, *arguments, chunk=most, size=size, most_bytes=most_bytes)) as parts,
    ):
        async for part in parts:
            result += part
            total += sum(map(size, part))
            if total >= enough:
                result.cut = True
                break
    return result
