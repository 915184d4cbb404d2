"""Outputs of real runs compared with shown ones: values and columns may differ, words and counts may not."""

from __future__ import annotations

from documents.shown_output import compare, retyped

SHOWN = (
    "revision 208  2026-11-21 17:14:06Z (1m18s ago)  delete namespaces/shop  by bob",
    "…",
    "READY   0/2     5s",
    "agent   kubectl/v1.36.6 (linux/amd64) …",
)
REAL = """\
revision 1264  2027-01-02 03:04:05Z (7s ago)  delete namespaces/shop  by bob
another
and another
READY     0/2     12m
agent     kubectl/v1.37.0 (linux/amd64) kubernetes/x
"""


def test_values_and_columns_may_differ() -> None:
    match = compare(SHOWN, REAL)
    assert match is not None
    assert match.values == {"208": "1264", "2026-11-21 17:14:06Z": "2027-01-02 03:04:05Z"}
    assert match.lines[1:3] == ("…", "READY     0/2     12m")
    assert retyped("at 208 or 2089", match.values) == "at 1264 or 2089"


def test_words_counts_and_other_lines_are_differences() -> None:
    for before, after in (("bob", "eve"), ("0/2", "1/2"), ("12m", "now"), ("READY     0/2     12m\n", "")):
        assert compare(SHOWN, REAL.replace(before, after)) is None, before
    assert compare(("36 changes",), "37 changes\n") is None
    assert compare((), "more\n") is None
