"""Configuration files of the API server (group apiserver.config.k8s.io), decoded as strictly as kube-apiserver does:
an unknown field, a key set twice and a value of a wrong type are errors, worded as k8s.io/apimachinery words them.

A kind of file is described by shapes, from the inside out:

    CONDITION = shape("AnonymousAuthCondition", path=TEXT)
    ANONYMOUS = shape("AnonymousAuthConfig", enabled=FLAG, conditions=items(CONDITION))

What comes out is the file's JSON value: nulls are gone, an empty text or list that was given stays.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from kubechronicle.api.codecs import json as json_codec
from kubechronicle.api.codecs import yaml as yaml_codec
from kubechronicle.api.codecs.errors import CodecError
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.pipeline import bodies
from kubechronicle.api.schema import check
from kubechronicle.api.schema.types import Field, ListType, ObjectType, Scalar, Type

GROUP: Final = "apiserver.config.k8s.io"
KINDS: Final = frozenset(
    f"{what}Configuration"
    for what in ("Admission", "Authentication", "Authorization", "EgressSelector", "Encryption", "Tracing")
)
"""The kinds of the group: one of them in the wrong place is told from a kind nobody knows."""

TEXT: Final = Scalar("string", "string")
FLAG: Final = Scalar("boolean", "bool")


class ConfigFileError(ValueError):
    """The file is not one of the kind wanted. The message may have several lines."""


def shape(name: str, /, **fields: Type) -> ObjectType:
    """An object with these fields; ``name`` is that of the Go type, which errors tell."""
    found = ObjectType(f"io.k8s.apiserver.pkg.apis.apiserver.v1.{name}")
    found.fields = {
        field: Field(field, kind, keep_zero=True, null_stays=False, strategies=()) for field, kind in fields.items()
    }
    found.always = ()
    return found


def items(item: Type) -> ListType:
    """A list of these."""
    return ListType(item, f"[]{item.go_type}", {})


def file_of(name: str, /, **fields: Type) -> ObjectType:
    """The outermost object of a file: its fields beside apiVersion and kind."""
    return shape(name, apiVersion=TEXT, kind=TEXT, **fields)


def decode(data: bytes, kind: ObjectType, versions: Collection[str]) -> dict[str, Any]:
    """The content of a file, YAML or JSON, of one of these versions (``v1``…). ConfigFileError."""
    if not data:
        raise ConfigFileError("empty config data")
    try:
        if data.lstrip().startswith(b"{"):
            value, complaints = json_codec.decode(data, strict=True)
        else:
            value, complaints = yaml_codec.decode(data, strict=True)
    except CodecError as error:
        raise ConfigFileError(str(error)) from None
    _check_type(value, kind.go_name, versions)
    try:
        unknown = check.check(value, kind)
    except check.TypeMismatch as error:
        raise ConfigFileError(str(error)) from None
    if texts := bodies.strict_texts(complaints, unknown):
        raise ConfigFileError(f"strict decoding error: {', '.join(texts)}")
    return value


def _check_type(value: dict[str, Any], wanted: str, versions: Collection[str]) -> None:
    """ConfigFileError: the file is of another kind or version, or does not say of which."""
    api_version, kind = value.get("apiVersion") or "", value.get("kind") or ""
    if not kind:
        raise ConfigFileError("Object 'Kind' is missing in the file")
    if not api_version:
        raise ConfigFileError("Object 'apiVersion' is missing in the file")
    group, _, version = api_version.rpartition("/")
    if group != GROUP or kind not in KINDS or version not in versions:
        raise ConfigFileError(f"no kind {go_quote(kind)} is registered for version {go_quote(api_version)}")
    if kind != wanted:
        raise ConfigFileError(f"expected {wanted}, got *apiserver.{kind}")
