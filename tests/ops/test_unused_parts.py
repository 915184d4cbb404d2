"""The unused parts of lists and deques are overwritten, and their items stay."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections import deque
from typing import Any

import pytest

from kubechronicle.ops import unused_parts
from kubechronicle.ops.unused_parts import containers, overwrite_unused_parts

MARK = b"\xab" * 8


def parts_of(container: Any) -> list[tuple[int, int]]:
    fields = unused_parts._LIST if type(container) is list else unused_parts._DEQUE
    parts = unused_parts._behind if type(container) is list else unused_parts._around
    return parts(*fields.unpack(ctypes.string_at(id(container) + unused_parts._FIELDS, fields.size)))


def unused(container: Any) -> bytes:
    """Return the contents of the unused parts of a list or deque."""
    return b"".join(ctypes.string_at(at, length) for at, length in parts_of(container))


def fill(container: Any) -> None:
    """Write the mark into the unused parts, as a block may have it that was a text before."""
    for at, length in parts_of(container):
        ctypes.memmove(at, MARK * (length // 8), length)


def test_the_layout_of_this_interpreter_is_known() -> None:
    assert unused_parts._is_known_layout()


@pytest.mark.parametrize("count", [0, 1, 4, 5, 63, 64, 65, 200])
def test_the_part_behind_the_items_of_a_list_is_overwritten(count: int) -> None:
    grown: list[int] = []
    for number in range(count):
        grown.append(number)
    fill(grown)
    overwrite_unused_parts([grown])
    assert not any(unused(grown))
    assert grown == list(range(count))
    grown.extend(range(300))
    assert grown == [*range(count), *range(300)]


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 64, 65, 128, 200])
@pytest.mark.parametrize("turn", [0, 7, 70])
def test_the_parts_around_the_items_of_a_deque_are_overwritten(count: int, turn: int) -> None:
    line = deque(range(count + turn))
    for _ in range(turn):
        line.popleft()
    expected = list(line)
    fill(line)
    overwrite_unused_parts([line])
    assert not any(unused(line))
    assert list(line) == expected
    line.extend(range(100))
    line.extendleft(range(100))
    assert list(line) == [*reversed(range(100)), *expected, *range(100)]


def test_the_part_of_a_list_that_changes_meanwhile_is_left() -> None:
    """An item that another thread adds after the fields were read is not overwritten."""
    grown = [0, 1, 2]
    grown.append(3)

    def behind_and_append(size: int, items: int, places: int) -> list[tuple[int, int]]:
        parts = unused_parts._behind(size, items, places)
        grown.append(4)
        return parts

    unused_parts._overwrite(grown, unused_parts._LIST, behind_and_append, *unused_parts._functions())
    assert grown == [0, 1, 2, 3, 4]


def test_containers_in_use_by_other_threads_keep_their_items() -> None:
    """Three threads append to lists and deques, and take from them, while their unused parts are overwritten."""
    stop = threading.Event()
    wrong: list[Any] = []

    def use() -> None:
        while not stop.is_set():
            grown: list[int] = []
            line: deque[int] = deque()
            for number in range(300):
                grown.append(number)
                line.append(number)
                if number % 3 == 0:
                    line.popleft()
            if grown != list(range(300)) or list(line) != list(range(100, 300)):
                wrong.append((grown, line))

    threads = [threading.Thread(target=use) for _ in range(3)]
    for each in threads:
        each.start()
    for _ in range(8):  # each looks at all containers of all tests: seconds in a long run
        overwrite_unused_parts(containers())
    stop.set()
    for each in threads:
        each.join()
    assert not wrong
    assert gc.isenabled()


def test_what_the_blocks_of_a_pool_leave_over_is_overwritten() -> None:
    """A pool whose blocks were texts of 16 bytes is divided into blocks of 288: 208 bytes are left over."""
    assert unused_parts._is_known_pool()
    held = [bytes(288 - 33 - number % 3) for number in range(2000)]
    contents = list(held)
    pools = {id(each) & -unused_parts._POOL_SIZE for each in held}
    for pool in pools:
        ctypes.memmove(pool + unused_parts._POOL_SIZE - 208, MARK * 26, 208)
    unused_parts.overwrite_rests_of_pools()
    assert {ctypes.string_at(pool + unused_parts._POOL_SIZE - 208, 208) for pool in pools} == {bytes(208)}
    assert held == contents
