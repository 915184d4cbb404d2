"""Extents of searches as text."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.history.extents import covered

FIRST = {"revision": "7", "time": "2026-11-21T17:08:10.5Z"}
LAST = {"revision": "9", "time": "2026-11-21T17:14:06.5Z"}
NONE: dict[str, Any] = {"changes": 0}
TWO = {"changes": 2, "first": FIRST, "last": LAST}
ONE = {"changes": 1, "first": FIRST, "last": FIRST}
SPAN = "from 2026-11-21 17:08:10Z (revision 7) to 2026-11-21 17:14:06Z (revision 9)"


@pytest.mark.parametrize(
    ("searched", "held", "more", "text"),
    [
        (TWO, TWO, {}, f"2 changes were searched, {SPAN}"),
        (
            ONE,
            TWO,
            {},
            "1 change was searched, from 2026-11-21 17:08:10Z (revision 7) to 2026-11-21 17:08:10Z (revision 7)",
        ),
        (TWO, TWO, {"complete": False}, f"2 changes were searched, {SPAN}; the history begins at revision 1"),
        (
            TWO,
            TWO,
            {"later": [{"resource": "events", "since": {"revision": "8"}}]},
            f"2 changes were searched, {SPAN}; that of events only at revision 8",
        ),
        (NONE, TWO, {}, f"none of the 2 changes lies in that time: they were made {SPAN}"),
        (NONE, NONE, {}, "the history has no change of it; it begins at revision 1"),
        (NONE, {}, {}, "no change lies in that time; the history begins at revision 1"),
        ({}, {}, {}, "more changes than are counted were searched, since revision 1"),
    ],
)
def test_extents_as_text(searched: Any, held: Any, more: dict[str, Any], text: str) -> None:
    extent = {"searched": searched, "held": held, "since": {"revision": "1"}, "complete": True, **more}
    assert covered(extent) == text
