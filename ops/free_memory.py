"""Overwriting of freed memory, after an erasure: Python's allocator and the C library keep freed blocks as they were.

First, cycles are collected, and decoders forget the names of fields that they have kept. Then all free blocks are
allocated, which writes over them, until an allocator asks the kernel for more; and freed again:

    blocks up to 512 bytes    Python's allocator, in size classes of 16 bytes, in arenas of 1 MiB
    larger ones, and C's      malloc, of which the process has one arena (``use_one_arena``)

Before that, the unused parts of blocks in use are overwritten (unused_parts.py). This runs in a thread, and the event
loop beside it. Then the loop and all idle worker threads overwrite the few blocks
that malloc has cached for each. A busy one, and what a request of the moment frees later, is left: it is all repeated.
Only glibc's malloc is overwritten.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, Final

import msgspec
import orjson
import trio

from kubechronicle.api.values.caches import CACHES
from kubechronicle.ops import unused_parts

_STEP: Final = 16
_LARGEST: Final = 512
"""Bytes between the size classes of Python's allocator, and of the largest one."""
_HEADER: Final = b"".__sizeof__()
_BATCH: Final = 64 * 1024
"""Bytes allocated between two looks at the size of the process."""
_SIZES: Final = (1 << 16, 1 << 14, 1 << 12, 2048, *range(1024, 8, -_STEP))
"""Sizes of malloc, the largest first, so that few blocks take most of the memory. All are below its mmap threshold."""
_MOST_BLOCKS: Final = 400_000
"""Blocks of malloc that are overwritten at most, as a bound of the time."""
_CACHED: Final = 8
"""Blocks of a size that a thread's cache may have, which are taken before any others."""
_KEYS: Final = 40_000
"""Names that are decoded: twenty times as many as orjson keeps, and eighty times those of msgspec."""
_LARGEST_CACHED: Final = 1032
"""Bytes of the largest blocks that malloc caches by thread."""
_M_ARENA_MAX: Final = -8

PAUSES: Final = (0.0, 1.0, 10.5, 10.5)
"""Seconds before each time: at once, after the requests of the moment, twice after idle worker threads have ended."""


def _glibc() -> Any:
    """Return glibc, None if another C library runs the process."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "malloc_trim"):
        return None
    libc.sbrk.restype = ctypes.c_void_p
    libc.sbrk.argtypes = [ctypes.c_ssize_t]
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.malloc_usable_size.argtypes = [ctypes.c_void_p]
    libc.malloc_usable_size.restype = ctypes.c_size_t
    return libc


def use_one_arena() -> None:
    """Let all threads share malloc's first arena, so that ``overwrite`` reaches what they have freed.

    To be called before the first thread starts: glibc fixes the number of arenas when that allocates.
    """
    libc = _glibc()
    if libc is not None:
        libc.mallopt(_M_ARENA_MAX, 1)


class FreeMemory:
    """Overwrites the free memory of the process some times after each call of ``wanted``."""

    def __init__(self, collect: Callable[[], Awaitable[object]]) -> None:
        """``collect``: frees cycles."""
        self._collect = collect
        self._wanted = trio.Event()
        self._frozen: list[Any] = []

    def note_containers(self) -> None:
        """Note the lists and deques of now, before they are hidden from the collector (``gc.freeze``)."""
        self._frozen = unused_parts.containers()

    def wanted(self) -> None:
        """Let it begin soon."""
        self._wanted.set()

    async def run(self) -> None:
        """Overwrite whenever it is wanted, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            for pause in PAUSES:
                with trio.move_on_after(pause):
                    await self._wanted.wait()
                CACHES.forget_all()  # requests of that time may have added to them since
                await self._collect()
                await trio.to_thread.run_sync(overwrite, self._frozen)
                await _overwrite_caches()


def overwrite(frozen: Iterable[Any] = ()) -> None:
    """Overwrite all free memory but what is cached for other threads: some 100 ms of CPU time.

    ``frozen``: containers that the collector does not know any more.
    """
    _evict_keys()
    unused_parts.overwrite_unused_parts(chain(frozen, unused_parts.containers()))
    unused_parts.overwrite_rests_of_pools()
    _fill_python()
    libc = _glibc()
    if libc is not None:
        _fill_malloc(libc)
        libc.malloc_trim(0)


async def _overwrite_caches() -> None:
    """Overwrite what malloc has cached for the event loop's thread and for each idle worker thread.

    As many calls as there are threads wait for each other, so none of them uses the same thread twice.
    """
    count = threading.active_count()
    together = threading.Barrier(count, timeout=1)

    def in_thread() -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait()
        overwrite_cached()

    limiter = trio.CapacityLimiter(count)
    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(partial(trio.to_thread.run_sync, in_thread, limiter=limiter))
    overwrite_cached()


def overwrite_cached() -> None:
    """Overwrite the blocks that malloc has cached for this thread: 1 ms of CPU time."""
    libc = _glibc()
    if libc is not None:
        sizes = range(24, _LARGEST_CACHED + _STEP, _STEP)
        for address in [_written(libc, size) for size in sizes for _ in range(_CACHED)]:
            libc.free(address)


def _written(libc: Any, size: int) -> int:
    """Return the address of a new block without its former contents; 0: there is no memory."""
    address: int = libc.malloc(size) or 0
    if address:
        ctypes.memset(address, 0, libc.malloc_usable_size(address))
    return address


def _evict_keys() -> None:
    text = orjson.dumps({f"key-{number}": None for number in range(_KEYS)})
    orjson.loads(text)
    msgspec.json.decode(text)


def _fill_python() -> None:
    """Fill the free blocks of Python's allocator, one size class after the other."""
    with _size() as size:
        for block in range(_LARGEST, 0, -_STEP):
            count = _BATCH // block
            held: list[Any] = []
            before = size()
            while size() - before < 1 << 20:
                held.append(_blocks(block, count))


def _blocks(block: int, count: int) -> list[object]:
    """Return objects of a size class."""
    if block > 2 * _STEP:
        return [bytes(block - _HEADER) for _ in range(count)]
    return [object() for _ in range(count)] if block == _STEP else [(1 << 29) + number for number in range(count)]


@contextlib.contextmanager
def _size() -> Iterator[Callable[[], int]]:
    """Provide a function that returns the size of the process in bytes."""
    page = os.sysconf("SC_PAGE_SIZE")
    file = os.open("/proc/self/statm", os.O_RDONLY)
    try:
        yield lambda: int(os.pread(file, 64, 0).split(b" ", 1)[0]) * page
    finally:
        os.close(file)


def _fill_malloc(libc: Any) -> None:
    """Fill the free blocks of malloc, the largest first.

    A block behind the former end of the heap shows that no free one is large enough. The loop allocates meanwhile, too.
    """
    libc.malloc_trim(0)
    held: list[int] = []
    for size in _SIZES:
        end = libc.sbrk(0)
        while len(held) < _MOST_BLOCKS:
            address = _written(libc, size)
            if address:
                held.append(address)
            if not address or address >= end:
                break
    for address in held:
        libc.free(address)
