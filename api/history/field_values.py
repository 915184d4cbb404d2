"""Values of an object at a path, as people, programs and SQL write it. Server and client read a path here alone.

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
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.history.differences import field_below, item_label, key_fields_of, same
from kubechronicle.api.values.objects import compact_json

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
