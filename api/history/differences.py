"""Differences between two states of an object: a JSON patch (RFC 6902), and readable paths.

    {"op": "replace", "path": "/spec/replicas", "value": 5, "old": 3}        spec.replicas
    {"op": "add", "path": "/spec/containers/1", "value": {"name": "log"}}    spec.containers[name=log]
    {"op": "remove", "path": "/metadata/labels/a.b~1c", "old": "x"}          metadata.labels[a.b/c]

Applied in order, the operations turn the first state into the second. ``old``, the former value, is an addition to RFC
6902, which appliers of a patch ignore (§4). List items are identified by a key field, if all of them have it; otherwise
by position, between the common beginning and the common end of both lists.

Values of an object at a path, as people, programs and SQL write it. Server and client read a path here alone.

spec.replicas                                      [3]
spec.template.spec.containers[name=web].image      ["nginx:2"]
spec.template.spec.containers.image                ["nginx:2", "envoy:1"]      of all items
spec.template.spec.containers[0].image             ["nginx:2"]                 of the first item of this version
spec.ports[port=80].targetPort                     [8080]                      any fields of an item may name it
spec.ports[?(@.port==80)].targetPort               [8080]                      the same in JSONPath
metadata.labels[app.kubernetes.io/name]            ["web"]
metadata.labels.app.kubernetes.io/name             ["web"]      names may contain dots
/spec/template/spec/containers/0/image             ["nginx:2"]  a JSON Pointer (RFC 6901)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from kubechronicle.api.values.objects import ReadOnlyObject
from kubechronicle.api.values.printable import compact_json, printable, printable_json

# Key fields of list items: the first entry that all items of both lists have, with distinct values.
KEY_FIELDS: Final = (
    ("name",),
    ("type",),
    ("key",),
    ("containerPort", "protocol"),
    ("port", "protocol"),
    ("containerPort",),
    ("port",),
    ("mountPath",),
    ("devicePath",),
    ("uid",),
    ("ip",),
    ("topologyKey", "whenUnsatisfiable"),
    ("topologyKey",),
)
# The server's bookkeeping, which changes with every write.
BOOKKEEPING: Final = frozenset({("metadata", "managedFields"), ("metadata", "resourceVersion")})
# Fields that change as a consequence of other changes.
CONSEQUENCES: Final = frozenset({"metadata.generation"})

LONGEST_VALUE: Final = 40
LONGEST_SUMMARY: Final = 160

_PLAIN: Final = re.compile(r"[A-Za-z_$][-A-Za-z0-9_$]*").fullmatch
_MISSING: Final = object()


class Difference(NamedTuple):
    """One operation.

    ``path``: names and positions for a JSON Pointer, valid after the operations before it.
    ``field``: the readable path.
    ``old``, ``new``: the values, if any.
    """

    op: Literal["add", "remove", "replace"]
    path: tuple[str | int, ...]
    field: str
    old: Any = None
    new: Any = None

    def operation(self) -> dict[str, Any]:
        """Return the operation of a JSON patch, with ``old``."""
        found: dict[str, Any] = {"op": self.op, "path": pointer(self.path)}
        if self.op != "remove":
            found["value"] = self.new
        if self.op != "add":
            found["old"] = self.old
        return found


def pointer(path: Iterable[str | int]) -> str:
    """Return the JSON Pointer of a path (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def differences(before: ReadOnlyObject, after: ReadOnlyObject) -> list[Difference]:
    """Return the operations that turn ``before`` into ``after``, without the server's bookkeeping."""
    return list(_objects(before, after, (), ""))


def changed_fields(found: Iterable[Difference]) -> list[str]:
    """Return the changed fields, each once, without mere consequences."""
    return list(dict.fromkeys(one.field for one in found if one.field not in CONSEQUENCES))


def is_within(field: str, queried: str) -> bool:
    """Return True if a field equals, is within, or contains the queried one, which may omit the keys of list items."""
    field, queried = _undotted(field), _undotted(queried)
    if "[" not in queried:
        field = re.sub(r"\[[^\]]*\]", "", field)
    return field == queried or _begins(field, queried) or _begins(queried, field)


def _begins(field: str, start: str) -> bool:
    return field.startswith(start) and field[len(start) : len(start) + 1] in (".", "[")


def _undotted(field: str) -> str:
    return field.strip().removeprefix(".")


def summary(found: Sequence[Difference]) -> str:
    """Return one printable line with the fields and values, as many as fit."""
    parts: list[str] = []
    length = 0
    shown = [one for one in found if one.field not in CONSEQUENCES]
    for position, one in enumerate(shown):
        part = printable(_words(one))
        if parts and length + len(part) > LONGEST_SUMMARY:
            parts.append(f"and {len(shown) - position} more")
            break
        parts.append(part)
        length += len(part) + 2
    return ", ".join(parts)


def _words(one: Difference) -> str:
    if one.op == "replace":
        return f"{one.field}: {shown_value(one.old)} → {shown_value(one.new)}"
    sign, value = ("+", one.new) if one.op == "add" else ("-", one.old)
    return f"{sign}{one.field}" if isinstance(value, dict | list) else f"{sign}{one.field}: {shown_value(value)}"


def shown_value(value: Any) -> str:
    """Return a value as printable text, shortened."""
    is_plain = isinstance(value, str) and value.isprintable() and value
    text = value if is_plain else printable_json(compact_json(value))
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


# -- comparing --------------------------------------------------------------------------------------------------------


def _objects(
    before: ReadOnlyObject, after: ReadOnlyObject, path: tuple[str | int, ...], field: str
) -> Iterator[Difference]:
    for name in [*before, *(name for name in after if name not in before)]:
        here = (*path, name)
        if here in BOOKKEEPING:
            continue
        old, new = before.get(name, _MISSING), after.get(name, _MISSING)
        yield from _values(old, new, here, field_below(field, name))


def _values(old: Any, new: Any, path: tuple[str | int, ...], field: str) -> Iterator[Difference]:
    if old is _MISSING:
        yield Difference("add", path, field, None, new)
    elif new is _MISSING:
        yield Difference("remove", path, field, old)
    elif isinstance(old, dict) and isinstance(new, dict):
        yield from _objects(old, new, path, field)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _lists(old, new, path, field)
    elif not same(old, new):
        yield Difference("replace", path, field, old, new)


def same(old: Any, new: Any) -> bool:
    """Return True if two values are equal as JSON: true is not 1, but 1 is 1.0."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(same(value, new[name]) for name, value in old.items())
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(same, old, new))
    return isinstance(old, bool) is isinstance(new, bool) and bool(old == new)


def field_below(field: str, name: str) -> str:
    """Return the readable path of a member."""
    if not _PLAIN(name):
        return f"{field}[{name}]"
    return f"{field}.{name}" if field else name


def _lists(before: list[Any], after: list[Any], path: tuple[str | int, ...], field: str) -> Iterator[Difference]:
    if same(before, after):
        return
    keys = key_fields_of(before, after)
    if keys is None:
        yield from _unnamed(before, after, path, field)
        return
    old_names, new_names = ([item_key(item, keys) for item in items] for items in (before, after))
    kept = [name for name in old_names if name in set(new_names)]
    if kept != [name for name in new_names if name in set(old_names)]:
        yield Difference("replace", path, field, before, after)  # in another order
        return
    labels = {item_key(item, keys): f"{field}{item_label(item, keys)}" for item in (*before, *after)}
    for index in range(len(before) - 1, -1, -1):
        if old_names[index] not in new_names:
            yield Difference("remove", (*path, index), labels[old_names[index]], before[index])
    old_items = dict(zip(old_names, before, strict=True))
    for index, (name, item) in enumerate(zip(new_names, after, strict=True)):
        if name not in old_items:
            yield Difference("add", (*path, index), labels[name], None, item)
    for index, (name, item) in enumerate(zip(new_names, after, strict=True)):
        if name in old_items:
            yield from _values(old_items[name], item, (*path, index), labels[name])


def _unnamed(before: list[Any], after: list[Any], path: tuple[str | int, ...], field: str) -> Iterator[Difference]:
    """Compare lists by position, after their common beginning and before their common end."""
    shorter = min(len(before), len(after))
    start = 0
    while start < shorter and same(before[start], after[start]):
        start += 1
    end = 0
    while end < shorter - start and same(before[-1 - end], after[-1 - end]):
        end += 1
    olds, news = before[start : len(before) - end], after[start : len(after) - end]
    both = min(len(olds), len(news))
    for index in range(len(olds) - 1, both - 1, -1):
        yield Difference("remove", (*path, start + index), f"{field}[{start + index}]", olds[index])
    for index in range(both):
        yield from _values(olds[index], news[index], (*path, start + index), f"{field}[{start + index}]")
    for index in range(both, len(news)):
        yield Difference("add", (*path, start + index), f"{field}[{start + index}]", None, news[index])


def key_fields_of(before: list[Any], after: list[Any]) -> tuple[str, ...] | None:
    """Return the key fields of the items of two lists; None: items are identified by position."""
    items = [*before, *after]
    if not all(isinstance(item, dict) for item in items):
        return None
    for keys in KEY_FIELDS:
        if all(_names(item, keys) for item in items) and all(
            len({item_key(item, keys) for item in one}) == len(one) for one in (before, after)
        ):
            return keys
    return None


def _names(item: ReadOnlyObject, keys: tuple[str, ...]) -> bool:
    return all(isinstance(item.get(key), str | int) and not isinstance(item[key], bool) for key in keys)


def item_key(item: ReadOnlyObject, keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the key of an item."""
    return tuple(str(item[key]) for key in keys)


def item_label(item: ReadOnlyObject, keys: tuple[str, ...]) -> str:
    """Return the key of an item in a readable path: ``[name=web]``."""
    return "[" + ",".join(f"{key}={item[key]}" for key in keys) + "]"


# Mappings with free names: the rest of the path is one name, dots included.
FREE: Final = (
    "metadata.labels",
    "metadata.annotations",
    "data",
    "stringData",
    "binaryData",
    "spec.selector.matchLabels",
    "spec.template.metadata.labels",
    "spec.template.metadata.annotations",
    "spec.nodeSelector",
)
MOST_STEPS: Final = 100
"""Steps of a path. No schema is as deep."""

# Compiled at the first use (re keeps it): most commands read no path.
_STEP: Final = r"\.?([^.\[\]]+)|\[([^\]]*)\]"
_QUOTED: Final = r"\[(['\"])(.*?)\1\]"
_FILTER: Final = r"\[\?\(\s*@\.([^=\s]+)\s*==\s*(['\"]?)(.*?)\2\s*\)\]"


def canonical(path: str) -> str:
    """Return a path in the form of differences.py. ValueError.

    JSON Pointers are accepted, and JSONPath's braces, $, leading dot, quotes and filters by one field.
    """
    text = path.strip()
    if text.startswith("/"):
        text = _of_pointer(text)
        steps(text)
        return text
    text = text.removeprefix("{").removesuffix("}").removeprefix("$").removeprefix(".").replace("\\.", ".")
    for mapping in FREE:
        rest = text.removeprefix(f"{mapping}.")
        if rest != text and "[" not in rest:
            return field_below(mapping, rest)
    text = re.sub(_QUOTED, r"[\2]", re.sub(_FILTER, r"[\1=\3]", text)).replace("[*]", "")
    steps(text)
    return text


def _of_pointer(pointer: str) -> str:
    """Return the readable path of a JSON Pointer. A number is a position; in a mapping, it is a name."""
    field = ""
    for part in pointer[1:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if not name or "]" in name:
            raise ValueError(f"{pointer!r} is no path of a field, as /spec/replicas or /metadata/labels/app is")
        field = f"{field}[{name}]" if name.isdigit() else field_below(field, name)
    return field


def steps(path: str) -> tuple[str, ...]:
    """Return the steps of a path: names, and list keys with their opening bracket. ValueError."""
    found: list[str] = []
    place = 0
    for match in re.finditer(_STEP, path):
        if match.start() != place:
            break
        place = match.end()
        found.append(match[1] if match[1] is not None else f"[{match[2]}")
    if not found or place != len(path) or len(found) > MOST_STEPS:
        raise ValueError(f"{path!r} is no path of a field, as spec.replicas or metadata.labels[app] is")
    return tuple(found)


def values_at(obj: Any, path: str) -> list[Any]:
    """Return all values at a canonical path, [] for none."""
    return [value for _, value in _found(obj, steps(path), "")]


def fields_at(obj: Any, path: str) -> list[str]:
    """Return the paths, as differences.py writes them, of all values at a canonical path: items have their keys."""
    return [field for field, _ in _found(obj, steps(path), "")]


def moved(before: Any, after: Any, path: str) -> str:
    """Return a remark if a position of a path is that of another item after a change; "": it is not."""
    if not before or not after:
        return ""
    parts = re.split(r"(?<=\])", path)
    for count in range(1, len(parts)):
        place = "".join(parts[:count])
        if not re.search(r"\[[0-9]+\]$", place):
            continue
        former, later = fields_at(before, place), fields_at(after, place)
        if former and later and former != later:
            label = f"[{former[0].rpartition('[')[2]}", f"[{later[0].rpartition('[')[2]}"
            return f"{place} was {label[0]} before this change and is {label[1]} now: name the item by its key"
    return ""


def has_changed(before: Any, after: Any, path: str) -> bool:
    """Return True if two states differ at a canonical path, which each state resolves by itself."""
    return not same(values_at(before, path), values_at(after, path))


def _found(value: Any, rest: Sequence[str], field: str) -> Iterator[tuple[str, Any]]:
    if not rest:
        yield field, value
        return
    if isinstance(value, list):
        yield from _in_list(value, rest, field)
    elif isinstance(value, Mapping):
        name = ""
        for place, step in enumerate(rest, 1):
            # Names may contain dots, so a name may have several steps: app, kubernetes, io/name.
            name = f"{name}.{step}" if name else step.removeprefix("[")
            if name in value:
                yield from _found(value[name], rest[place:], field_below(field, name))
            if step.startswith("["):
                return


def _in_list(items: list[Any], rest: Sequence[str], field: str) -> Iterator[tuple[str, Any]]:
    step = rest[0]
    keys = key_fields_of(items, [])
    for place, item in enumerate(items):
        if not step.startswith("[") or _is_item(item, place, step[1:]):
            label = item_label(item, keys) if keys is not None else f"[{place}]"
            yield from _found(item, rest[1:] if step.startswith("[") else rest, f"{field}{label}")


def _is_item(item: Any, place: int, label: str) -> bool:
    if label.isascii() and label.isdigit():
        return int(label) == place
    pairs = [pair.partition("=") for pair in label.split(",")]
    return isinstance(item, Mapping) and all(
        sign and name in item and _spelled(item[name]) == text for name, sign, text in pairs
    )


def _spelled(value: Any) -> str:
    return value if isinstance(value, str) else compact_json(value)
