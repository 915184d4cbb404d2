"""From a value of etcd, or an object of an API server, to the key and the body under which this server stores it.

Values are protobuf (``k8s\\0``) or JSON, of the version that kube-apiserver stores. Built-in kinds are converted to the
version stored here, and get the defaults that a read of kube-apiserver fills in. Custom objects stay as they are: this
server, too, cleans and converts them when they are read. Pure, but for decryption, which is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias

from kubechronicle.api.codecs import json, protobuf
from kubechronicle.api.codecs.errors import CodecError
from kubechronicle.api.meta.encoding import copy_object, encode_custom, encode_stored
from kubechronicle.api.pipeline import conversion
from kubechronicle.api.registry.registry import ResourceType, known_registry
from kubechronicle.api.schema import check, types
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.records import Key

# -- old definitions ---------------------------------------------------------------------------------------------------
#
# CustomResourceDefinitions of apiextensions.k8s.io/v1beta1, as kube-apiserver stores them in etcd, in the form of v1.
#
# v1beta1 has the fields that all versions share beside ``versions``: schema, subresources, columns, selectable fields.
# In v1 each version has them. Source: apiextensions-apiserver ``pkg/apis/apiextensions/v1/conversion.go``.

API_VERSION: Final = "apiextensions.k8s.io/v1"
OLD_API_VERSION: Final = "apiextensions.k8s.io/v1beta1"
KIND: Final = "CustomResourceDefinition"
_SHARED: Final = (
    ("validation", "schema"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
)
"""Fields of the spec of v1beta1, and of the versions of v1."""


def is_old(obj: Object) -> bool:
    return (obj.get("apiVersion"), obj.get("kind")) == (OLD_API_VERSION, KIND)


def to_v1(definition: Object) -> Object:
    """Return a definition in v1. KeyError, TypeError: it is malformed."""
    spec = dict(definition["spec"])
    single = spec.pop("version", None)
    versions = [dict(version) for version in spec.pop("versions", None) or ()]
    if not versions and single:
        versions = [{"name": single, "served": True, "storage": True}]
    for name, of_version in _SHARED:
        if (shared := spec.pop(name, None)) is not None:
            for version in versions:
                version[of_version] = copy_object(shared)
    for version in versions:
        if columns := version.get("additionalPrinterColumns"):
            version["additionalPrinterColumns"] = [_column(column) for column in columns]
    spec["versions"] = versions
    if "conversion" in spec:
        spec["conversion"] = _conversion(spec["conversion"])
    if not spec.get("preserveUnknownFields", True):
        del spec["preserveUnknownFields"]
    else:
        spec["preserveUnknownFields"] = True
    return {**definition, "apiVersion": API_VERSION, "spec": spec}


def _column(column: dict[str, Any]) -> dict[str, Any]:
    return {"jsonPath" if name == "JSONPath" else name: value for name, value in column.items()}


def _conversion(conversion: dict[str, Any]) -> dict[str, Any]:
    converted = dict(conversion)
    client, versions = converted.pop("webhookClientConfig", None), converted.pop("conversionReviewVersions", None)
    if client is not None or versions is not None:
        converted["webhook"] = {
            name: value
            for name, value in (("clientConfig", client), ("conversionReviewVersions", versions))
            if value is not None
        }
    return converted


# -- storage form ------------------------------------------------------------------------------------------------------

DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"
EVENTS: Final = "events"
_Encode: TypeAlias = Callable[[Object], bytes]
EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)


class NotStorable(Exception):
    """The object cannot be stored; the message says why."""


class StoredForm(NamedTuple):
    """An object as it is stored.

    ``at``: the time of its last change, as far as the object tells.
    ``manager``: the field manager of that change.
    """

    key: Key
    uid: str
    body: bytes
    at: datetime
    manager: str


@dataclass(slots=True)
class StorageForm:
    """The kinds of one import: the built-in ones, and those of its definitions.

    ``custom``: resource and whether it is namespaced, by group and kind.
    """

    custom: dict[tuple[str, str], tuple[str, bool]] = field(default_factory=dict)

    def define(self, definition: Mapping[str, Any]) -> None:
        """Add the kind of a CustomResourceDefinition."""
        spec = definition["spec"]
        resource = f"{spec['names']['plural']}.{spec['group']}"
        self.custom[spec["group"], spec["names"]["kind"]] = (resource, spec["scope"] == "Namespaced")

    def stored(self, obj: Object) -> StoredForm:
        """Return an object as it is stored. NotStorable."""
        metadata = obj.get("metadata")
        if not isinstance(metadata, dict) or not metadata.get("name"):
            raise NotStorable("it has no name")
        api_version, kind = str(obj.get("apiVersion", "")), str(obj.get("kind", ""))
        resource, namespaced, obj, encode = self._placed(obj, api_version, kind)
        namespace = str(metadata.get("namespace") or "")
        if namespaced != bool(namespace):
            raise NotStorable("it has no namespace" if namespaced else "it has a namespace, but its kind has none")
        metadata = obj["metadata"]
        if not metadata.get("uid"):
            raise NotStorable("it has no uid")
        at, manager = last_change(metadata)
        key = Key(resource, namespace, str(metadata["name"]))
        return StoredForm(key, str(metadata["uid"]), encode(obj), at, manager)

    def _placed(self, obj: Object, api_version: str, kind: str) -> tuple[str, bool, Object, _Encode]:
        """Return (resource, whether it is namespaced, the object in the stored version, the encoder of its kind)."""
        rt = known_registry().by_api_version(api_version, kind)
        if rt is not None and rt.stored:
            return rt.resource, rt.namespaced, _in_stored_version(rt, obj), encode_stored
        custom = self.custom.get((api_version.rpartition("/")[0], kind))
        if custom is None:
            raise NotStorable(f"no kind {kind} of {api_version} is known, and no definition describes it")
        return *custom, obj, encode_custom


def decode(value: bytes) -> Object:
    """Return the object of a decrypted value; a definition of v1beta1 in the form of v1. NotStorable."""
    try:
        decode_value = protobuf.decode if value.startswith(protobuf.PREFIX) else _decode_json
        obj = decode_value(value)
        return to_v1(obj) if is_old(obj) else obj
    except (CodecError, KeyError, TypeError) as error:
        raise NotStorable(f"its value cannot be decoded: {error}") from None


def _decode_json(value: bytes) -> Object:
    return json.as_object(json.decode_value(value)[0])


def _in_stored_version(rt: ResourceType, obj: Object) -> Object:
    try:
        own = types.object_type(rt.definition)
        check.check(obj, own)
        converted = conversion.convert(obj, rt.storage_api_version)
    except (check.TypeMismatch, LookupError) as error:
        raise NotStorable(str(error)) from None
    storage = known_registry().storage(rt.resource)
    assert storage is not None, f"{rt.resource} is stored"
    conversion.apply(converted, types.object_type(storage.definition))
    return converted


def last_change(metadata: Mapping[str, Any]) -> tuple[datetime, str]:
    """Return the newest time that the API server has written into an object, and the field manager of that time."""
    newest, manager = _time(metadata.get("creationTimestamp")), ""
    for entry in metadata.get("managedFields") or ():
        if isinstance(entry, dict) and (at := _time(entry.get("time"))) >= newest:
            newest, manager = at, str(entry.get("manager", ""))
    return newest, manager


def _time(text: Any) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return EARLIEST
