"""Which objects a read is about, and what a list answers: cut out of entries that are in the order of keys."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kubechronicle.api.paging import Continue, encode_continue
from kubechronicle.api.selectors import FieldSelector, LabelSelector
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.shelves import sort_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which objects of a resource: a namespace ("": all), a name ("": all) and selectors (None: all)."""

    namespace: str = ""
    labels: LabelSelector | None = None
    fields: FieldSelector | None = None

    def matcher(self) -> Callable[[Entry], bool] | None:
        """A predicate over entries of the namespace; None if it would always be true."""
        labels, fields = self.labels, self.fields
        if labels is not None and fields is not None:
            return lambda entry: labels.matches(entry.labels) and fields.matches(entry.fields)
        if labels is not None:
            return lambda entry: labels.matches(entry.labels)
        if fields is not None:
            return lambda entry: fields.matches(entry.fields)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One answer to a list: the entries, the revision they are of, and how it goes on. ``remaining``: how many more
    objects there are, None where it is not told (selectors, or nothing remains). ``erased``: how many were left out, as
    what they were was erased from history; whether selectors would have chosen them nobody knows."""

    entries: Sequence[Entry]
    revision: int
    continue_token: str = ""
    remaining: int | None = None
    erased: int = 0


def within(entries: Sequence[Entry], namespace: str, after: tuple[str, str] | None) -> Sequence[Entry]:
    """Those of a namespace ("": of all) that follow the key; ``entries`` are in key order."""
    if not namespace and after is None:
        return entries
    start = bisect_right(entries, after or (namespace, ""), key=sort_key)
    end = bisect_left(entries, (namespace + "\0", ""), key=sort_key) if namespace else len(entries)
    return entries[start:end]


def page_of(selection: Selection, entries: Sequence[Entry], revision: int, limit: int) -> Listing:
    """Apply the selectors and the limit to the entries of the namespace, in key order."""
    matches = selection.matcher()
    if not limit:
        if matches is not None:
            entries = [entry for entry in entries if matches(entry)]
        return Listing(entries=entries, revision=revision)
    chosen: list[Entry] = []
    looked_at = 0
    for entry in entries:
        if len(chosen) == limit:
            break
        looked_at += 1
        if matches is None or matches(entry):
            chosen.append(entry)
    remaining = len(entries) - looked_at
    if not remaining:
        return Listing(entries=chosen, revision=revision)
    # With a selector nobody knows how many of the rest match, and whether any does: the token is given nevertheless.
    last = entries[looked_at - 1].key
    where = ("" if selection.namespace else last.namespace, last.name)
    return Listing(
        entries=chosen,
        revision=revision,
        continue_token=encode_continue(Continue(revision, where)),
        remaining=remaining if matches is None else None,
    )
