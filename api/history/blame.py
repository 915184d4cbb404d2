"""Who last set each field of an object: computed from its states, one after the other.

    marked = None
    for revision, state in states:              # oldest first
        marked = advanced(marked, state, revision)

An item of a list that is told apart by a name (differences.py) keeps its marks wherever it stands; items without one
are matched from both ends. What a field holds is marked by itself; a mapping or list by when it came to be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kubechronicle.api.history.differences import called, field_below, item_label, naming_of, same

UNTOLD: Final = ("managedFields", "resourceVersion")
"""Of metadata: bookkeeping that every write sets."""


@dataclass(frozen=True, slots=True)
class Marked:
    """A value and the revision that set it; ``members`` by name or by place, if it is a mapping or a list."""

    value: Any
    revision: int
    members: Mapping[str, Marked] | tuple[Marked, ...] | None = None


def told(state: Mapping[str, Any]) -> dict[str, Any]:
    """Without bookkeeping."""
    metadata = {name: value for name, value in (state.get("metadata") or {}).items() if name not in UNTOLD}
    return {**state, "metadata": metadata} if "metadata" in state else dict(state)


def advanced(before: Marked | None, after: Any, revision: int) -> Marked:
    """The marks once ``revision`` has made ``after`` of it; None: there was nothing before."""
    if before is not None and same(before.value, after):
        return before
    first = revision if before is None else before.revision
    if isinstance(after, dict):
        known = before.members if before is not None and isinstance(before.members, dict) else None
        members = {name: advanced((known or {}).get(name), value, revision) for name, value in after.items()}
        return Marked(after, first if known is not None else revision, members)
    if isinstance(after, list):
        if before is None or not isinstance(before.members, tuple):
            return Marked(after, revision, tuple(advanced(None, value, revision) for value in after))
        matched = _matched(before.value, after)
        return Marked(
            after,
            first,
            tuple(
                advanced(None if place is None else before.members[place], value, revision)
                for place, value in zip(matched, after, strict=True)
            ),
        )
    return Marked(after, revision)


def _matched(before: list[Any], after: list[Any]) -> list[int | None]:
    """For each item the place of the one it was before."""
    keys = naming_of(before, after)
    if keys is not None:
        places = {called(item, keys): place for place, item in enumerate(before)}
        return [places.get(called(item, keys)) for item in after]
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
    """Every field that holds a value, by its path for people, in the order of names; also empty mappings and lists."""
    if not marked.members:
        yield field, marked
    elif isinstance(marked.members, Mapping):
        for name in sorted(marked.members):
            yield from fields(marked.members[name], field_below(field, name))
    else:
        keys = naming_of(marked.value, [])
        for place, member in enumerate(marked.members):
            label = item_label(member.value, keys) if keys is not None else f"[{place}]"
            yield from fields(member, f"{field}{label}")
