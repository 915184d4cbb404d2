"""Values of an object at a readable path.

spec.replicas                                      [3]
spec.template.spec.containers[name=web].image      ["nginx:2"]
spec.template.spec.containers.image                ["nginx:2", "envoy:1"]      of all items
spec.template.spec.containers[0].image             ["nginx:2"]
metadata.labels[app.kubernetes.io/name]            ["web"]
metadata.labels.app.kubernetes.io/name             ["web"]      names of labels and data may contain dots
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.history.differences import field_below

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

_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")


def canonical(path: str) -> str:
    """Return a path in the form of differences.py. JSONPath's braces, $ and leading dot are accepted. ValueError."""
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$").removeprefix(".").replace("\\.", ".")
    for mapping in FREE:
        rest = text.removeprefix(f"{mapping}.")
        if rest != text and "[" not in rest:
            return field_below(mapping, rest)
    steps(text)
    return re.sub(r"\[(['\"])(.*?)\1\]", r"[\2]", text).replace("[*]", "")


def steps(path: str) -> list[str]:
    """Return the steps of a path: names, and list keys with their opening bracket. ValueError."""
    found, place = [], 0
    for match in _STEP.finditer(path):
        if match.start() != place:
            break
        place = match.end()
        found.append(match[1] if match[1] is not None else f"[{match[2]}")
    if not found or place != len(path):
        raise ValueError(f"{path!r} is no path of a field, as spec.replicas or metadata.labels[app] is")
    return found


def values_at(obj: Any, path: str) -> list[Any]:
    """Return all values at a canonical path, [] for none."""
    return list(_values(obj, steps(path)))


def _values(value: Any, rest: Sequence[str]) -> Iterator[Any]:
    if not rest:
        yield value
        return
    step = rest[0]
    if isinstance(value, list):
        if step.startswith("["):
            for place, item in enumerate(value):
                if _is_item(item, place, step[1:]):
                    yield from _values(item, rest[1:])
        else:
            for item in value:
                yield from _values(item, rest)
    elif isinstance(value, Mapping):
        name = step.removeprefix("[")
        if name in value:
            yield from _values(value[name], rest[1:])


def _is_item(item: Any, place: int, label: str) -> bool:
    if label.isdigit():
        return int(label) == place
    pairs = [pair.partition("=") for pair in label.split(",")]
    return isinstance(item, Mapping) and all(sign and str(item.get(name)) == text for name, sign, text in pairs)
