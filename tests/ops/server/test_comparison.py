"""Signs that the databases of a server were restored to different moments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kubechronicle.eventlog.transfer.ends import End
from kubechronicle.ops.server.replica import about_ends

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def end(minutes: int, *, bumped: int | None = None, fresh: bool = False) -> End:
    """Return the end of a log. ``minutes``: after noon. ``bumped``: minutes after noon."""
    at = None if bumped is None else NOON + timedelta(minutes=bumped)
    return End(committed_at=NOON + timedelta(minutes=minutes), bumped_at=at, is_fresh=fresh)


RESTORED = end(0, bumped=20, fresh=True)


@pytest.mark.parametrize(
    ("main", "other", "restored"),
    [
        (RESTORED, end(5), "main"),
        (end(5), RESTORED, "other"),
        (RESTORED, end(5, bumped=-60), "main"),  # that was another incident
        (RESTORED, end(-5), ""),  # the other one has nothing that the main one lacks
        (RESTORED, end(1, bumped=21, fresh=True), ""),  # each ends with its last change before one moment
        (RESTORED, end(30, bumped=21), ""),  # a server renews Leases since then
        (end(40, bumped=20), end(50), ""),  # the main one goes on since then
        (end(0), end(5), ""),
    ],
)
def test_one_was_restored_and_the_other_goes_on(main: End, other: End, restored: str) -> None:
    found = about_ends({"main": main, "other": other})
    assert len(found) == bool(restored)
    for line in found:
        assert line.startswith(f"{restored} has just been restored, as of 2026-03-02T12:00:00")
        assert "it has changes up to 2026-03-02T12:05:00" in line
