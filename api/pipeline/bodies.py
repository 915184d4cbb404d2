"""From a decoded request body to an object of the resource's type, with the rejections of Kubernetes' decoder.

Lives here: apiVersion and kind, the schema check with its warnings, defaulting. Not here: names and namespaces, which
come from the URL, and the rules of writes (pipeline.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from kubechronicle.api.codecs import json, yaml
from kubechronicle.api.codecs.errors import MAX_COMPLAINTS, Complaints
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import go_quote, invalid_value
from kubechronicle.api.pipeline import body_types, conversion
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.schema import check, equality, repeated_keys, types, unstructured
from kubechronicle.api.schema.empties import Empty
from kubechronicle.api.schema.values import json_word
from kubechronicle.api.values.objects import Object

SUMMARY_BYTES: Final = 30
"""Bytes of an unreadable body in its error."""

_TYPE_META: Final = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)


def unrecognized(rt: ResourceType, problem: str, raw: bytes) -> status.StatusError:
    """Return the 400 for an unreadable body. ``problem`` is the codec's text, ``raw`` the body."""
    return status.bad_request(f"{body_types.unrecognized_as(rt)}{problem} ({summarize(raw)})")


def summarize(raw: bytes) -> str:
    """Return the beginning of a body as errors show it: text if it looks like JSON, hexadecimal otherwise."""
    if not raw:
        return "<empty>"
    more = " ..." if len(raw) > SUMMARY_BYTES else ""
    head = raw[:SUMMARY_BYTES]
    return (head.decode("utf-8", "replace") if raw.startswith(b"{") else head.hex()) + more


def not_an_object(value: Any) -> str:
    """Return the problem of a body that is JSON, but not an object."""
    return (
        "couldn't get version/kind; json parse error: json: cannot unmarshal "
        f"{json_word(value)} into Go value of type {_TYPE_META}"
    )


def strict_texts(duplicates: Sequence[str], unknown: Sequence[str]) -> list[str]:
    """Return the complaints of strict decoding: sentences about repeated keys, and the paths of unknown fields."""
    texts = [*duplicates, *(f"unknown field {go_quote(path)}" for path in unknown[:MAX_COMPLAINTS])]
    return texts[:MAX_COMPLAINTS]


def with_repeated_keys(
    obj: Object, kind: types.ObjectType | None, duplicates: Sequence[str]
) -> tuple[Object, Sequence[str]]:
    """Return an object as Go decodes it if keys of its document are repeated, and the complaints in their order."""
    if isinstance(duplicates, Complaints) and duplicates.document is not None and kind is not None:
        return repeated_keys.read(duplicates.document, kind)
    return obj, duplicates


_STEP: Final = re.compile(r"\[(\d+)\]|([^.\[]+)")


def _sorted(paths: list[str]) -> list[str]:
    """Return paths of fields in the order of a document with sorted keys."""
    if len(paths) < 2:
        return paths
    return sorted(paths, key=lambda path: [(int(step[1] or 0), step[2] or "") for step in _STEP.finditer(path)])


def as_warnings(texts: Sequence[str], validation: str) -> list[str]:
    """Return complaints as warnings. One error of YAML about several keys is one warning for each key."""
    if validation == "Ignore":
        return []
    lines: list[str] = []
    for text in texts:
        lines += map(str.strip, text.split("\n")[1:]) if text.startswith(yaml.SEVERAL) else [text]
    return lines


def kind_type(rt: ResourceType) -> types.ObjectType | None:
    """Return the structural type of a resource's objects, None for kinds without one."""
    if rt.definition:
        return types.object_type(rt.definition)
    kind: types.ObjectType | None = None if rt.custom is None else rt.custom.kind_type
    return kind


def decode(
    rt: ResourceType,
    obj: Object,
    *,
    duplicates: Sequence[str] = (),
    validation: str = "Warn",
    empties: list[Empty] | None = None,
) -> tuple[Object, list[str]]:
    """Check and default a request's object, in place; return it and the warnings. 400 if it cannot be decoded.

    ``validation`` is Strict (complaints are errors), Warn or Ignore. ``empties`` receives the empty lists and maps.
    """
    kind = kind_type(rt)
    sentences: Sequence[str] = duplicates
    if duplicates:
        try:
            obj, sentences = with_repeated_keys(obj, kind, duplicates)
        except check.TypeMismatch as error:
            raise cannot_be_handled(rt, str(error)) from None
    body_types.set_type(rt, obj)
    unknown: list[str] = []
    if kind is not None:
        _mark_reset(obj)
        try:
            unknown = check.check(obj, kind, empties)
            conversion.apply(obj, kind)
        except check.TypeMismatch as error:
            raise cannot_be_handled(rt, _shown_mismatch(rt, error, duplicates, kind)) from None
    keys_sorted = isinstance(duplicates, Complaints) and duplicates.keys_sorted
    if keys_sorted and rt.definition:
        equality.encode_again(obj, rt.definition)
    if not unknown and not sentences:
        return obj, []
    if keys_sorted:
        unknown = _sorted(unknown)
    if isinstance(duplicates, Complaints) and duplicates.cbor:
        from kubechronicle.api.pipeline import cbor_bodies  # only with the feature gate of CBOR

        texts = [cbor_bodies.unknown_field(duplicates.source, unknown)]
    else:
        texts = strict_texts(sentences, unknown)
    if validation == "Strict":
        raise cannot_be_handled(rt, f"strict decoding error: {', '.join(texts)}")
    return obj, as_warnings(texts, validation)


def _shown_mismatch(
    rt: ResourceType, error: check.TypeMismatch, duplicates: Sequence[str], kind: types.ObjectType
) -> str:
    """Return the error as it reads for the document that had it."""
    if not isinstance(duplicates, Complaints):
        return str(error)
    if duplicates.cbor:
        from kubechronicle.api.pipeline import cbor_bodies  # only with the feature gate of CBOR

        return cbor_bodies.wrong_type(rt, str(error), duplicates.source)
    return _as_written(error, duplicates.source if "number" in str(error) else b"", kind)


def _as_written(error: check.TypeMismatch, source: bytes | str, kind: types.ObjectType) -> str:
    """Return the error as it reads for the text of the document: with its numbers as written, and in its order."""
    if source:
        try:
            check.check(json.loads_as_written(source), kind)
        except check.TypeMismatch as exact:
            return str(exact)
        except (ValueError, RecursionError):
            pass
    return str(error)


def _in_order_of_text(rt: ResourceType, text: str, unknown: list[str]) -> list[str]:
    """Return the paths of unknown fields in the order of the printed object."""
    kind = kind_type(rt)
    try:
        return unknown if kind is None else check.check(json.loads_as_written(text), kind)
    except (ValueError, RecursionError):
        return _sorted(unknown)


def _mark_reset(obj: Object) -> None:
    """Replace an empty list of managedFields by ``[{}]``, which resets them as well: empty lists are dropped later."""
    meta = obj.get("metadata")
    if meta.__class__ is dict and meta.get("managedFields") == []:
        meta["managedFields"] = [{}]


def cannot_be_handled(rt: ResourceType, why: str) -> status.StatusError:
    """Return the 400 for a body that cannot be decoded."""
    return status.bad_request(f"{rt.kind} in version {go_quote(rt.version)} cannot be handled as a {rt.kind}: {why}")


_DELETE_OPTIONS: Final = types.META + "DeleteOptions"


def decode_delete_options(obj: Any) -> Object:
    """Return the decoded body of a DELETE, of the right kind and types, for options.parse_delete_options. 400."""
    if not isinstance(obj, dict):
        raise status.bad_request(not_an_object(obj))
    api_version, kind = obj.get("apiVersion") or "meta.k8s.io/v1", obj.get("kind") or "DeleteOptions"
    if kind != "DeleteOptions":
        raise status.bad_request(
            f"no kind {go_quote(str(kind))} is registered for version {go_quote(str(api_version))} "
            'in scheme "pkg/apis/meta/internalversion/scheme/register.go:27"'
        )
    try:
        check.check(obj, types.object_type(_DELETE_OPTIONS))
    except check.TypeMismatch as error:
        raise status.bad_request(str(error)) from None
    return obj


def patch_refused(shown: Callable[[], str], why: str) -> status.StatusError:
    """Return the 422 on the field ``patch``, with the value ``shown``."""
    return status.invalid("", "", "", [invalid_value("patch", shown(), why)])


def decode_patched(
    rt: ResourceType,
    obj: Any,
    *,
    shown: Callable[[], str],
    validation: str,
    complaints: Sequence[str] = (),
    empties: list[Empty] | None = None,
) -> list[str]:
    """Check and default a patched object, in place; return the warnings. ``empties`` receives empty lists and maps.

    422 on the field ``patch``, with the value ``shown``, if the result cannot be decoded.
    """

    refused = partial(patch_refused, shown)
    if not isinstance(obj, dict):
        raise refused(not_an_object(obj))
    if obj.get("apiVersion") in (None, ""):
        return _decode_without_version(rt, obj, refused, validation=validation, complaints=complaints)
    _set_patched_type(rt, obj, refused)
    try:
        unknown = _checked(rt, obj, check.check, empties)
    except check.TypeMismatch as error:
        kind = kind_type(rt)
        raise refused(str(error) if kind is None else _as_written(error, shown(), kind)) from None
    if len(unknown) > 1:
        unknown = _in_order_of_text(rt, shown(), unknown)
    texts = [*complaints, *strict_texts((), unknown)]
    if texts and validation == "Strict":
        raise refused(f"strict decoding error: {', '.join(texts)}")
    return as_warnings(texts, validation)


def _set_patched_type(rt: ResourceType, obj: Object, refused: Callable[[str], status.StatusError]) -> None:
    """Do as ``set_type`` for a patched object, whose errors say only why."""
    try:
        body_types.set_type(rt, obj)
    except status.StatusError as error:
        kind = obj.get("kind") or rt.kind
        why = error.message.removeprefix(body_types.unrecognized_as(rt))
        if why.startswith(f"{kind} in version "):
            why = body_types.why_not(rt, obj["apiVersion"], kind)
        raise refused(why) from None


def _decode_without_version(
    rt: ResourceType,
    obj: Object,
    refused: Callable[[str], status.StatusError],
    *,
    validation: str,
    complaints: Sequence[str],
) -> list[str]:
    """Do as kube-apiserver does with a patched object without a version: it knows none of its fields.

    It decodes such an object into its internal type, whose fields have other names. So all of them are lost.
    """
    kind = obj.get("kind")
    if kind is not None and not isinstance(kind, str):
        raise refused(body_types.not_a_text("kind", kind))
    if kind and kind != rt.kind:
        raise refused(body_types.why_not_internal(rt, kind))
    unknown = sorted(name for name in obj if name not in ("apiVersion", "kind"))
    obj.clear()
    obj.update({"apiVersion": rt.api_version, "kind": rt.kind, "metadata": {}})
    texts = [*complaints, *strict_texts((), unknown)]
    if texts and validation == "Strict":
        raise refused(f"strict decoding error: {', '.join(texts)}")
    return as_warnings(texts, validation)


def convert_patched(
    rt: ResourceType,
    obj: Object,
    *,
    shown: Callable[[], str],
    validation: str,
    complaints: Sequence[str] = (),
    empties: list[Empty] | None = None,
) -> list[str]:
    """Do as ``decode_patched``, for the result of a strategic patch: it is converted, not decoded.

    So its apiVersion and kind are ignored, and wrong types have other errors.
    """

    refused = partial(patch_refused, shown)
    for name in ("apiVersion", "kind"):
        if not isinstance(obj.get(name, ""), str | None):
            raise refused("cannot convert int64 to string" if type(obj[name]) is int else "unrecognized type: string")
    obj["apiVersion"], obj["kind"] = rt.api_version, rt.kind
    try:
        unknown = _checked(rt, obj, unstructured.check_converted, empties)
    except check.ConversionFailed as error:
        raise status.unknown(str(error)) from None
    except (check.TypeMismatch, unstructured.ConversionError) as error:
        raise refused(str(error)) from None
    texts = [*complaints, *sorted(f'unknown field "{path}"' for path in unknown)]
    if texts and validation == "Strict":
        raise refused(f"strict decoding error: {', '.join(texts)}")
    return as_warnings(texts, validation)


_Checked = Callable[[Object, types.ObjectType, list[Empty] | None], list[str]]


def _checked(rt: ResourceType, obj: Object, checked: _Checked, empties: list[Empty] | None) -> list[str]:
    """Check an object against its type and default it, in place. Return the paths of its unknown fields."""
    kind = kind_type(rt)
    if kind is None:
        return []
    _mark_reset(obj)
    unknown = checked(obj, kind, empties)
    conversion.apply(obj, kind)
    return unknown
