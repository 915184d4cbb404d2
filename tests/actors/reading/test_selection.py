"""Selections and pages of entries equal those made by applying the matcher to each entry."""

from __future__ import annotations

import random

import pytest

from kubechronicle.actors.reading.selection import Selection, page_of, within
from kubechronicle.api.registry.registry import builtin_registry
from kubechronicle.api.selectors.field_selectors import parse_field_selector, parse_label_selector
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Key

PODS = builtin_registry().lookup("", "v1", "pods")
CHANCE = random.Random(1)


def entry(namespace: str, number: int) -> Entry:
    labels = {key: CHANCE.choice(("x", "y")) for key in ("a", "b") if CHANCE.random() < 0.7}
    fields = {"metadata.name": f"p-{number}", "spec.nodeName": CHANCE.choice(("", "one", "two"))}
    return Entry(Key("pods", namespace, f"p-{number}"), "u", 5, 5, 1, b"{}", labels, fields)


ENTRIES = tuple(entry(namespace, number) for namespace in ("m", "n", "n-1") for number in range(10, 40))
LABELS = ("", "a=x", "a==x", "a!=x", "a", "!a", "a in (x,y)", "a=x,b=y", "absent=x")
FIELDS = ("", "spec.nodeName=one", "spec.nodeName=", "spec.nodeName!=one", "metadata.name=p-17", "metadata.name!=p-17")


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("fields", FIELDS)
async def test_a_selection_has_the_matching_entries(labels: str, fields: str) -> None:
    assert PODS is not None
    selection = Selection(
        labels=parse_label_selector(labels) if labels else None,
        fields=parse_field_selector(fields, PODS) if fields else None,
    )
    matches = selection.matcher()
    expected = [each for each in ENTRIES if matches is None or matches(each)]
    assert list(await selection.select(ENTRIES)) == expected
    following: list[Entry] = []
    more, after = True, None
    while more:
        listing = await page_of(selection, within(ENTRIES, "", after), 5, 7)
        following += listing.entries
        assert len(listing.entries) <= 7
        more = bool(listing.continue_token)
        after = listing.entries[-1].key[1:] if listing.entries else None
        assert after is not None or not more
    assert following == expected


@pytest.mark.parametrize("namespace", ["", "m", "n", "n-1", "o"])
@pytest.mark.parametrize("after", [None, ("m", "p-20"), ("n", "p-39"), ("n-1", "p-39"), ("n", "p-200")])
def test_within_a_namespace_after_a_key(namespace: str, after: tuple[str, str] | None) -> None:
    if after is not None and namespace not in ("", after[0]):
        return
    expected = [
        each for each in ENTRIES if namespace in ("", each.key.namespace) and (after is None or each.key[1:] > after)
    ]
    span = within(ENTRIES, namespace, after)
    assert list(span) == expected
    assert len(span) == len(expected)
    assert list(span[2:5]) == expected[2:5]
    assert span[-1:] == tuple(expected[-1:])
    if expected:
        assert (span[0], span[-1]) == (expected[0], expected[-1])


async def test_all_entries_are_not_copied() -> None:
    assert (await page_of(Selection(), within(ENTRIES, "", None), 5, 0)).entries is ENTRIES
    assert (await page_of(Selection(), within(ENTRIES, "m", None), 5, 0)).entries == ENTRIES[:30]
