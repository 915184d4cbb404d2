"""Full ranges of addresses and ports: no pass of the event loop is long, and what is free is found."""

from __future__ import annotations

import pytest
from services import SERVICES, open_services, service
from stalls.longest_pass import passes_below

from kubechronicle.actors.allocation.pending_allocations import PendingAllocations
from kubechronicle.eventlog.records import Key

LONGEST = 0.045
"""Seconds of CPU of a pass. A search of 65,000 addresses took 0.1 s."""


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Let all keys be allocated but those of these names."""
    names: set[str] = set()
    has = PendingAllocations.has

    def has_all(self: PendingAllocations, key: Key) -> bool:
        return has(self, key) or key.name not in names

    monkeypatch.setattr(PendingAllocations, "has", has_all)
    return names


async def test_a_full_range_of_addresses(free: set[str]) -> None:
    async with open_services() as server:
        with passes_below(LONGEST):
            answer = await server.ask("POST", SERVICES, service())
        assert answer.refused(500)["message"].endswith("failed to allocate a serviceIP: range is full")
        free.add("10.96.201.7")
        with passes_below(LONGEST):
            answer = await server.ask("POST", SERVICES, service())
        assert answer.ok()["spec"]["clusterIP"] == "10.96.201.7"


async def test_a_full_range_of_many_ports(free: set[str]) -> None:
    free |= {"10.96.201.7", "31234", "31235"}
    ports = [{"name": f"p{port}", "port": port} for port in range(1, 21)]
    async with open_services() as server:
        with passes_below(LONGEST):
            answer = await server.ask("POST", SERVICES, service(type="NodePort", ports=ports[:2]))
        assert {port["nodePort"] for port in answer.ok()["spec"]["ports"]} == {31234, 31235}
        free.add("10.96.201.8")
        with passes_below(LONGEST):
            answer = await server.ask("POST", SERVICES, service("b", type="NodePort", ports=ports))
        assert "range is full" in answer.refused(500)["message"]
