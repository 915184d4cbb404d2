"""Go structs as Kubernetes prints them in validation messages.

Fields are in the order of Kubernetes' internal types, with Go names: those of api/kinds. An absent field is printed as
null or as its type's zero value. Types of apimachinery have JSON names there, too.

Unified diffs of lines, in about linear time.

Short texts are compared as by go-difflib, whose time is quadratic. Longer ones are compared only between lines that
occur once in each text and in the same order: mostly with the same result.
"""

from __future__ import annotations

import functools
import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import Match, SequenceMatcher
from typing import Any, Final

from kubechronicle.api.errors.field_errors import HTML_ESCAPES
from kubechronicle.api.kinds import reading
from kubechronicle.api.kinds.reading import INTERNAL, MAP, POINTER, Declared, GoType
from kubechronicle.api.values.objects import Object

CONTEXT: Final = 3
"""Unchanged lines shown around a change."""

MOST_LINES: Final = 1000
"""The longest texts that are compared as by go-difflib: in about 30 ms."""

MOST_BETWEEN: Final = 200
"""The most lines between two anchors that are compared as by go-difflib."""


def unified(old: Sequence[str], new: Sequence[str]) -> str:
    """Return the unified diff of two texts without its two header lines. Lines end with a newline."""
    matcher = SequenceMatcher(None, old, new) if max(len(old), len(new)) <= MOST_LINES else _anchored(old, new)
    shown: list[str] = []
    for group in matcher.get_grouped_opcodes(CONTEXT):
        first, last = group[0], group[-1]
        shown.append(f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@\n")
        for tag, start, end, new_start, new_end in group:
            if tag == "equal":
                shown += [f" {line}" for line in old[start:end]]
            else:
                shown += [f"-{line}" for line in old[start:end]]
                shown += [f"+{line}" for line in new[new_start:new_end]]
    return "".join(shown)


def _range(start: int, end: int) -> str:
    """Return a range of lines as "first,count": of an empty one the line before."""
    length = end - start
    if length == 1:
        return str(start + 1)
    return f"{start if not length else start + 1},{length}"


def _anchored(old: Sequence[str], new: Sequence[str]) -> SequenceMatcher[str]:
    found: list[Match] = []
    before, new_before = 0, 0
    for place, new_place in [*_anchors(old, new), (len(old), len(new))]:
        if place < before or new_place < new_before:
            continue  # within the lines after the anchor before
        found += _between(old, new, before, place, new_before, new_place)
        size = 0
        while place + size < len(old) and new_place + size < len(new) and old[place + size] == new[new_place + size]:
            size += 1
        if size:
            found.append(Match(place, new_place, size))
        before, new_before = place + size, new_place + size
    return _Matched([*_joined(found), Match(len(old), len(new), 0)])


class _Matched(SequenceMatcher[str]):
    """A comparison with known matches."""

    def __init__(self, found: list[Match]) -> None:
        super().__init__()
        self._found = found

    def get_matching_blocks(self) -> list[Match]:
        return self._found


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Return the places of lines that occur once in each text: the longest series in the same order."""
    count, new_count = Counter(old), Counter(new)
    places = {line: place for place, line in enumerate(new) if new_count[line] == 1}
    pairs = [(place, places[line]) for place, line in enumerate(old) if count[line] == 1 and line in places]
    ends: list[int] = []  # the least last place of a series of each length
    holders: list[int] = []
    previous: list[int] = []
    for index, (_, place) in enumerate(pairs):
        length = bisect_left(ends, place)
        previous.append(holders[length - 1] if length else -1)
        if length == len(ends):
            ends.append(place)
            holders.append(index)
        else:
            ends[length], holders[length] = place, index
    series: list[tuple[int, int]] = []
    index = holders[-1] if holders else -1
    while index >= 0:
        series.append(pairs[index])
        index = previous[index]
    return series[::-1]


def _between(old: Sequence[str], new: Sequence[str], start: int, end: int, new_start: int, new_end: int) -> list[Match]:
    """Return the matches of two parts: the same lines at their ends, and those between if the parts are short."""
    tail = 0
    while end - tail > start and new_end - tail > new_start and old[end - tail - 1] == new[new_end - tail - 1]:
        tail += 1
    found: list[Match] = []
    stop, new_stop = end - tail, new_end - tail
    if max(stop - start, new_stop - new_start) <= MOST_BETWEEN:
        inner = SequenceMatcher(None, old[start:stop], new[new_start:new_stop])
        found = [Match(start + a, new_start + b, size) for a, b, size in inner.get_matching_blocks() if size]
    return [*found, Match(stop, new_stop, tail)] if tail else found


def _joined(found: Sequence[Match]) -> Iterator[Match]:
    """Yield the matches, those that touch as one."""
    held: Match | None = None
    for match in found:
        if held is not None and (held.a + held.size, held.b + held.size) == (match.a, match.b):
            held = Match(held.a, held.b, held.size + match.size)
            continue
        if held is not None:
            yield held
        held = match
    if held is not None:
        yield held


_METADATA_ITEMS: Final = {"ownerReferences": "meta.v1.OwnerReference", "managedFields": "meta.v1.ManagedFieldsEntry"}
"""The types of the items of such lists."""
_ZEROS: Final[Mapping[str, Any]] = {"string": "", "bool": False, "resource.Quantity": "0", "intstr.IntOrString": 0}
_NUMBERS: Final = frozenset(("int", "int32", "int64", "float64"))
_METADATA_TYPE: Final = "meta.v1.ObjectMeta"
_TYPE_META: Final = "meta.v1.TypeMeta"
_SELECTOR: Final = "meta.v1.LabelSelector"
_ON_SPEC: Final = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers")
"""Members of Kubernetes' internal PodSecurityContext that are fields of the pod's spec in the API."""


def record(obj: Mapping[str, Any] | None, name: str, *, compared: bool = False) -> Object | None:
    """Return a record of an internal type as Kubernetes prints it. KeyError for an unknown type.

    ``compared``: empty lists and maps count as absent, as in Kubernetes' semantic comparison.

    Example: ({"kind": "Role"}, "RoleRef") -> {"APIGroup": "", "Kind": "Role", "Name": ""}.
    """
    return None if obj is None else _record(obj, _internal_type(name), compared=compared)


Printer = Callable[[Any, bool], Any]
"""(value, compared) -> the value as it is printed."""


def _internal_type(name: str) -> Declared:
    """Return the internal type of a name, which only one group has."""
    found = [package.types[name] for package in reading.release().internal.values() if name in package.types]
    if len(found) != 1:
        raise KeyError(name)
    return found[0]


def _record(obj: Mapping[str, Any], declared: Declared, *, compared: bool) -> Object:
    if declared.full_name == "internal.core.PodSpec":
        context = dict(obj.get("securityContext") or {})
        context.update((member, obj[member]) for member in _ON_SPEC if member in obj)
        obj = {**obj, "securityContext": context}
    printed: Object = {}
    for go_name, name, printer in _members(declared.full_name):
        if printer is not None:
            printed[go_name] = printer(obj.get(name), compared)
        else:
            metadata = obj.get("metadata") or {}
            printed |= _metadata({name: value for name, value in metadata.items() if value})
    return printed


@functools.cache
def _members(name: str) -> tuple[tuple[str, str, Printer | None], ...]:
    """Return (Go name, JSON name, printer) of the fields of an internal type; for its metadata, no printer.

    The kind and version of an internal object are empty, and not printed.
    """
    made: list[tuple[str, str, Printer | None]] = []
    for field in reading.release().declared(name).fields:
        if field.name:
            made.append((field.go_name, field.name, _printer(field.type)))
        elif field.type.name == _METADATA_TYPE:
            made.append(("", "", None))
        elif field.type.name != _TYPE_META:
            made += _members(field.type.name)
    return tuple(made)


def in_go_order(obj: Mapping[str, Any], name: str) -> Object:
    """Return an object with the order of the fields of its Go type, which is in api/kinds as ``name``."""
    return {field.name: obj[field.name] for field in reading.release().declared(name).fields if field.name in obj}


def printed_metadata(meta: Mapping[str, Any]) -> Object:
    """Return the metadata of a template as it is printed."""
    kept = {name: value for name, value in meta.items() if value or (name, value) == ("deletionGracePeriodSeconds", 0)}
    return _metadata(kept)


def _metadata(meta: Mapping[str, Any]) -> Object:
    printed = in_go_order(meta, _METADATA_TYPE)
    for member in printed.keys() & {"labels", "annotations"}:
        printed[member] = dict(sorted(printed[member].items()))
    for member in printed.keys() & _METADATA_ITEMS.keys():
        printed[member] = [in_go_order(item, _METADATA_ITEMS[member]) for item in printed[member]]
    return printed


def _printer(kind: GoType) -> Printer:
    """Return the printer of a Go type."""
    if kind.shape == POINTER and kind.of is not None:
        of = _printer(kind.of)
        return lambda value, compared: None if value is None else of(value, compared)
    behind = reading.release().behind(kind)
    if behind.shape == MAP:
        return lambda value, compared: dict(sorted(value.items())) if value or (value == {} and not compared) else None
    if behind.of is not None:
        item = _printer(behind.of)
        if "internal." not in behind.of.named:
            return lambda value, compared: value if value or not compared else None
        return lambda value, compared: (
            [item(each, compared) for each in value] if value or (value == [] and not compared) else None
        )
    if behind.name == _SELECTOR:
        return lambda value, compared: selector(value or {})
    if behind.name.startswith(INTERNAL):
        declared = reading.release().declared(behind.name)
        return lambda value, compared: _record(value or {}, declared, compared=compared)
    zero = 0 if behind.name in _NUMBERS else _ZEROS.get(behind.name)
    return lambda value, compared: zero if value is None else value


def selector(given: Mapping[str, Any] | None) -> Object | None:
    """Return a label selector as it is printed, with sorted labels."""
    if given is None:
        return None
    printed: Object = {}
    if given.get("matchLabels"):
        printed["matchLabels"] = dict(sorted(given["matchLabels"].items()))
    if given.get("matchExpressions"):
        members = ("key", "operator", "values")
        printed["matchExpressions"] = [
            {name: each.get(name, "") for name in members if each.get(name) or name != "values"}
            for each in given["matchExpressions"]
        ]
    return printed


def difference(old: Any, new: Any) -> str:
    """Return the difference of two printed records as a unified diff, as in messages about immutable fields.

    Example:

        @@ -1,3 +1,3 @@
         {
        - "Server": "a"
        + "Server": "b"
         }
    """
    lines = [[f"{line}\n" for line in _indented(each).split("\n")] for each in (old, new)]
    return unified(lines[0], lines[1])


def _indented(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=1, separators=(",", ": "))
    for character, escape in HTML_ESCAPES:
        text = text.replace(character, escape)
    return text
