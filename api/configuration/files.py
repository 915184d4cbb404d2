"""Configuration files of the API server (group apiserver.config.k8s.io), decoded as strictly as kube-apiserver does.

An unknown field, a key set twice and a value of a wrong type are errors, in the words of k8s.io/apimachinery. The
record's annotations (structuring.py) are the schema; its class name, or its ``GO_NAME``, is the Go type's name, which
errors show:

    decode(data, AuthorizationConfiguration, versions=("v1", "v1beta1"))  # apiVersion and kind are checked, not kept
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar, get_args, get_origin

from kubechronicle.api.codecs import json as json_codec
from kubechronicle.api.codecs import yaml as yaml_codec
from kubechronicle.api.codecs.errors import CodecError
from kubechronicle.api.configuration.structuring import Duration, StructureError, fields_of, structure
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.pipeline import bodies
from kubechronicle.api.schema import check
from kubechronicle.api.schema.types import AnyType, Field, ListType, MapType, ObjectType, Scalar, Type

GROUP: Final = "apiserver.config.k8s.io"
KINDS: Final = frozenset(
    f"{subject}Configuration"
    for subject in ("Admission", "Authentication", "Authorization", "EgressSelector", "Encryption", "Tracing")
)
"""The kinds of the group. The error for one of them in the wrong place differs from the error for an unknown kind."""

T = TypeVar("T")

_TEXT: Final = Scalar("string", "string")
_SCALARS: Final[Mapping[Any, Type]] = {
    str: _TEXT,
    Duration: _TEXT,
    bool: Scalar("boolean", "bool"),
    int: Scalar("int32", "int32"),
    bytes: Scalar("bytes", "[]uint8"),
    object: AnyType("runtime.Unknown", deduced=False),
}


class ConfigFileError(ValueError):
    """The file is not one of the kind wanted. The message may have several lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeMeta:
    """The kind of a file, "" where it names none. The codecs have checked that both are text."""

    api_version: str = ""
    kind: str = ""


def decode(
    data: bytes,
    record: type[T],
    versions: Collection[str],
    *,
    group: str = GROUP,
    kinds: Callable[[tuple[str, str]], bool] = lambda kind: kind[1] in KINDS,
    former: str = "",
) -> T:
    """Return the content of a YAML or JSON file whose kind is the record's name.

    ``versions``: the versions of the group that are allowed (``v1``…).
    ``kinds``: tells whether the group has a kind in a version, given as a pair (version, kind).
    ``former``: the apiVersion of the record in a group that it has left.
    Raises ConfigFileError.
    """
    if not data:
        raise ConfigFileError("empty config data")
    try:
        if data.lstrip().startswith(b"{"):
            value, decoder_problems = json_codec.decode(data, strict=True)
        else:
            value, decoder_problems = yaml_codec.decode(data, strict=True)
    except CodecError as error:
        raise ConfigFileError(str(error)) from None
    schema = schema_of_file(record)
    meta = structure(value, TypeMeta, unknown_allowed=True)
    version = meta.api_version.removeprefix(f"{group}/")
    is_known = version != meta.api_version and version in versions and kinds((version, meta.kind))
    is_former = bool(former) and (meta.api_version, meta.kind) == (former, schema.go_name)
    _check_kind(meta, schema.go_name, is_known=is_known or is_former)
    value, problems = bodies.with_repeated_keys(value, schema, decoder_problems)
    try:
        unknown = check.check(value, schema)
    except check.TypeMismatch as error:
        raise ConfigFileError(str(error)) from None
    if texts := bodies.strict_texts(problems, unknown):
        raise ConfigFileError(f"strict decoding error: {', '.join(texts)}")
    return structure_checked(value, record)


def decode_document(document: Any, record: type[T], kinds: Collection[tuple[str, str]]) -> T:
    """Return a document within another file as a record, as strictly as a file.

    ``kinds``: the pairs of apiVersion and kind that are allowed. Raises ConfigFileError.
    """
    if not isinstance(document, dict):
        raise ConfigFileError("must be an object")
    schema = schema_of_file(record)
    try:
        unknown = check.check(document, schema)
    except check.TypeMismatch as error:
        raise ConfigFileError(str(error)) from None
    version, kind = document.get("apiVersion") or "", document.get("kind") or ""
    if not kind:
        raise ConfigFileError("Object 'Kind' is missing in the file")
    if not version:
        raise ConfigFileError("Object 'apiVersion' is missing in the file")
    if (version, kind) not in kinds:
        raise ConfigFileError(f"no kind {go_quote(kind)} is registered for version {go_quote(version)}")
    if texts := bodies.strict_texts([], unknown):
        raise ConfigFileError(f"strict decoding error: {', '.join(texts)}")
    return structure_checked(document, record)


def structure_checked(value: Mapping[str, Any], record: type[T]) -> T:
    """Return a document that passed its schema as a record.

    Only durations can still be wrong. As in Go, the error is the text of the first, without its path. Raises
    ConfigFileError.
    """
    try:
        return structure(value, record, unknown_allowed=True)  # apiVersion and kind
    except StructureError as error:
        raise ConfigFileError(error.problems[0].text) from None


def schema_of_file(record: type) -> ObjectType:
    """Return the schema of a file's outermost object: the record's fields, apiVersion and kind."""
    return _object(record, apiVersion=_TEXT, kind=_TEXT)


def _object(record: type, **more: Type) -> ObjectType:
    schema = ObjectType(f"io.k8s.apiserver.pkg.apis.apiserver.v1.{getattr(record, 'GO_NAME', record.__name__)}")
    schema.fields = {
        key: Field(key, kind, keep_zero=True, null_stays=False, strategies=())
        for key, kind in {**more, **{field.key: _type(field.type) for field in fields_of(record)}}.items()
    }
    schema.always = ()
    return schema


def _type(annotation: Any) -> Type:
    if get_origin(annotation) is tuple:
        item = _type(get_args(annotation)[0])
        return ListType(item, f"[]{item.go_type}")
    if get_origin(annotation) is Mapping:
        value = _type(get_args(annotation)[1])
        return MapType(value, f"map[string]{value.go_type}", atomic=False)
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        return _object(annotation)
    return _SCALARS[annotation]


def _check_kind(meta: TypeMeta, wanted: str, *, is_known: bool) -> None:
    """Raise ConfigFileError if the file is of another kind or version, or names neither."""
    if not meta.kind:
        raise ConfigFileError("Object 'Kind' is missing in the file")
    if not meta.api_version:
        raise ConfigFileError("Object 'apiVersion' is missing in the file")
    if not is_known:
        raise ConfigFileError(f"no kind {go_quote(meta.kind)} is registered for version {go_quote(meta.api_version)}")
    if meta.kind != wanted:
        raise ConfigFileError(f"expected {wanted}, got *apiserver.{meta.kind}")
