"""From a decoded request body to a custom object, with the rejections of kube-apiserver's decoder for such objects.

After apiextensions-apiserver ``pkg/apiserver/customresource_handler.go`` (unstructuredNegotiatedSerializer). An object
is cleaned and defaulted by the schema of its own version. One of another kind stays as it is: the checks refuse it.
Numbers keep their form until the object is stored: 1.0 is a change of 1, but both are stored as 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kubechronicle.api.codecs.errors import Complaints
from kubechronicle.api.custom import numbers
from kubechronicle.api.custom.schema.defaults import TooManyDefaultsError
from kubechronicle.api.custom.schema.embedded import MalformedError, coerce_root
from kubechronicle.api.custom.version import CustomVersion
from kubechronicle.api.errors import status
from kubechronicle.api.pipeline import bodies, body_types
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.schema import repeated_keys
from kubechronicle.api.values.objects import Object


def decode(
    rt: ResourceType, obj: Object, *, duplicates: Sequence[str], validation: str, raw: bytes
) -> tuple[Object, list[str]]:
    """Clean and default the object of a body, in place; return it and the warnings. 400 if it cannot be decoded.

    ``duplicates``, ``validation``: as for bodies.decode. ``raw``: the body.
    """
    if isinstance(duplicates, Complaints) and duplicates.document is not None:
        obj = numbers.as_decoded(repeated_keys.plain(duplicates.document))
    elif not (isinstance(duplicates, Complaints) and duplicates.small_integers):
        obj = numbers.as_decoded(obj)
    match_type(rt, obj, raw)
    api_version = obj.get("apiVersion") or ""
    if api_version != rt.api_version:
        raise status.bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version ({rt.api_version})"
        )
    texts = bodies.strict_texts(duplicates, _unknown_fields(rt, obj, lambda why: bodies.cannot_be_handled(rt, why)))
    if texts and validation == "Strict":
        raise bodies.cannot_be_handled(rt, f"strict decoding error: {', '.join(texts)}")
    return obj, bodies.as_warnings(texts, validation)


def match_type(rt: ResourceType, obj: Object, raw: bytes) -> None:
    """Check that the object of a body has a kind and a readable apiVersion. 400 otherwise, which shows the body."""
    problem = _type_problem(obj, lambda: raw.decode("utf-8", "replace"))
    api_version = "" if problem else obj.get("apiVersion") or ""
    if api_version.count("/") > 1:
        problem = f"unexpected GroupVersion string: {api_version}"
    if problem:
        raise bodies.unrecognized(rt, problem, raw)


def decode_patched(
    rt: ResourceType, obj: Any, *, shown: Callable[[], str], validation: str, complaints: Sequence[str] = ()
) -> tuple[Object, list[str]]:
    """Clean and default a patched object, in place; return it and the warnings.

    422 on the field ``patch``, with the value ``shown``, if the result cannot be decoded.
    """

    refused = partial(bodies.patch_refused, shown)
    if not isinstance(obj, dict):
        raise refused(bodies.not_an_object(obj))
    obj = numbers.as_decoded(obj)
    problem = _type_problem(obj, shown)
    if problem:
        raise refused(problem)
    api_version = obj.get("apiVersion")
    if not api_version:
        raise status.internal_error("Object 'apiVersion' is missing in 'object has no apiVersion field'")
    if api_version.count("/") > 1:
        raise refused(f"unexpected GroupVersion string: {api_version}")
    texts = bodies.strict_texts(complaints, _unknown_fields(rt, obj, refused))
    if texts and validation == "Strict":
        raise refused(f"strict decoding error: {', '.join(texts)}")
    return obj, bodies.as_warnings(texts, validation)


def _type_problem(obj: Object, shown: Callable[[], str]) -> str:
    for name in ("apiVersion", "kind"):
        value = obj.get(name)
        if value is not None and not isinstance(value, str):
            return body_types.not_a_text(name, value)
    return "" if obj.get("kind") else f"Object 'Kind' is missing in '{shown()}'"


def _unknown_fields(rt: ResourceType, obj: Object, refused: Callable[[str], status.StatusError]) -> list[str]:
    """Clean and default an object. Return the paths of its unknown fields."""
    group, _, name = obj["apiVersion"].rpartition("/")
    known = group == rt.group and obj["kind"] == rt.kind
    own: CustomVersion | None = rt.custom.versions.get(name) if known else None
    try:
        if own is None:
            unknown = coerce_root(obj, drop_malformed=False)
            if known:  # but its version is not: then no field is
                unknown += sorted(obj.keys() - {"apiVersion", "kind", "metadata"})
        else:
            unknown = own.schema.settle(obj)
    except MalformedError as error:
        raise refused(str(error)) from None
    except TooManyDefaultsError as error:
        raise status.request_entity_too_large(str(error)) from None
    if obj.get("metadata") is None:
        obj["metadata"] = {}
    return unknown
