"""ConversionReviews: the request to a definition's conversion webhook, and the objects in its answer.

Of the metadata, a webhook may change labels and annotations; another name, namespace or uid is an error, and all else
is restored. Source: apiextensions-apiserver ``pkg/apiserver/conversion/webhook_converter.go``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from kubechronicle.api.codecs import unstructured
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta import metadata
from kubechronicle.api.values.objects import Object, ReadOnlyObject

GROUP: Final = "apiextensions.k8s.io"
KIND: Final = "ConversionReview"
VERSIONS: Final = ("v1", "v1beta1")
_REVIEWS: Final = frozenset(f"{GROUP}/{version}" for version in VERSIONS)
_CHANGEABLE: Final = ("labels", "annotations")
_CONSTANT: Final = (("name", "name"), ("namespace", "namespace"), ("UID", "uid"))


class WebhookConversionFailed(StatusError):
    """500 without a reason: a webhook has not converted an object."""


def failed(obj: ReadOnlyObject, why: str) -> WebhookConversionFailed:
    """Return the error of a conversion of ``obj``. ``why``: the words after the kind."""
    group, _, version = str(obj["apiVersion"]).rpartition("/")
    return WebhookConversionFailed(500, "", f"conversion webhook for {group}/{version}, Kind={obj['kind']} {why}")


def review(objects: Sequence[Object], api_version: str, *, uid: str, versions: Sequence[str]) -> Object:
    """Return the review that asks for objects in another version, which share its parts.

    ``versions``: spec.conversion.webhook.conversionReviewVersions. StatusError 500 if none of them is known.
    """
    version = next((version for version in versions if version in VERSIONS), None)
    if version is None:
        raise status.unknown("no supported conversion review versions")
    return {
        "kind": KIND,
        "apiVersion": f"{GROUP}/{version}",
        "request": {"uid": uid, "desiredAPIVersion": api_version, "objects": [_as_stored(obj) for obj in objects]},
        "response": {"uid": "", "convertedObjects": None, "result": {"metadata": {}}},
    }


def encoded(asked: Object) -> bytes:
    """Return the JSON of a review to send: its objects have sorted keys, as in kube-apiserver."""
    request = asked["request"]
    objects = [orjson.Fragment(unstructured.encode(obj)) for obj in request["objects"]]
    return orjson.dumps({**asked, "request": {**request, "objects": objects}})


def _as_stored(obj: Object) -> Object:
    """Return an object without its resourceVersion, which is no part of the stored form."""
    meta = obj.get("metadata")
    if not isinstance(meta, Mapping) or "resourceVersion" not in meta:
        return obj
    return {**obj, "metadata": {name: value for name, value in meta.items() if name != "resourceVersion"}}


def converted(answer: Any, objects: Sequence[Object], api_version: str, *, asked: Object) -> list[Object]:
    """Return the converted objects, in order, with the metadata of ``objects``. StatusError 500.

    ``answer``: the decoded body. ``asked``: the review that was sent.
    """
    first = objects[0]
    found = _results(answer, first, asked)
    if len(found) != len(objects):
        raise failed(first, f"returned {len(found)} objects, expected {len(objects)}")
    several = len(objects) > 1
    return [
        _checked(obj, result, api_version, index, several=several)
        for index, (obj, result) in enumerate(zip(objects, found, strict=True))
    ]


def _results(answer: Any, first: Object, asked: Object) -> list[Any]:
    api_version = asked["apiVersion"]
    if answer is None:
        answer = {}
    if not isinstance(answer, Mapping):
        raise failed(first, "failed: " + _no_object(answer))
    why = _not_the_review(answer.get("kind") or "", answer.get("apiVersion") or "", api_version)
    if why:
        raise failed(first, f"failed: {why}")
    response = answer.get("response")
    if response is None:
        raise failed(first, "failed: no response provided")
    if not isinstance(response, Mapping):
        raise failed(first, f"failed: {_wrong_type(response, 'response', 'v1.ConversionResponse')}")
    uid = asked["request"]["uid"]
    given = response.get("uid") or ""
    if api_version.endswith("/v1") and given != uid:
        raise failed(first, f"failed: expected response.uid={go_quote(uid)}, got {go_quote(str(given))}")
    result = response.get("result")
    result = result if isinstance(result, Mapping) else {}
    if result.get("status") != "Success":
        message = result.get("message")
        shown = message or f"response.result.status was '{result.get('status') or ''}', not 'Success'"
        raise failed(first, f"failed: {shown}")
    objects = response.get("convertedObjects")
    if objects is not None and not isinstance(objects, list):
        raise failed(first, f"failed: {_wrong_type(objects, 'response.convertedObjects', '[]runtime.RawExtension')}")
    return objects or []


def _not_the_review(kind: str, version: str, wanted: str) -> str:
    """Return the reason why an answer of this kind and version is no review of the wanted version, empty if it is one.

    A missing kind or version is decoded as the wanted one. A review of version v1 must name both all the same.
    """
    if (kind or KIND) != KIND or (version or wanted) not in _REVIEWS:
        kind, version = kind or KIND, version or wanted
        return f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
    if (version or wanted) != wanted:
        given, into = version.rpartition("/")[2], wanted.rpartition("/")[2]
        return f"converting ({given}.{KIND}) to ({into}.{KIND}): unknown conversion"
    if wanted.endswith("/v1") and not (kind and version):
        return f"expected webhook response of {wanted}, Kind={KIND}, got {version or '/'}, Kind={kind}"
    return ""


def _no_object(value: Any) -> str:
    return (
        f"couldn't get version/kind; json parse error: json: cannot unmarshal {_json_type(value)} into Go value of "
        'type struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
    )


def _wrong_type(value: Any, path: str, go_type: str) -> str:
    return f"json: cannot unmarshal {_json_type(value)} into Go struct field ConversionReview.{path} of type {go_type}"


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return {str: "string", int: "number", float: "number", list: "array"}.get(type(value), "object")


def _checked(obj: Object, result: Any, api_version: str, index: int, *, several: bool) -> Object:
    """Return a converted object with the metadata of the original. StatusError 500."""
    place = f"converted object at index {index}" if several else "object at index 0"
    if not isinstance(result, Mapping) or not isinstance(result.get("kind"), str) or not result["kind"]:
        why = _no_resource(result)
        raise failed(obj, f"returned invalid {place}: {why}") if several else status.unknown(why)
    version = str(result.get("apiVersion") or "")
    if version != api_version:
        raise failed(
            obj, f"returned invalid {place}: invalid groupVersion (expected {api_version}, received {version})"
        )
    if result["kind"] != obj["kind"]:
        why = f"invalid kind (expected {obj['kind']}, received {result['kind']})"
        raise failed(obj, f"returned invalid {place}: {why}")
    meta, held = result.get("metadata"), obj.get("metadata") or {}
    for shown, name in _CONSTANT:
        given = _text(meta, name)
        if given != _text(held, name):
            at = place if several else "object"
            raise failed(obj, f"returned invalid {at}: must have the same {shown}: {_text(held, name)} != {given}")
    try:
        restored = _restored(meta, held)
    except ValueError as error:
        at = f"metadata in object at index {index}" if several else "metadata"
        raise failed(obj, f"returned invalid {at}: {error}") from None
    return {**result, "metadata": restored}


def _no_resource(value: Any) -> str:
    """Return the reason why a converted object can't be decoded. Its text is not shown as the webhook spaced it."""
    if value is None or isinstance(value, Mapping):
        return f"Object 'Kind' is missing in '{orjson.dumps(value).decode()}'"
    return f"json: cannot unmarshal {_json_type(value)} into Go value of type map[string]interface {{}}"


def _text(meta: Any, name: str) -> str:
    value = meta.get(name) if isinstance(meta, Mapping) else None
    return value if isinstance(value, str) else ""


def _restored(meta: Any, held: ReadOnlyObject) -> Object:
    """Return the original metadata with the labels and annotations of the answer. ValueError."""
    if meta is None:
        raise ValueError("missing metadata in converted object")
    if not isinstance(meta, Mapping):
        raise ValueError(f"invalid metadata of type {_go_type(meta)} in converted object")
    restored = {name: value for name, value in held.items() if name not in _CHANGEABLE}
    for name in _CHANGEABLE:
        texts = meta.get(name)
        if texts is None:
            continue
        if not isinstance(texts, Mapping):
            raise ValueError(f"invalid metadata.{name} of type {_go_type(texts)} in converted object")
        for key, value in texts.items():
            if not isinstance(value, str):
                shown = f"metadata.{name}[{key}]"
                raise ValueError(f"{shown} must be a string, but is {_go_type(value)} in converted object")
        if texts != (held.get(name) or {}):
            _check_texts(name, texts)
        restored[name] = dict(texts)
    return restored


def _check_texts(name: str, texts: Mapping[str, str]) -> None:
    if name == "labels":
        causes = metadata.validate_labels(texts, "metadata.labels")
    else:
        causes = metadata.validate_annotations(texts, "metadata.annotation")
    if causes:
        shown = [str(cause) for cause in causes]
        raise ValueError(shown[0] if len(shown) == 1 else f"[{', '.join(dict.fromkeys(shown))}]")


def _go_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return {
        str: "string", int: "int64", float: "float64", list: "[]interface {}", dict: "map[string]interface {}",
    }.get(type(value), "<nil>")  # fmt: skip
