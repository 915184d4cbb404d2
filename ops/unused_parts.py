"""Overwriting of the unused parts of memory in use. They stay as they were before the memory was allocated again.

A list that grows by ``append`` has room for later items, and a deque has blocks of 64 places. Python's allocator
divides pools of 16 KiB into blocks of one size, and leaves a rest. All keep pieces of texts that were freed before:

    list      [item, item, item, .., .., ..]                  the part behind the last item
    deque     [.., .., item, item, …] … [item, .., ..]        the parts before the first and behind the last item
    pool      [header, block, block, …, block, ..]            the part behind the last block

Dictionaries, sets and the rest are filled when they are made, or have no such part. The layout is that of CPython
(Include/cpython/listobject.h, Modules/_collectionsmodule.c, Objects/obmalloc.c). It is proved with known contents
first; if it differs, nothing is written.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import operator
import os
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

_POINTER: Final = 8
_FIELDS: Final = 16
"""Bytes before the size of a container: the number of its references, and its type."""
_LIST: Final = struct.Struct("@nPn")
"""Number of items, their address, number of places."""
_DEQUE: Final = struct.Struct("@nPPnn")
"""Number of items, the first and the last block, the places of the first and of the last item in them."""
_PLACES: Final = 64
"""Places of a block of a deque. It begins with the address of the block before, and ends with that of the next one."""
_SPARE: Final = 16
"""Blocks that CPython 3.11 keeps for later deques."""
KINDS: Final = (list, deque)
_POOL: Final = struct.Struct("@I4xPPPIIII")
"""Number of blocks in use, a free one, next and previous pool, number of the arena, size class, and two offsets: of the
next block that was never in use, and of the last block."""
_CLASS: Final = slice(36, 40)
"""The bytes of the size class."""
_POOL_SIZE: Final = 1 << 14
_STEP: Final = 16
_CLASSES: Final = 32
"""Bytes between the sizes of blocks, and the number of sizes."""


def containers() -> list[Any]:
    """Return all lists and deques that the collector knows. Those that ``gc.freeze`` has hidden are not among them."""
    return [each for each in gc.get_objects() if type(each) in KINDS]


def overwrite_unused_parts(of: Iterable[Any]) -> None:
    """Overwrite the unused parts of lists and deques, which other threads may use and change meanwhile."""
    if not _is_known_layout():
        return
    _take_spare_blocks()
    functions = _functions()
    with uninterrupted():
        for each in of:
            if type(each) is list:
                _overwrite(each, _LIST, _behind, *functions)
            elif type(each) is deque:
                _overwrite(each, _DEQUE, _around, *functions)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Collect no cycles within the block: a finalizer could run in it, or a collection see what is half done."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def overwrite_rests_of_pools() -> None:
    """Overwrite what the blocks of each pool of Python's allocator leave over: up to 496 bytes."""
    if not _is_known_pool():
        return
    library = ctypes.PyDLL(None)
    library.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    compare, write = _functions()
    present = ctypes.create_string_buffer(_POOL_SIZE // 4096)
    with uninterrupted():
        for pool in _aligned_memory():
            rest = _rest(pool.header, pool.address)
            if rest:
                # It may have been freed since it was read, or divided otherwise: mincore fails, or the bytes differ.
                steps = (
                    partial(library.mincore, pool.address, _POOL_SIZE, present),
                    partial(compare, pool.address + _CLASS.start, pool.header[_CLASS], _CLASS.stop - _CLASS.start),
                    partial(write, pool.address + _POOL_SIZE - rest, 0, rest),
                )
                any(map(operator.call, steps))


class _Aligned(NamedTuple):
    """A place where a pool may begin, and the bytes there."""

    address: int
    header: bytes


def _aligned_memory() -> Iterator[_Aligned]:
    """Yield all places of the process where a pool may begin."""
    with Path("/proc/self/maps").open() as maps, Path("/proc/self/mem").open("rb", buffering=0) as memory:
        for line in maps.read().splitlines():
            extent, access, *others = line.split()
            if access.startswith("rw") and len(others) == 3:  # neither a file nor the heap of malloc
                begin, end = (int(each, 16) for each in extent.split("-"))
                for address in range(begin + -begin % _POOL_SIZE, end - _POOL_SIZE + 1, _POOL_SIZE):
                    with contextlib.suppress(OSError):  # it has been unmapped
                        yield _Aligned(address, os.pread(memory.fileno(), _POOL.size, address))


def _rest(header: bytes, pool: int) -> int:
    """Return the number of bytes behind the last block of a pool; 0: there are none, or it is no pool in use."""
    count, free, _, _, _, size_class, given, last = _POOL.unpack(header)
    size = (size_class + 1) * _STEP
    blocks, rest = divmod(_POOL_SIZE - _POOL.size, size)
    of_blocks = range(_POOL.size, _POOL_SIZE + 1, size)
    is_pool = (
        size_class < _CLASSES
        and last == _POOL_SIZE - size
        and 0 < count <= blocks
        and given in of_blocks
        and (not free or free - pool in of_blocks)
    )
    return rest if is_pool else 0


def _is_known_pool() -> bool:
    """Tell whether Python's allocator has pools of the known form, and the kernel tells what the process has mapped."""
    blocks = [bytes(7 * _STEP - b"".__sizeof__()) for _ in range(_POOL_SIZE // _STEP)]
    pools = {id(each) & -_POOL_SIZE for each in blocks}
    expected = (_POOL_SIZE - _POOL.size) % (7 * _STEP)
    found = {_rest(ctypes.string_at(pool, _POOL.size), pool) for pool in pools}
    return found == {expected} and all(Path(f"/proc/self/{name}").exists() for name in ("maps", "mem"))


def _behind(size: int, items: int, places: int) -> list[tuple[int, int]]:
    """Return the unused part of a list: address and bytes."""
    return [(items + size * _POINTER, (places - size) * _POINTER)] if items and places > size else []


def _around(_size: int, first: int, last: int, begin: int, end: int) -> list[tuple[int, int]]:
    """Return the unused parts of a deque: address and bytes, with the links of its ends, which nothing reads."""
    behind = last + (end + 2) * _POINTER
    return [(first, (begin + 1) * _POINTER), (behind, (_PLACES - end) * _POINTER)]


def _overwrite(container: Any, fields: struct.Struct, unused: Any, compare: Any, write: Any) -> None:
    """Write zeros, unless the container has changed since its fields were read.

    ``any`` makes the comparison and the writing one step: no bytecode runs between them, so no other thread.
    ``compare``, ``write``: memcmp and memset.
    """
    address = id(container) + _FIELDS
    read = ctypes.string_at(address, fields.size)
    parts = unused(*fields.unpack(read))
    if parts:
        steps = [partial(compare, address, read, fields.size), *(partial(write, at, 0, length) for at, length in parts)]
        any(map(operator.call, steps))


def _functions() -> tuple[Any, Any]:
    """Return memcmp and memset of the C library, which keep the GIL. Neither is true: ``any`` goes on behind them."""
    library = ctypes.PyDLL(None)
    library.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    library.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    library.memset.restype = None
    return library.memcmp, library.memset


def _is_known_layout() -> bool:
    """Tell whether lists and deques of this interpreter have the known fields."""
    items = [object()]
    items.append(items[0])
    grown: deque[object] = deque(items)
    size, _, places = _LIST.unpack(ctypes.string_at(id(items) + _FIELDS, _LIST.size))
    if size != len(items) or list.__basicsize__ + places * _POINTER != items.__sizeof__():
        return False
    size, first, last, begin, end = _DEQUE.unpack(ctypes.string_at(id(grown) + _FIELDS, _DEQUE.size))
    if size != len(grown) or first != last or end - begin != 1 or not 0 <= begin < _PLACES:
        return False
    return ctypes.string_at(first + (begin + 1) * _POINTER, _POINTER) == id(items[0]).to_bytes(_POINTER, "little")


def _take_spare_blocks() -> None:
    """Fill the blocks that are kept for later deques."""
    filled: deque[None] = deque([None] * (_SPARE + 1) * _PLACES)
    filled.extendleft([None] * _PLACES)
