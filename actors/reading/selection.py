"""Which objects a read is about, and what a list answers: cut out of entries that are in the order of keys."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from kubechronicle.api.meta.paging import Continue, encode_continue
from kubechronicle.api.selectors.field_selectors import FieldSelector, LabelSelector
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.views.sorted_store import sort_key


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

    def chosen(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Those of the entries that match. Lists with selectors pass over many objects for few (a kubelet's pods among
        all), so the usual selectors, of one key with one value, cost no call for each."""
        labels, fields = self.labels, self.fields
        if labels is None and fields is None:
            return entries
        if labels is not None and fields is not None:
            return [each for each in entries if labels.matches(each.labels) and fields.matches(each.fields)]
        if labels is not None:
            if len(labels.requirements) == 1 and labels.requirements[0].operator in ("=", "=="):
                key, value = labels.requirements[0].key, labels.requirements[0].values[0]
                return [each for each in entries if each.labels.get(key) == value]
            return [each for each in entries if labels.matches(each.labels)]
        if fields is not None and len(fields.terms) == 1 and fields.terms[0].equal:
            name, value = fields.terms[0].field, fields.terms[0].value
            return [each for each in entries if each.fields.get(name, "") == value]
        return [each for each in entries if fields is None or fields.matches(each.fields)]


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


class Span(Sequence[Entry]):
    """A part of a sequence that is not copied until a part of it is asked for: who reads page after page of 100,000
    objects must not pay for all that follow with each."""

    __slots__ = ("_entries", "_range")

    def __init__(self, entries: Sequence[Entry], start: int, end: int) -> None:
        self._entries = entries
        self._range = range(start, max(start, end))

    def __len__(self) -> int:
        return len(self._range)

    @overload
    def __getitem__(self, index: int) -> Entry: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Entry]: ...

    def __getitem__(self, index: int | slice) -> Entry | Sequence[Entry]:
        found = self._range[index]
        return self._entries[found] if isinstance(found, int) else self._entries[found.start : found.stop]

    def __iter__(self) -> Iterator[Entry]:
        return map(self._entries.__getitem__, self._range)


def within(entries: Sequence[Entry], namespace: str, after: tuple[str, str] | None) -> Sequence[Entry]:
    """Those of a namespace ("": of all) that follow the key; ``entries`` are in key order."""
    if not namespace and after is None:
        return entries
    start, end = bisect_right(entries, after or (namespace, ""), key=sort_key), len(entries)
    if namespace and entries and entries[-1].key.namespace != namespace:
        end = bisect_left(entries, (namespace + "\0", ""), key=sort_key)
    return entries if (start, end) == (0, len(entries)) else Span(entries, start, end)


def page_of(selection: Selection, entries: Sequence[Entry], revision: int, limit: int) -> Listing:
    """Apply the selectors and the limit to the entries of the namespace, in key order."""
    if not limit:
        return Listing(entries=selection.chosen(entries)[:], revision=revision)
    matches = selection.matcher()
    chosen, looked_at = entries[:limit], min(limit, len(entries))
    if matches is not None:
        chosen, looked_at = _first_matching(entries, matches, limit)
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


def _first_matching(
    entries: Sequence[Entry], matches: Callable[[Entry], bool], limit: int
) -> tuple[Sequence[Entry], int]:
    """As many as the limit of those that match, and how many entries had to be looked at."""
    chosen: list[Entry] = []
    for looked_at, entry in enumerate(entries):
        if len(chosen) == limit:
            return chosen, looked_at
        if matches(entry):
            chosen.append(entry)
    return chosen, len(entries)
