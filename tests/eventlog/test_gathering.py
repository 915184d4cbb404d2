"""Gathering: the choice of waiting transactions for the next batch of the appender."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubechronicle.eventlog import appender
from kubechronicle.eventlog.appender import Pending, gather
from kubechronicle.eventlog.records import Key
from kubechronicle.eventlog.testing import put, transaction


def pending(*names: str, size: int = 1) -> Pending:
    """Return a waiting transaction that creates these pods."""
    changes = (put(Key("pods", "a", name), expected=0) for name in names)
    return Pending(transaction(*changes), deadline=0.0, size=size)


@given(st.lists(st.sets(st.sampled_from("abcdef"), min_size=1, max_size=3), max_size=30), st.integers(1, 8))
def test_gathering_keeps_the_order_of_every_key(queue: list[set[str]], size: int) -> None:
    whole = [pending(*sorted(names)) for names in queue]
    waiting, done = whole, list[Pending]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(appender, "BATCH_TRANSACTIONS", size)
        while waiting:
            batch = gather(waiting)
            keys = [change.key for each in batch for change in each.transaction.changes]
            assert len(keys) == len(set(keys))
            assert 0 < len(batch) <= size
            done += batch
            waiting = [each for each in waiting if each not in batch]
    for name in "abcdef":
        concerned = {each for each, names in zip(whole, queue, strict=True) if name in names}
        assert [each for each in done if each in concerned] == [each for each in whole if each in concerned]


def test_gathering_skips_a_taken_key_and_all_later_changes_of_it() -> None:
    queue = [pending(*names) for names in ("a", "b", "a", "ac", "c", "d")]
    batch = gather(queue)
    assert [queue.index(each) for each in batch] == [0, 1, 5]


def test_gathering_is_bounded_by_bytes_but_takes_one_transaction_of_any_size() -> None:
    large = appender.BATCH_BYTES
    queue = [pending(name, size=size) for name, size in (("a", 2 * large), ("b", 1))]
    assert gather(queue) == queue[:1]
    queue = [pending(name, size=size) for name, size in (("a", large // 2), ("b", large // 2), ("c", 1))]
    assert gather(queue) == queue[:2]
