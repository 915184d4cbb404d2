"""Reads the facts about types of a Kubernetes minor: the files of the folders beside this one.

A file has the types of one Go package, `apps.v1.txt` those of k8s.io/api/apps/v1. `own/` has kubechronicle's own kinds,
written by hand in the same form. `descriptions/` has the published descriptions, and `internal/` the types that no
version of an API has, but messages print. Both are read when they are first needed.

    group=apps version=v1 model=io.k8s.api.apps.v1 source=k8s.io/api@v0.36.3 options

    Deployment struct kind introduced=1.9      a struct; "kind": registered as an API kind
      . - meta.v1.TypeMeta                     an inlined struct
      metadata 1 meta.v1.ObjectMeta ?          JSON name, protobuf number (- if none), Go type, marks
      spec 2 DeploymentSpec ?
        +k8s:required                          a tag of the field

    DaemonSetUpdateStrategyType string enum    a named type; "enum": its values are published
      "OnDelete"

Types are those of Go, in which a name without a package belongs to the file's own. Marks of a type:

    kind      registered as an API kind            message    a list that is a message in protobuf
    decodes   its JSON is decoded by a method      map=atomic field managers own it as a whole
    published=string/date-time, one-of=a,b         the JSON type and format in OpenAPI, if they differ from Go's
    introduced=, deprecated=, removed=1.36, replacement=group/version/kind    the life of a kind's version

Marks of a field:

    ?  omitempty      !  required         go=APIVersion   the Go name, unless it is the JSON name with a capital
    ~  omitzero       default="TCP"       patch=merge,retainKeys:name   strategies and key of strategic merge patch
    list=map:port,protocol                map=atomic                    the list type with its keys, the map type

Invariant: what is read never changes. A type's lines are parsed when it is first used.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kubechronicle.api.kinds import SERVED

POINTER: Final = "*"
LIST: Final = "[]"
MAP: Final = "map"
NAMED: Final = ""

STRUCT: Final = "struct"
INTERNAL: Final = "internal."
"""The beginning of the names of packages with internal types, those of k8s.io/kubernetes ``pkg/apis``."""
BASIC: Final = frozenset(
    ("string", "bool", "int", "int32", "int64", "uint16", "uint64", "float64", "uint8", "interface{}")
)

OPTION_KINDS: Final = (
    *("WatchEvent", "ListOptions", "GetOptions", "DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions"),
)
"""Kinds of meta.v1 that are kinds of every group version (apimachinery ``AddToGroupVersion``)."""

UNVERSIONED_KINDS: Final = ("Status", "APIVersions", "APIGroupList", "APIGroup", "APIResourceList")
"""Kinds of meta.v1 without a version of their own, which are always v1."""

_META: Final = "meta.v1"
_CORE: Final = "core.v1"
_OTHER_SCHEMES: Final = frozenset(("meta.k8s.io", "apidiscovery.k8s.io"))
"""Groups whose kinds a kube-apiserver writes, but does not register with those of its resources."""


@dataclass(frozen=True, slots=True)
class GoType:
    """A Go type.

    ``shape``: POINTER, LIST or MAP, whose elements are ``of``; or NAMED, which has a ``name``: that of a basic type, or
    of a declared one, ``core.v1.Pod``. ``key``: the name of the type of a map's keys.
    """

    shape: str
    name: str = ""
    of: GoType | None = None
    key: str = ""

    @property
    def named(self) -> str:
        """The name of the innermost type."""
        return self.name if self.of is None else self.of.named


@dataclass(frozen=True, slots=True)
class KindField:
    """A field of a struct; see the head of this file. ``name``: in JSON, "" if the field is an inlined struct.
    ``number``: in protobuf, 0 if there is none. ``tags``: other tags, with the + and without further meaning here."""

    name: str
    number: int
    type: GoType
    omitempty: bool
    omitzero: bool
    required: bool
    go_name: str
    marks: Mapping[str, str]
    tags: tuple[str, ...]

    @property
    def default(self) -> Any:
        """The declared default, None if there is none."""
        text = self.marks.get("default")
        return None if text is None else json.loads(text)


class Declared:
    """A declared type: its name, package, marks, and what it is; its fields or its values if it is an enum."""

    __slots__ = ("__dict__", "_lines", "is_struct", "marks", "name", "package")

    def __init__(self, package: Package, lines: list[str]) -> None:
        words = lines[0].split(" ")
        self.package = package
        self.name = words[0]
        self.is_struct = words[1] == STRUCT
        self.marks = _marks(words[2:])
        self._lines = lines

    @property
    def full_name(self) -> str:
        """The name with the package: ``core.v1.Pod``."""
        return f"{self.package.name}.{self.name}"

    @property
    def definition(self) -> str:
        """The name in OpenAPI: ``io.k8s.api.core.v1.Pod``."""
        return f"{self.package.model}.{self.name}"

    @property
    def is_kind(self) -> bool:
        """True if it is registered as an API kind."""
        return "kind" in self.marks

    @functools.cached_property
    def behind(self) -> GoType:
        """The type behind the name of what is no struct."""
        return go_type(self._lines[0].split(" ")[1], self.package.name)

    @functools.cached_property
    def tags(self) -> tuple[str, ...]:
        """The tags of the type itself."""
        return tuple(line[2:] for line in self._lines[1:] if line.startswith("  +"))

    @functools.cached_property
    def fields(self) -> tuple[KindField, ...]:
        """The fields of a struct, in Go's order; inlined structs are one field each."""
        return tuple(self._fields()) if self.is_struct else ()

    @functools.cached_property
    def members(self) -> Mapping[str, tuple[KindField, tuple[Declared, ...]]]:
        """The fields of a struct by JSON name, those of inlined structs among them, each with the inlined structs that
        lead to it."""
        made: dict[str, tuple[KindField, tuple[Declared, ...]]] = {}
        for field in self.fields:
            if field.name:
                made[field.name] = (field, ())
                continue
            inlined = self.package.release.declared(field.type.named)
            made.update({name: (each, (inlined, *way)) for name, (each, way) in inlined.members.items()})
        return made

    @functools.cached_property
    def values(self) -> tuple[str, ...]:
        """The values of an enum, sorted."""
        return tuple(json.loads(line) for line in self._lines[1:] if line.startswith('  "'))

    def description(self, of: str = "") -> str:
        """Return the published description of the type, of a field, or of a value that is given as JSON; or ""."""
        return self.beginning(of).rstrip("\n")

    def beginning(self, of: str) -> str:
        """Return a description with the blank line at its end, which shows where the values of an enum follow."""
        if self.is_struct and of in self.members and (way := self.members[of][1]):
            return way[-1].beginning(of)
        return self.package.descriptions.get(f"{self.name}.{of}" if of else self.name, "")

    def _fields(self) -> Iterator[KindField]:
        starts = [at for at, line in enumerate(self._lines) if line[:2] == "  " and line[2] not in ' +"']
        for start, end in itertools.pairwise((*starts, len(self._lines))):
            yield _field(self._lines[start], self._lines[start + 1 : end], self.package.name)


class Package:
    """The types of one Go package.

    ``group``, ``version``: empty unless ``is_group_version``. ``model``: the beginning of its definitions' names.
    ``has_options``: its group version has OPTION_KINDS, too.
    """

    __slots__ = (
        "__dict__",
        "_file",
        "_texts",
        "group",
        "has_options",
        "is_group_version",
        "model",
        "name",
        "release",
        "version",
    )

    def __init__(self, release: PublishedRelease, file: Path, prefix: str = "") -> None:
        _, head, *blocks = file.read_text().rstrip("\n").replace("\n", "\n\n", 2).split("\n\n")
        marks = _marks(head.split(" "))
        self.release = release
        self.name = prefix + file.name.removesuffix(".txt")
        self.is_group_version = "group" in marks
        self.group = marks.get("group", "")
        self.version = marks.get("version", "")
        self.model = marks["model"]
        self.has_options = "options" in marks
        self._file = file
        self._texts = {block[: block.index(" ")]: block for block in map(str.strip, blocks)}

    @property
    def api_version(self) -> str:
        """The apiVersion of its kinds."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @functools.cached_property
    def types(self) -> Mapping[str, Declared]:
        """All types by name."""
        return {name: Declared(self, text.split("\n")) for name, text in self._texts.items()}

    @functools.cached_property
    def descriptions(self) -> Mapping[str, str]:
        """The published descriptions by type, and by type and field."""
        text = (self._file.parent / "descriptions" / self._file.name).read_text()
        pairs = (line.partition(" ") for line in text.splitlines()[1:])
        return {name: _unescaped(described) for name, _, described in pairs}


class PublishedRelease:
    """The packages of one Kubernetes minor, with kubechronicle's own."""

    def __init__(self, minor: str) -> None:
        folder = Path(__file__).parent
        self._folder = folder / minor
        published = list(self._folder.glob("*.txt"))
        if not published:
            raise KeyError(minor)
        files = sorted([*published, *(folder / "own").glob("*.txt")], key=lambda file: file.name)
        self.packages = {package.name: package for package in (Package(self, file) for file in files)}
        self.group_versions = {
            package.api_version: package for package in self.packages.values() if package.is_group_version
        }
        self._models = {package.model: package for package in self.packages.values()}

    def declared(self, name: str) -> Declared:
        """Return the type of a name such as ``core.v1.Pod``. KeyError if there is none."""
        package, _, kind = name.rpartition(".")
        if package.startswith(INTERNAL):
            return self.internal[package].types[kind]
        return self.packages[package].types[kind]

    def defined(self, definition: str) -> Declared:
        """Return the type of a name in OpenAPI such as ``io.k8s.api.core.v1.Pod``. KeyError if there is none."""
        model, _, kind = definition.rpartition(".")
        return self._models[model].types[kind]

    def has_definition(self, definition: str) -> bool:
        """Tell whether a name in OpenAPI is that of a published type."""
        model, _, kind = definition.rpartition(".")
        return model in self._models and kind in self._models[model].types

    def behind(self, kind: GoType) -> GoType:
        """Return the type behind pointers and names: a struct, a basic type, a list or a map."""
        while True:
            if kind.shape == POINTER and kind.of is not None:
                kind = kind.of
            elif "." in kind.name and not (declared := self.declared(kind.name)).is_struct:
                kind = declared.behind
            else:
                return kind

    @functools.cached_property
    def internal(self) -> Mapping[str, Package]:
        """The packages of internal types by name. Only messages about whole structs need them."""
        found = (Package(self, file, INTERNAL) for file in sorted((self._folder / "internal").glob("*.txt")))
        return {package.name: package for package in found}

    @functools.cached_property
    def kinds(self) -> Mapping[tuple[str, str, str], Declared]:
        """The types of all API kinds by group, version and kind, as a kube-apiserver registers them."""
        made: dict[tuple[str, str, str], Declared] = {}
        meta = self.packages[_META].types
        for package in self.group_versions.values():
            if package.group in _OTHER_SCHEMES:
                continue
            found = {name: each for name, each in package.types.items() if each.is_kind}
            if package.has_options:
                found |= {name: meta[name] for name in OPTION_KINDS}
            if package.name == _CORE:
                found |= {name: meta[name] for name in UNVERSIONED_KINDS}
            made |= {(package.group, package.version, name): each for name, each in found.items()}
        return made

    def types(self) -> Iterator[Declared]:
        """Yield all types."""
        for package in self.packages.values():
            yield from package.types.values()


@functools.cache
def enum(name: str) -> tuple[str, ...]:
    """Return the values of an enum, sorted. Example: "core.v1.Protocol"."""
    return release().declared(name).values


@functools.cache
def release(minor: str = SERVED) -> PublishedRelease:
    """Return the facts of a minor such as ``1.36``, KeyError if there are none. The first call takes 6 ms."""
    return PublishedRelease(minor)


def go_type(text: str, package: str) -> GoType:
    """Return the Go type of a text in the file of a package."""
    if text[0] == "*":
        return GoType(POINTER, of=go_type(text[1:], package))
    if text.startswith("[]"):
        return GoType(LIST, of=go_type(text[2:], package))
    if text.startswith("map["):
        key, _, value = text[4:].partition("]")
        return GoType(MAP, of=go_type(value, package), key=go_type(key, package).name)
    text = {"byte": "uint8", "any": "interface{}"}.get(text, text)
    return GoType(NAMED, text if text in BASIC or "." in text else f"{package}.{text}")


def _field(line: str, tags: list[str], package: str) -> KindField:
    name, number, kind, *words = line[2:].split(" ")
    marks = _marks(words)
    return KindField(
        name="" if name == "." else name,
        number=0 if number == "-" else int(number),
        type=go_type(kind, package),
        omitempty="?" in marks,
        omitzero="~" in marks,
        required="!" in marks,
        go_name=marks.get("go", name[:1].upper() + name[1:]),
        marks=marks,
        tags=tuple(tag[4:] for tag in tags),
    )


def _marks(words: list[str]) -> dict[str, str]:
    return {name: value for name, _, value in (word.partition("=") for word in words)}


_ESCAPE: Final = re.compile(r"\\(.)")


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: {"n": "\n", "r": "\r"}.get(found[1], found[1]), text) if "\\" in text else text
