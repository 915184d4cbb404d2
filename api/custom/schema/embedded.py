"""Type and metadata of the root and of embedded resources (x-kubernetes-embedded-resource): coercion and validation.

After apiextensions-apiserver ``pkg/apiserver/schema/objectmeta``. Coercion brings metadata into the form of an
ObjectMeta: unknown fields are removed and reported, ill-typed ones are refused, or dropped from stored objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubechronicle.api.custom.schema.failures import BoundedPaths, bad_value
from kubechronicle.api.custom.schema.structure import CONTAINERS, SchemaNode, Where, child, index, key, path_text
from kubechronicle.api.errors.field_errors import BoundedCauses, Cause, invalid_value, required
from kubechronicle.api.meta import metadata as object_meta
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.schema import check
from kubechronicle.api.schema.check import Mismatch, TypeMismatch
from kubechronicle.api.schema.types import META, ObjectType, object_type
from kubechronicle.api.schema.values import json_word
from kubechronicle.api.values import names


class MalformedError(ValueError):
    """Metadata, or a type of an embedded resource, that cannot be decoded. The text is kube-apiserver's."""


def coerce_root(obj: dict[str, Any], *, drop_malformed: bool) -> list[str]:
    """Bring the root's metadata into form. Return the paths of its unknown fields. MalformedError if ill-typed."""
    if "metadata" not in obj:
        return []
    try:
        return [f"metadata.{path}" for path in sorted(_coerce_metadata(obj, drop_malformed=drop_malformed))]
    except TypeMismatch as problem:
        raise MalformedError(str(problem)) from None


def coerce_embedded(obj: dict[str, Any], root: SchemaNode, *, drop_malformed: bool) -> list[str]:
    """Bring embedded resources into form, in place. Return the sorted paths of unknown fields of their metadata."""
    unknown = BoundedPaths()
    if root.deep_embedded:
        for value, where in _resources(obj, root, None):
            _coerce(value, where, unknown, drop_malformed=drop_malformed)
    return sorted(unknown.found)


def coerce_default(value: Any, node: SchemaNode) -> None:
    """Drop malformed and unknown metadata of embedded resources within a default, in place."""
    if node.deep_embedded and value.__class__ in CONTAINERS:
        unknown = BoundedPaths()
        for resource, where in _resources(value, node, None):
            _coerce(resource, where, unknown, drop_malformed=True)


def validate_embedded(obj: dict[str, Any], root: SchemaNode) -> list[Cause]:
    """Return the problems of the types and metadata of embedded resources."""
    causes = BoundedCauses()
    if root.deep_embedded:
        for value, where in _resources(obj, root, None):
            causes.extend(_validate(value, where))
            if causes.full:
                break
    return causes.found


def _resources(value: Any, node: SchemaNode, where: Where) -> Iterator[tuple[dict[str, Any], Where]]:
    """Return the embedded resources within a value, outer ones first. Their metadata may change meanwhile."""
    stack: list[tuple[Any, SchemaNode, Where]] = [(value, node, where)]
    while stack:
        value, node, where = stack.pop()
        if value.__class__ is dict:
            if node.embedded:
                yield value, where
            for name, item in reversed(value.items()):
                below = node.field(name)
                if below is not None and below.deep_embedded and item.__class__ in CONTAINERS:
                    stack.append((item, below, child(where, name) if name in node.properties else key(where, name)))
        elif node.items is not None and node.items.deep_embedded:
            items = node.items
            stack += [
                (value[position], items, index(where, position))
                for position in reversed(range(len(value)))
                if value[position].__class__ in CONTAINERS
            ]


def _coerce(value: dict[str, Any], where: Where, unknown: BoundedPaths, *, drop_malformed: bool) -> None:
    for name in ("apiVersion", "kind"):
        if name in value and not isinstance(value[name], str):
            if not drop_malformed:
                cause = invalid_value(path_text(child(where, name)), bad_value(value[name]), "must be a string")
                raise MalformedError(str(cause))
            del value[name]
    if "metadata" not in value:
        return
    kept = copy_object(value["metadata"])
    try:
        for name in _coerce_metadata(value, drop_malformed=drop_malformed):
            unknown.add(child(child(where, "metadata"), name))
    except TypeMismatch as problem:
        if not drop_malformed:
            path = path_text(child(where, "metadata"))
            raise MalformedError(str(invalid_value(path, bad_value(kept), str(problem)))) from None


def _coerce_metadata(obj: dict[str, Any], *, drop_malformed: bool) -> list[str]:
    """Bring ``metadata`` into form, and return the unknown fields. TypeMismatch if it is ill-typed."""
    kind = _object_meta()
    given = obj["metadata"]
    if given is None:
        obj["metadata"] = {}
        return []
    if not isinstance(given, dict):
        raise TypeMismatch(Mismatch(json_word(given), kind.go_type).text())
    if not drop_malformed:
        return check.check(given, kind)
    unknown: list[str] = []
    kept: dict[str, Any] = {}
    for name, item in given.items():
        single = {name: item}
        try:
            unknown += check.check(single, kind)
        except TypeMismatch:
            continue
        kept |= single
    obj["metadata"] = kept
    return unknown


def _object_meta() -> ObjectType:
    return object_type(f"{META}ObjectMeta")


def _validate(value: dict[str, Any], where: Where) -> Iterator[Cause]:
    for name, problem_of in (("apiVersion", _version_problem), ("kind", _kind_problem)):
        if name not in value:
            yield required(path_text(child(where, name)))
        elif not isinstance(value[name], str):
            yield invalid_value(path_text(child(where, name)), bad_value(value[name]), "must be a string")
        elif problem := problem_of(value[name]):
            yield invalid_value(path_text(child(where, name)), value[name], problem)
    if "metadata" in value:
        for cause in _validate_metadata(value["metadata"]):
            cause.field = path_text(child(where, cause.field))
            yield cause


def _version_problem(text: str) -> str:
    if not text:
        return "must not be empty"
    return f"unexpected GroupVersion string: {text}" if text.count("/") > 1 else ""


def _kind_problem(text: str) -> str:
    if not text:
        return "must not be empty"
    problems = names.dns_1035_label(text.lower())
    return f"may have mixed case, but should otherwise match: {','.join(problems)}" if problems else ""


def _validate_metadata(given: Any) -> list[Cause]:
    """Return the problems of metadata, with their fields below the resource."""
    holder = {"metadata": copy_object(given)}
    try:
        _coerce_metadata(holder, drop_malformed=False)
    except TypeMismatch as problem:
        return [invalid_value("metadata", bad_value(given), str(problem))]
    metadata = holder["metadata"]
    metadata["name"] = metadata.get("name") or "fakename"  # a name is not required
    return object_meta.validate(
        metadata, namespaced=bool(metadata.get("namespace")), name_check=names.segment_name, kube=False
    )
