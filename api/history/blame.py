"""The revision that last set each field of an object, computed from its successive states.

    marked = None
    for revision, state in states:              # oldest first
        marked = update_marks(marked, state, revision)

A list item with a key (differences.py) keeps its marks at any position; items without a key are matched from both ends.
A value has its own mark; the mark of a mapping or list is the revision that created it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from kubechronicle.api.history.differences import field_below, item_key, item_label, key_fields_of, same

BOOKKEEPING: Final = ("managedFields", "resourceVersion")
"""Fields of metadata that every write sets."""


class Marked(NamedTuple):
    """A value and the revision that set it.

    ``members``: the marks of a mapping's values by name, or of a list's items by position.
    """

    value: Any
    revision: int
    members: Mapping[str, Marked] | tuple[Marked, ...] | None = None


def without_bookkeeping(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object without the fields that every write sets."""
    metadata = {name: value for name, value in (state.get("metadata") or {}).items() if name not in BOOKKEEPING}
    return {**state, "metadata": metadata} if "metadata" in state else dict(state)


def update_marks(before: Marked | None, after: Any, revision: int) -> Marked:
    """Return the marks after ``revision`` has set ``after``. ``before`` is None if there was no value."""
    if before is not None and same(before.value, after):
        return before
    first = revision if before is None else before.revision
    if isinstance(after, dict):
        known = before.members if before is not None and isinstance(before.members, dict) else None
        members = {name: update_marks((known or {}).get(name), value, revision) for name, value in after.items()}
        return Marked(after, first if known is not None else revision, members)
    if isinstance(after, list):
        if before is None or not isinstance(before.members, tuple):
            return Marked(after, revision, tuple(update_marks(None, value, revision) for value in after))
        matched = _matched(before.value, after)
        return Marked(
            after,
            first,
            tuple(
                update_marks(None if place is None else before.members[place], value, revision)
                for place, value in zip(matched, after, strict=True)
            ),
        )
    return Marked(after, revision)


def _matched(before: list[Any], after: list[Any]) -> list[int | None]:
    """Return for each item its former position, None for a new item."""
    keys = key_fields_of(before, after)
    if keys is not None:
        places = {item_key(item, keys): place for place, item in enumerate(before)}
        return [places.get(item_key(item, keys)) for item in after]
    shorter = min(len(before), len(after))
    start = end = 0
    while start < shorter and same(before[start], after[start]):
        start += 1
    while end < shorter - start and same(before[-1 - end], after[-1 - end]):
        end += 1
    between = min(len(before), len(after)) - start - end
    found: list[int | None] = list(range(start + between))
    found += [None] * (len(after) - end - len(found))
    return found + list(range(len(before) - end, len(before)))


def fields(marked: Marked, field: str = "") -> Iterator[tuple[str, Marked]]:
    """Yield every field with a value, by its readable path, in the order of names; also empty mappings and lists."""
    if not marked.members:
        yield field, marked
    elif isinstance(marked.members, Mapping):
        for name in sorted(marked.members):
            yield from fields(marked.members[name], field_below(field, name))
    else:
        keys = key_fields_of(marked.value, [])
        for place, member in enumerate(marked.members):
            label = item_label(member.value, keys) if keys is not None else f"[{place}]"
            yield from fields(member, f"{field}{label}")
