"""Bands of a range: their sizes, and the choice of free numbers."""

from __future__ import annotations

import ipaddress
from collections import Counter
from random import Random

import pytest

from kubechronicle.actors.allocation.bands import AddressRange, NumberPool, lower_band, port_pool
from kubechronicle.actors.allocation.ranges import DEFAULT_NODE_PORTS
from kubechronicle.actors.external_answers import decide_with_answers


def addresses(cidr: str) -> AddressRange:
    return AddressRange(ipaddress.ip_network(cidr))


@pytest.mark.parametrize(
    ("cidr", "lower"),
    [
        ("10.0.0.0/29", 0),
        ("10.0.0.0/28", 0),
        ("10.0.0.0/27", 16),
        ("10.0.0.0/24", 16),
        ("10.0.0.0/23", 32),
        ("10.0.0.0/20", 256),
        ("10.96.0.0/12", 256),
        ("fd00::/120", 16),
        ("fd00::/64", 256),
    ],
)
def test_the_lower_band_of_addresses(cidr: str, lower: int) -> None:
    assert addresses(cidr).pool.lower == lower


@pytest.mark.parametrize(
    ("ports", "lower"),
    [
        (DEFAULT_NODE_PORTS, 86),
        (range(30000, 30016), 0),
        (range(30000, 30017), 16),
        (range(30000, 30512), 16),
        (range(1, 65536), 128),
    ],
)
def test_the_lower_band_of_ports(ports: range, lower: int) -> None:
    pool = port_pool(ports)
    assert (pool.lower, pool.size) == (lower, len(ports))


def test_a_range_excludes_network_and_broadcast_addresses() -> None:
    four, six = addresses("10.0.0.0/24"), addresses("fd00::/120")
    assert (four.pool.first, four.pool.last) == (int(four.network[1]), int(four.network[254]))
    assert (six.pool.first, six.pool.last) == (int(six.network[1]), int(six.network[255]))
    assert ipaddress.ip_address("10.0.0.0") not in four
    assert ipaddress.ip_address("10.0.0.255") not in four
    assert ipaddress.ip_address("10.0.0.7") in four
    assert ipaddress.ip_address("fd00::ff") in six
    assert ipaddress.ip_address("fd00::") not in six
    assert ipaddress.ip_address("fd00::1") not in four


@pytest.mark.parametrize("number", [0x0A60000A, 0xFFFFFFFF, 0x01020304])
def test_names_are_canonical(number: int) -> None:
    assert addresses("10.0.0.0/8").name_of(number) == str(ipaddress.IPv4Address(number))
    assert addresses("fd00::/64").name_of(0xFD00 << 112 | number) == str(ipaddress.IPv6Address(0xFD00 << 112 | number))


def test_numbers_are_chosen_from_the_upper_band_at_random() -> None:
    range_, taken, random = addresses("10.0.0.0/24"), set[str](), Random(1)
    order = []
    while (name := range_.choose(taken.__contains__, random)) is not None:
        taken.add(name)
        order.append(int(name.rpartition(".")[2]))
    assert sorted(order) == list(range(1, 255))
    assert min(order[:238]) == 17
    assert sorted(order[238:]) == list(range(1, 17))
    assert order[:238] != sorted(order[:238])


def test_every_free_number_is_about_as_likely() -> None:
    pool, random = NumberPool(0, 9, 0), Random(2)
    drawn = Counter(pool.choose({3, 4, 5}.__contains__, random) for _ in range(7000))
    assert set(drawn) == {0, 1, 2, 6, 7, 8, 9}
    assert all(800 < count < 1200 for count in drawn.values())


@pytest.mark.parametrize("last", [40_000, 200, None])
async def test_the_last_free_number_of_many_is_chosen(last: int | None) -> None:
    def chosen() -> int | None:
        return NumberPool(1, 60000, 256).choose(lambda number: number != last, Random(3))

    assert await decide_with_answers(chosen) == last


def test_a_huge_range_is_not_searched() -> None:
    name = addresses("fd00::/64").choose(lambda name: False, Random(4))
    assert name is not None
    assert ipaddress.ip_address(name) in addresses("fd00::/64")


def test_an_empty_range_has_no_number() -> None:
    assert addresses("10.0.0.0/32").choose(lambda name: False, Random(5)) is None
    assert addresses("10.0.0.0/31").choose(lambda name: False, Random(5)) is None
    assert lower_band(0, step=16, most=256) == 0


def test_all_free_numbers_come_in_random_order_the_lower_band_first() -> None:
    free = NumberPool(1, 300, 20).free({3, 4, 100}.__contains__, Random(6))
    assert sorted(free[:18]) == sorted({*range(1, 21)} - {3, 4})
    assert sorted(free[18:]) == sorted({*range(21, 301)} - {100})
    assert free[18:] != sorted(free[18:])
