"""The objects of one resource in order: by namespace, then by name, both bytewise.

No events, no revisions here. Python compares strings by code point, which is the order of their UTF-8 bytes and so the
order of etcd's keys. Each namespace has its names and entries in two parallel sorted lists. Replacing an entry is a
binary search; adding one moves a part of two pointer lists (about 10 µs among 100,000 names). LIST returns a tuple made
from them in one copy and cached until the next change.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from operator import attrgetter

from kubechronicle.eventlog.entries import Entry

MERGE_FACTOR = 8
"""Entries per change below which ``merge`` sorts: finding one position costs more than copying so many entries."""


def sort_key(entry: Entry) -> tuple[str, str]:
    """Return (namespace, name)."""
    return entry.key[1:]


class NamespaceEntries:
    """The entries of one namespace."""

    __slots__ = ("_tuple", "by_name", "entries", "names")

    def __init__(self, entries: list[Entry]) -> None:
        """``entries``: in order; the new object owns the list."""
        self.entries = entries
        self.names = [entry.key.name for entry in entries]
        self.by_name = dict(zip(self.names, entries, strict=True))
        self._tuple: tuple[Entry, ...] | None = None

    def put(self, entry: Entry) -> bool:
        """Return whether the name is new."""
        name = entry.key.name
        index = bisect_left(self.names, name)
        is_new = name not in self.by_name
        if is_new:
            self.names.insert(index, name)
            self.entries.insert(index, entry)
        else:
            self.entries[index] = entry
        self.by_name[name] = entry
        self._tuple = None
        return is_new

    def remove(self, name: str) -> None:
        index = bisect_left(self.names, name)
        del self.names[index], self.entries[index], self.by_name[name]
        self._tuple = None

    def all(self) -> tuple[Entry, ...]:
        if self._tuple is None:
            self._tuple = tuple(self.entries)
        return self._tuple


class SortedStore:
    """All namespaces of one resource; cluster-scoped objects are in the empty namespace. ``bytes``: of their JSON."""

    __slots__ = ("_by_namespace", "_namespaces", "_tuple", "bytes", "count")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        """``entries``: in any order, each key once."""
        ordered = sorted(entries, key=attrgetter("key"))  # of one resource, so this is the order by namespace and name
        by_namespace = groupby(ordered, key=lambda entry: entry.key.namespace)
        self.count = len(ordered)
        self.bytes = sum(len(entry.json) for entry in ordered)
        self._by_namespace = {namespace: NamespaceEntries(list(group)) for namespace, group in by_namespace}
        self._namespaces = list(self._by_namespace)
        self._tuple: tuple[Entry, ...] | None = None

    def get(self, namespace: str, name: str) -> Entry | None:
        members = self._by_namespace.get(namespace)
        return members.by_name.get(name) if members is not None else None

    def put(self, entry: Entry) -> None:
        namespace = entry.key.namespace
        members = self._by_namespace.get(namespace)
        before = members.by_name.get(entry.key.name) if members is not None else None
        self.bytes += len(entry.json) - (len(before.json) if before is not None else 0)
        if members is None:
            self._by_namespace[namespace] = NamespaceEntries([entry])
            insort(self._namespaces, namespace)
            self.count += 1
        elif members.put(entry):
            self.count += 1
        self._tuple = None

    def remove(self, namespace: str, name: str) -> None:
        """Remove an existing key."""
        members = self._by_namespace[namespace]
        self.bytes -= len(members.by_name[name].json)
        members.remove(name)
        self.count -= 1
        if not members.names:
            del self._by_namespace[namespace]
            del self._namespaces[bisect_left(self._namespaces, namespace)]
        self._tuple = None

    def all(self, namespace: str = "") -> tuple[Entry, ...]:
        """Return the entries of a namespace, or of all ("")."""
        if namespace or len(self._namespaces) == 1:
            members = self._by_namespace.get(namespace or self._namespaces[0])
            return members.all() if members is not None else ()
        if self._tuple is None:
            self._tuple = tuple(chain.from_iterable(self._by_namespace[each].entries for each in self._namespaces))
        return self._tuple

    def size(self, namespace: str) -> int:
        if not namespace:
            return self.count
        members = self._by_namespace.get(namespace)
        return len(members.names) if members is not None else 0

    def page(self, namespace: str, after: tuple[str, str] | None, limit: int) -> list[Entry]:
        """Return at most ``limit`` entries of a namespace, or of all (""), that follow the key ``after``."""
        start = (namespace, "") if after is None else max(after, (namespace, ""))
        first = bisect_left(self._namespaces, start[0])
        page: list[Entry] = []
        for each in self._namespaces[first:]:
            if len(page) >= limit or (namespace and each != namespace):
                break
            members = self._by_namespace[each]
            index = bisect_right(members.names, start[1]) if each == start[0] else 0
            page += members.entries[index : index + limit - len(page)]
        return page


class FieldIndex:
    """An index of the objects by the value of one field, without the objects that lack the field."""

    __slots__ = ("_by_value", "_field")

    def __init__(self, field: str) -> None:
        self._field = field
        self._by_value: dict[str, dict[tuple[str, str], Entry]] = {}

    def put(self, entry: Entry) -> None:
        value = entry.fields.get(self._field)
        if value:
            self._by_value.setdefault(value, {})[sort_key(entry)] = entry

    def remove(self, entry: Entry) -> None:
        """Remove the entry if it is in the index."""
        value = entry.fields.get(self._field, "")
        by_key = self._by_value.get(value)
        if by_key is not None and by_key.pop(sort_key(entry), None) is not None and not by_key:
            del self._by_value[value]

    def entries(self, value: str) -> list[Entry]:
        """Return the entries with the value, in order."""
        by_key = self._by_value.get(value, {})
        return [by_key[key] for key in sorted(by_key)]


def page_of(entries: Sequence[Entry], after: tuple[str, str] | None, limit: int) -> Sequence[Entry]:
    """Return a page of sorted entries, such as a snapshot."""
    start = bisect_right(entries, after, key=sort_key) if after is not None else 0
    return entries[start : start + limit]


def merge(entries: Sequence[Entry], past: dict[tuple[str, str], Entry | None]) -> tuple[Entry, ...]:
    """Return the sorted ``entries`` with the keys of ``past`` as they were there (None: absent), again sorted.

    With few changes, the runs between the changed keys are copied: 10 changes among 100,000 entries take a millisecond
    or two, where a sort would take 90. With many changes, sorting is faster: it finds two sorted runs.
    """
    if len(past) * MERGE_FACTOR > len(entries):
        kept = [entry for entry in entries if entry.key[1:] not in past]
        kept += sorted((entry for entry in past.values() if entry is not None), key=sort_key)
        kept.sort(key=sort_key)
        return tuple(kept)
    merged: list[Entry] = []
    done = 0
    for key in sorted(past):
        index = bisect_left(entries, key, done, key=sort_key)
        merged += entries[done:index]
        entry = past[key]
        if entry is not None:
            merged.append(entry)
        present = index < len(entries) and entries[index].key[1:] == key
        done = index + 1 if present else index
    merged += entries[done:]
    return tuple(merged)
