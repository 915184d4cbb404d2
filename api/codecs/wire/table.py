"""The table of protobuf messages: the fields of each message, and the message of each apiVersion and kind.

Lives here: reading `messages.json` into frozen records, once, on first use. Not here: bytes of the wire.

A field reads like its Go struct, `"livenessProbe 10 *Probe?"`: JSON name, number, type. `[]` is a list, `{}` a map with
string keys, `*` a pointer, `?` omitempty, `~` omitzero. The name `.` marks an inlined struct: JSON has its fields among
those of the outer one. Types such as `time` and `quantity` (`values.py`) are messages on the wire, and single values in
JSON.

Invariant: the fields of a message are in ascending order of number, as Go writes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import orjson

__all__ = ["SCALARS", "Field", "Message", "message_for", "message_named", "messages"]

# Wire types of scalars; every other type is length-delimited (2).
SCALARS = {"int32": 0, "int64": 0, "bool": 0, "double": 1}

# Kinds in every group version (apimachinery meta/v1 AddToGroupVersion).
_IN_EVERY_GROUP = frozenset(
    {"WatchEvent", "ListOptions", "GetOptions", "DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions"}
)
# Kinds without a version of their own, which are always v1.
_UNVERSIONED = frozenset({"Status", "APIVersions", "APIGroupList", "APIGroup", "APIResourceList"})
# meta.k8s.io/v1beta1 shares this type with v1.
_SHARED_WITH_V1BETA1 = frozenset({"PartialObjectMetadata"})


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its JSON `name` ("" if inlined), its number, and its type in the Go struct."""

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
    """Return the names of all messages."""
    return list(_table().specs)


@cache  # bounded by the table
def message_named(name: str) -> Message:
    """Return the message of a name such as "core/v1.Pod". KeyError if there is none."""
    package = name.rpartition(".")[0]
    spec = _table().specs[name]
    return Message(name, tuple(_field(package, text) for text in spec.split("; ")) if spec else ())


def message_for(api_version: str, kind: str) -> str | None:
    """Return the name of the message of an apiVersion and kind, None if the kind has no protobuf form."""
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
