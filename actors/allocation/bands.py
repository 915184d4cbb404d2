"""The two bands of a range of addresses or ports (KEP-3070, KEP-3668).

Requested values usually lie in the lower band, so chosen ones come from the upper band, and from the lower band only
when the upper one is full. The lower band has min(max(16, size/16), 256) addresses or min(max(16, size/32), 128) ports.
A range of 16 or fewer has none.

    10.96.0.0/24     256 addresses: 10.96.0.1-16 lower, 10.96.0.17-254 upper
    30000-32767      2768 ports:    30000-30085 lower, 30086-32767 upper
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count
from random import Random
from typing import Final

from kubechronicle.actors.external_answers import in_steps
from kubechronicle.api.values.steps import Steps

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

LEAST: Final = 16
ADDRESS_STEP, ADDRESS_MOST = 16, 256
PORT_STEP, PORT_MOST = 32, 128
# Random draws before a band is searched in order. Only a band that is nearly full needs the search.
DRAWS: Final = 256
# Numbers of a step of a search. A band with more is searched with pauses (external_answers.py: ``in_steps``).
SEARCHED: Final = 1024


def lower_band(size: int, *, step: int, most: int) -> int:
    """Return the size of the lower band of ``size`` numbers."""
    if size <= LEAST:
        return 0
    return min(max(LEAST, size // step), most)


@dataclass(frozen=True, slots=True)
class NumberPool:
    """The numbers ``first`` to ``last``. The first ``lower`` of them are the lower band."""

    first: int
    last: int
    lower: int

    def __contains__(self, number: int) -> bool:
        return self.first <= number <= self.last

    @property
    def size(self) -> int:
        return max(self.last - self.first + 1, 0)

    def choose(self, taken: Callable[[int], bool], random: Random) -> int | None:
        """Return a random free number, of the upper band if possible; None: all are taken."""
        number = _choose(self.first + self.lower, self.last, taken, random)
        if number is None and self.lower:
            number = _choose(self.first, self.first + self.lower - 1, taken, random)
        return number

    def free(self, taken: Callable[[int], bool], random: Random) -> list[int]:
        """Return all free numbers in random order, those of the upper band last. NeedsExternalAnswer: it takes long."""
        order = random.random()
        key = ("free numbers", self, order)
        return list(in_steps(key, self._all_free(taken, Random(order)), long=self.size > SEARCHED))

    def _all_free(self, taken: Callable[[int], bool], random: Random) -> Steps[list[int]]:
        numbers: list[int] = []
        for band in (range(self.first, self.first + self.lower), range(self.first + self.lower, self.last + 1)):
            left = yield from _search(band, taken, len(band))
            random.shuffle(left)
            numbers += left
        return numbers


def _choose(first: int, last: int, taken: Callable[[int], bool], random: Random) -> int | None:
    """Return a random free number; None: all are taken. NeedsExternalAnswer: to find one takes long."""
    size = last - first + 1
    if size <= 0:
        return None
    for _ in range(min(DRAWS, size)):
        number = first + random.randrange(size)
        if not taken(number):
            return number
    start = first + random.randrange(size)
    for again in count():
        order = chain(range(start, last + 1), range(first, start))
        found = in_steps(("a free number", first, start, again), _search(order, taken, 1), long=size > SEARCHED)
        if not found:
            return None
        if not taken(found[0]):  # by another write since it was found
            return found[0]
    raise AssertionError


def _search(numbers: Iterable[int], taken: Callable[[int], bool], most: int) -> Steps[list[int]]:
    """Return the free ones of some numbers in order, at most so many."""
    found: list[int] = []
    for place, number in enumerate(numbers):
        if not place % SEARCHED:
            yield
        if not taken(number):
            found.append(number)
            if len(found) == most:
                break
    return found


def port_pool(ports: range) -> NumberPool:
    """Return the pool of a range of node ports."""
    return NumberPool(ports.start, ports.stop - 1, lower_band(len(ports), step=PORT_STEP, most=PORT_MOST))


@dataclass(frozen=True)
class AddressRange:
    """The addresses of one range of a ServiceCIDR. ``ready``: addresses may be allocated from it."""

    network: Network
    ready: bool = True

    @property
    def family(self) -> str:
        return f"IPv{self.network.version}"

    @cached_property
    def pool(self) -> NumberPool:
        """The range without its network address and, for IPv4, its broadcast address."""
        first, last = int(self.network.network_address) + 1, int(self.network.broadcast_address)
        if self.network.version == 4:
            last -= 1
        lower = lower_band(self.network.num_addresses, step=ADDRESS_STEP, most=ADDRESS_MOST)
        return NumberPool(first, last, lower)

    def __contains__(self, address: Address) -> bool:
        return address.version == self.network.version and int(address) in self.pool

    def name_of(self, number: int) -> str:
        """Return the name of a number's IPAddress object."""
        if self.network.version == 4:
            return f"{number >> 24}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        return str(ipaddress.IPv6Address(number))

    def choose(self, taken: Callable[[str], bool], random: Random) -> str | None:
        """Return the name of a free address; None: all are taken."""
        number = self.pool.choose(lambda number: taken(self.name_of(number)), random)
        return None if number is None else self.name_of(number)
