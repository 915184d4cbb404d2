"""CustomVersion: one version of a CustomResourceDefinition, with the parts that its schema is compiled into.

Lives here: what all requests for a version share. Not here: the compilers (schema/, rules/, types.py), and the
ResourceTypes of a definition (served.py).

A server may hold a thousand definitions, most of them unused. So a version keeps no parsed schema. ``openapi`` and
``definition`` decode the definition each time, and a compiled part is made at its first use and kept:

    rt.custom.schema      first request: decodes the definition, compiles its schema
    rt.custom.schema      later requests: the same CompiledSchema

Invariant: two threads that need a part at once get the same one. Both may compile it; the first one to finish counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from kubechronicle.api.custom import strategy as strategies
from kubechronicle.api.custom.rules.durations import RuleMeasures
from kubechronicle.api.custom.rules.rules import CustomRules
from kubechronicle.api.custom.schema.compiled import CompiledSchema, compile_schema
from kubechronicle.api.custom.types import object_type
from kubechronicle.api.schema.types import ObjectType
from kubechronicle.api.strategy.strategy import Strategy
from kubechronicle.api.values.objects import Object, ReadOnlyObject

Part = TypeVar("Part")

NO_CONVERSION: Final[ReadOnlyObject] = {"strategy": "None"}


class Marks:
    """Notes in a stored object.

    ``kept``: the schema changes nothing in it; ``changed``: it does. ``conforming``: kept, and also valid.
    ``keeping``: the notes of objects in which the schema changes nothing.
    """

    __slots__ = ("changed", "conforming", "keeping", "kept")

    def __init__(self) -> None:
        self.kept: Final = object()
        self.conforming: Final = object()
        self.changed: Final = object()
        self.keeping: Final = frozenset((self.kept, self.conforming))


class CustomVersion:
    """One version of a definition.

    ``name``: "v1". ``uid``, ``generation``: of the definition. ``storage_version``: the name of the stored version.
    ``group``, ``plural``, ``kind``: the accepted names.
    ``served``: the version has paths. ``terminating``: the definition is being deleted, and nothing may be created.
    ``preserves_unknown``: spec.preserveUnknownFields. ``conversion``: spec.conversion.
    ``subresources``, ``selectable_fields``: of the version, as the definition gives them.
    ``versions``: all versions of the definition by name, this one included. ``size``: the bytes of the definition.
    """

    __slots__ = (
        "_load",
        "_parts",
        "conversion",
        "generation",
        "group",
        "kind",
        "measures",
        "name",
        "plural",
        "preserves_unknown",
        "selectable_fields",
        "served",
        "size",
        "storage_version",
        "subresources",
        "terminating",
        "uid",
        "versions",
    )

    def __init__(
        self,
        definition: ReadOnlyObject,
        version: ReadOnlyObject,
        *,
        load: Callable[[], Object],
        size: int = 0,
        versions: Mapping[str, CustomVersion],
        terminating: bool,
        like: CustomVersion | None = None,
        measures: RuleMeasures | None = None,
    ) -> None:
        """``version``: one of spec.versions. ``load``: returns the definition, freshly decoded. ``size``: its
        bytes. ``like``: the same version with the same schema and names, before the definition changed otherwise.
        ``measures``: of its rules."""
        metadata, spec = definition["metadata"], definition["spec"]
        accepted = definition["status"]["acceptedNames"]
        self.name: Final[str] = version["name"]
        self.uid: Final[str] = metadata.get("uid", "")
        self.generation: Final[int] = metadata.get("generation", 0)
        self.group: Final[str] = spec["group"]
        self.plural: Final[str] = accepted["plural"]
        self.kind: Final[str] = accepted["kind"]
        self.served: Final = bool(version.get("served"))
        self.terminating: Final = terminating
        self.storage_version: Final[str] = next(one["name"] for one in spec["versions"] if one.get("storage"))
        self.preserves_unknown: Final = bool(spec.get("preserveUnknownFields"))
        self.conversion: Final[ReadOnlyObject] = spec.get("conversion") or NO_CONVERSION
        self.subresources: Final[ReadOnlyObject] = version.get("subresources") or {}
        self.selectable_fields: Final = tuple(one["jsonPath"] for one in version.get("selectableFields") or ())
        self.versions: Final = versions
        self.size: Final = size
        self.measures: Final = measures
        self._load: Final = load
        self._parts: Final[dict[str, Any]] = {} if like is None else like._parts

    def __repr__(self) -> str:
        """Name the definition and its state: two versions with the same text have the same schema."""
        return f"<CustomVersion {self.group}/{self.name} {self.plural} of {self.uid} generation {self.generation}>"

    @property
    def definition(self) -> Object:
        """The CustomResourceDefinition, freshly decoded at each call."""
        return self._load()

    @property
    def openapi(self) -> Object:
        """The version's openAPIV3Schema, freshly decoded at each call; {} if there is none."""
        for version in self._load()["spec"]["versions"]:
            if version["name"] == self.name:
                return (version.get("schema") or {}).get("openAPIV3Schema") or {}
        return {}

    @property
    def storage(self) -> CustomVersion:
        """The version that objects are stored in."""
        return self.versions[self.storage_version]

    @property
    def schema(self) -> CompiledSchema:
        """Defaults, pruning and validation by the version's schema."""
        return self.part("schema", _schema)

    @property
    def rules(self) -> CustomRules:
        """The x-kubernetes-validations of the version's schema."""
        return self.part("rules", _rules)

    @property
    def kind_type(self) -> ObjectType:
        """The type of the version's objects, for field sets and server-side apply."""
        return self.part("kind_type", _kind_type)

    @property
    def strategy(self) -> Strategy:
        """The strategy of the version's objects."""
        return self.part("strategy", _strategy)

    @property
    def checks(self) -> strategies.Checks:
        """The checks of the version's objects."""
        return self.part("checks", _checks)

    @property
    def marks(self) -> Marks:
        """The notes in stored objects about the version's schema."""
        return self.part("marks", _marks)

    @property
    def compiled(self) -> bool:
        """True if no write has to wait for parts to be made."""
        return "compiled" in self._parts

    @property
    def compilation(self) -> int:
        """The bytes of a body whose rules take as long as ``compile``: expressions take longer than other schemas."""
        return self.size * 4

    def compile(self) -> None:
        """Make all parts that writes need, of this version and the stored one. Takes up to 0.1 s for a megabyte."""
        for version in (self, self.storage):
            for part in (version.schema, version.rules, version.kind_type, version.strategy, version.checks):
                assert part is not None
        self._parts["compiled"] = True

    def serves_like(self, other: CustomVersion) -> bool:
        """Tell whether both serve the same: they differ at most in the definition's metadata and conditions."""
        return self._parts is other._parts

    def part(self, name: str, make: Callable[[CustomVersion], Part]) -> Part:
        """Return the part of this name, made by ``make`` at its first use."""
        found: Part | None = self._parts.get(name)
        return found if found is not None else self._parts.setdefault(name, make(self))


def _schema(version: CustomVersion) -> CompiledSchema:
    return compile_schema(version.openapi, preserve_unknown=version.preserves_unknown)


def _rules(version: CustomVersion) -> CustomRules:
    return CustomRules(version.openapi, measures=version.measures)


def _marks(_: CustomVersion) -> Marks:
    return Marks()


def _kind_type(version: CustomVersion) -> ObjectType:
    return object_type(version.openapi, preserve_unknown=version.preserves_unknown)


def _strategy(version: CustomVersion) -> Strategy:
    return strategies.strategy(version.subresources)


def _checks(version: CustomVersion) -> strategies.Checks:
    api_version = f"{version.group}/{version.name}"
    return strategies.Checks(api_version, version.kind, version.subresources, version.schema, version.rules)
