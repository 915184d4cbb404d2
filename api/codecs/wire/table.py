"""The table of protobuf messages: which fields a message has, and which message an apiVersion and kind name.

Lives here: reading `messages.json` into frozen records, once, on first use. Not here: any byte of the wire.
A field of the table reads like its Go struct, `"livenessProbe 10 *Probe?"`: JSON name, number, type, where
`[]` is a list, `{}` a map with string keys, `*` a pointer, `?` omitempty, `~` omitzero; the name `.` marks an
inlined struct, whose fields appear in JSON beside those of the outer one. The types `time`, `quantity` and so on
(`values.py`) are messages on the wire but single values in JSON.

Invariant: the fields of a message are in ascending order of number, the order in which Go writes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import orjson

__all__ = ["SCALARS", "Field", "Message", "message_for", "message_named", "messages"]

# Wire type of each scalar; everything else is length-delimited (2).
SCALARS = {"int32": 0, "int64": 0, "bool": 0, "double": 1}

# Kinds which Kubernetes registers in every group version (apimachinery meta/v1 AddToGroupVersion)...
_IN_EVERY_GROUP = frozenset(
    {"WatchEvent", "ListOptions", "GetOptions", "DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions"}
)
# ... and those without a version of their own, which are always called v1.
_UNVERSIONED = frozenset({"Status", "APIVersions", "APIGroupList", "APIGroup", "APIResourceList"})
# meta.k8s.io/v1beta1 shares this type with v1.
_SHARED_WITH_V1BETA1 = frozenset({"PartialObjectMetadata"})


@dataclass(frozen=True, slots=True)
class Field:
    """One field: `name` in JSON ("" when inlined), its number, and its type as the Go struct has it."""

    name: str
    number: int
    type: str
    repeated: bool
    map: bool
    pointer: bool
    omitempty: bool
    omitzero: bool

    @property
    def wire_type(self) -> int:
        return 2 if self.map else SCALARS.get(self.type, 2)

    @property
    def tag(self) -> int:
        return self.number << 3 | self.wire_type


@dataclass(frozen=True, slots=True)
class Message:
    """One message: `name` is "core/v1.Pod"."""

    name: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class _Table:
    specs: dict[str, str]
    packages: dict[str, str]  # apiVersion -> package


@cache
def _table() -> _Table:
    document = orjson.loads(Path(__file__).with_name("messages.json").read_bytes())
    specs: dict[str, str] = {}
    packages: dict[str, str] = {}
    for package, content in document["packages"].items():
        packages[content["apiVersion"]] = package
        for name, spec in content["messages"].items():
            specs[f"{package}.{name}"] = spec
    return _Table(specs, packages)


def messages() -> list[str]:
    """The names of all messages."""
    return list(_table().specs)


@cache  # bounded by the table
def message_named(name: str) -> Message:
    """The message called for example "core/v1.Pod"; KeyError when there is none."""
    package = name.rpartition(".")[0]
    spec = _table().specs[name]
    return Message(name, tuple(_field(package, text) for text in spec.split("; ")) if spec else ())


def message_for(api_version: str, kind: str) -> str | None:
    """The name of the message of an apiVersion and kind, None when the kind has no protobuf form."""
    table = _table()
    package = table.packages.get(api_version)
    if package is not None and (name := f"{package}.{kind}") in table.specs:
        return name
    if kind in _IN_EVERY_GROUP or (api_version == "v1" and kind in _UNVERSIONED):
        return f"meta/v1.{kind}"
    if api_version == "meta.k8s.io/v1beta1" and kind in _SHARED_WITH_V1BETA1:
        return f"meta/v1.{kind}"
    return None


def _field(package: str, text: str) -> Field:
    name, number, kind = text.split(" ")
    omitzero = kind.endswith("~")
    kind = kind.removesuffix("~")
    omitempty = kind.endswith("?")
    kind = kind.removesuffix("?")
    repeated, mapped = kind.startswith("[]"), kind.startswith("{}")
    kind = kind.removeprefix("[]").removeprefix("{}")
    pointer = kind.startswith("*")
    kind = kind.removeprefix("*")
    if kind[:1].isupper():
        kind = f"{package}.{kind}"
    return Field(
        name="" if name == "." else name,
        number=int(number),
        type=kind,
        repeated=repeated,
        map=mapped,
        pointer=pointer,
        omitempty=omitempty,
        omitzero=omitzero,
    )
