"""Batch ids: their format and their order."""

from __future__ import annotations

import time

import pytest

from kubechronicle.eventlog.records import BatchIds


def test_batch_ids_are_uuids_of_version_7_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 0x017F22E279B0 * 1_000_000 + 500_000)  # RFC 9562, A.6
    made = BatchIds().next()
    assert str(made).startswith("017f22e2-79b0-7800-")
    assert (made.version, made.variant) == (7, "specified in RFC 4122")


def test_batch_ids_ascend_even_if_the_clock_stops_or_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    ids, times = BatchIds(), iter([10**18, 10**18, 10**18 - 10**9, 10**18 + 1])
    monkeypatch.setattr(time, "time_ns", lambda: next(times))
    made = [ids.next() for _ in range(4)]
    assert made == sorted(set(made), key=lambda each: each.bytes)
    assert {each.version for each in made} == {7}


def test_the_batch_ids_of_two_servers_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    assert BatchIds().next() != BatchIds().next()
