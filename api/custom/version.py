"""CustomVersion: one version of a CustomResourceDefinition, with the parts that its schema is compiled into.

Lives here: what all requests for a version share. Not here: the compilers (schema/, rules/), and the
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
from kubechronicle.api.custom.rule import RuleMeasures
from kubechronicle.api.custom.rules import CustomRules
from kubechronicle.api.custom.schema.compiled import CompiledSchema, compile_schema
from kubechronicle.api.schema.types import ATOMIC, META, AnyType, ListType, MapType, ObjectType, Scalar, Type
from kubechronicle.api.schema.types import object_type as builtin_type
from kubechronicle.api.strategy.strategy import Strategy
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- types -------------------------------------------------------------------------------------------------------------
#
# Structural types of custom resources, compiled from openAPIV3Schemas, for field owners and server-side apply.
#
# After kube-openapi ``pkg/schemaconv/openapi.go``, with the fields that apiextensions-apiserver
# ``pkg/controller/openapi/builder`` adds. A schema becomes a type of api/schema/types.py:
#
#     properties                            ObjectType; undeclared fields are unknown
#     properties, preserve unknown fields   ObjectType; undeclared fields are deduced, here and in all levels below
#     additionalProperties                  MapType
#     an object without either              MapType of deduced values
#     array                                 ListType: atomic, or a set or map by x-kubernetes-list-type
#     no type (int-or-string, or any JSON)  deduced: owned field by field if it is an object
#
# Not here: decoding, defaults and pruning (schema/), which treat such values otherwise.


Schema = Mapping[str, Any]

MAX_DEPTH: Final = 200
"""The deepest level with a type of its own; values below it are owned as a whole. Objects are not nested deeper."""

_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"


def object_type(openapi: Schema, *, preserve_unknown: bool = False) -> ObjectType:
    """Return the type of a version's objects. ``preserve_unknown``: spec.preserveUnknownFields."""
    if not openapi:
        return ObjectType.of_fields({}, other=_deduced())
    root = _fields_of(openapi, preserve=preserve_unknown or bool(openapi.get(_PRESERVE)), depth=0)
    return _with_type_and_metadata(openapi, root, free=False)


def _with_type_and_metadata(schema: Schema, kind: ObjectType, *, free: bool) -> ObjectType:
    """Return the type of an object with apiVersion, kind and metadata, which every schema of a resource has."""
    fields = {name: field.type for name, field in kind.fields.items()}
    fields |= {
        "apiVersion": _scalar("string"),
        "kind": _scalar("string"),
        "metadata": builtin_type(f"{META}ObjectMeta"),
    }
    return ObjectType.of_fields(fields, other=kind.other, atomic=_atomic(schema), free=free)


def _compile(schema: Schema, *, preserve: bool, depth: int) -> Type:
    if depth > MAX_DEPTH:
        return _marked(AnyType("interface {}", deduced=False))
    preserve = preserve or bool(schema.get(_PRESERVE))
    word = schema.get("type", "")
    if word == "array":
        return _list(schema, preserve=preserve, depth=depth)
    if word and word != "object":
        return _scalar(_kind_of_scalar(word, schema.get("format", "")))
    if schema.get("x-kubernetes-embedded-resource"):
        return _with_type_and_metadata(schema, _fields_of(schema, preserve=preserve, depth=depth), free=not word)
    additional = schema.get("additionalProperties")
    if schema.get("properties") or additional is False:
        return _fields_of(schema, preserve=preserve, depth=depth)
    if not word and not isinstance(additional, Mapping):
        return _deduced()
    value = _compile(additional, preserve=preserve, depth=depth + 1) if isinstance(additional, Mapping) else _deduced()
    if not word:
        return ObjectType.of_fields({}, other=value, free=True)
    return _marked(MapType(value, "", atomic=_atomic(schema)))


def _fields_of(schema: Schema, *, preserve: bool, depth: int) -> ObjectType:
    """Return the type of an object with properties."""
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    fields = {name: _compile(below, preserve=preserve, depth=depth + 1) for name, below in properties.items()}
    additional = schema.get("additionalProperties")
    other: Type | None = None
    if isinstance(additional, Mapping):
        other = _compile(additional, preserve=preserve, depth=depth + 1)
    elif additional is True or (additional is None and (preserve or not properties)):
        other = _deduced()
    return ObjectType.of_fields(fields, other=other, atomic=_atomic(schema), free=not schema.get("type"))


def _list(schema: Schema, *, preserve: bool, depth: int) -> Type:
    items = schema.get("items")
    if not isinstance(items, Mapping):
        return _marked(AnyType("interface {}", deduced=False))
    defaults: dict[str, Any] = {}
    properties = items.get("properties") or {}
    for name in schema.get("x-kubernetes-list-map-keys") or ():
        default = (properties.get(name) or {}).get("default")
        if default is not None:
            defaults[name] = default
    return _marked(
        ListType(
            _compile(items, preserve=preserve, depth=depth + 1),
            "",
            list_type=schema.get("x-kubernetes-list-type", ATOMIC),
            keys=tuple(schema.get("x-kubernetes-list-map-keys", ())),
            key_defaults=defaults,
        )
    )


def _kind_of_scalar(word: str, text_format: str) -> str:
    """Return the kind of a Scalar. Field managers know strings, numbers and booleans, and other scalars."""
    if word in ("integer", "number"):
        return "number"
    if word == "boolean":
        return "boolean"
    return "string" if word == "string" and text_format in ("", "byte") else "untyped"


def _scalar(kind: str) -> Type:
    return _marked(Scalar(kind, ""))


def _deduced() -> Type:
    return _marked(AnyType("interface {}", deduced=True))


def _marked(kind: Type) -> Type:
    kind.custom = True
    return kind


def _atomic(schema: Schema) -> bool:
    return schema.get("x-kubernetes-map-type") == ATOMIC


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
