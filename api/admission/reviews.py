"""AdmissionReviews: the request to a webhook, its answer, and what is wrong with an answer.

Sources: k8s.io/apiserver ``pkg/admission/plugin/webhook/request``, ``…/webhook/*/dispatcher.go``.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeGuard

import msgspec
import orjson
from msgspec import UNSET, UnsetType

from kubechronicle.api.admission.matching import GroupVersionKind, resource_value
from kubechronicle.api.codecs import unstructured
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.schema.values import json_word

GROUP: Final = "admission.k8s.io"
KIND: Final = "AdmissionReview"
VERSIONS: Final = ("v1", "v1beta1")
_TYPE_META: Final = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)

MAX_WARNINGS: Final = 64
MAX_ANNOTATIONS: Final = 64
"""Warnings and audit annotations of one answer that are kept."""
MAX_TEXT: Final = 16 * 1024
"""Characters of a message of a webhook, or of one of its warnings, that are kept."""


class CallFailed(Exception):
    """A webhook gave no usable answer. The text follows the name of the webhook in the error.

    ``code``: the status of its HTTP answer, if that was an error.
    """

    def __init__(self, why: str, *, code: int = 503) -> None:
        super().__init__(why)
        self.code = code


class WebhookAnswer(NamedTuple):
    """The answer of a webhook.

    ``result``: the Status of a denial. ``patch``: its JSON patch as sent, empty if there is none.
    """

    allowed: bool
    result: Mapping[str, Any]
    patch: bytes
    warnings: Sequence[str]
    annotations: Mapping[str, str]


def version_of(accepted: Sequence[str]) -> str:
    """Return the first version of a webhook's admissionReviewVersions that is known. Raises CallFailed."""
    for version in accepted:
        if version in VERSIONS:
            return version
    raise CallFailed(
        "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)"
    )


def request_of(
    *,
    rt: ResourceType,
    kind: GroupVersionKind,
    requested: ResourceType,
    requested_kind: GroupVersionKind,
    subresource: str,
    name: str,
    namespace: str,
    operation: str,
    user: Mapping[str, Any],
    options: Mapping[str, Any] | None,
    dry_run: bool,
    obj: Mapping[str, Any] | None,
    old: Mapping[str, Any] | None,
) -> bytes:
    """Return the JSON of the request of a review without its uid.

    ``rt``, ``kind``: the resource and kind in the version in which the rule matched. ``requested``,
    ``requested_kind``: those of the client's request. ``operation``: plain ASCII.
    """
    return b'%b%b%b,"operation":"%b","userInfo":%b,"object":%b,"oldObject":%b,"dryRun":%b,"options":%b}' % (
        _kinds(rt, kind, requested, requested_kind, subresource),
        b',"name":%b' % orjson.dumps(name) if name else b"",
        b',"namespace":%b' % orjson.dumps(namespace) if namespace else b"",
        operation.encode(),
        orjson.dumps(user),
        _sent(rt, obj),
        _sent(rt, old),
        b"true" if dry_run else b"false",
        b"null" if options is None else orjson.dumps(options),
    )


def _sent(rt: ResourceType, obj: Mapping[str, Any] | None) -> bytes:
    """Return the JSON of an object. A custom one has sorted keys, as in kube-apiserver."""
    if obj is None:
        return b"null"
    return orjson.dumps(obj) if rt.custom is None else unstructured.encode(obj)


def _kinds(
    rt: ResourceType,
    kind: GroupVersionKind,
    requested: ResourceType,
    requested_kind: GroupVersionKind,
    subresource: str,
) -> bytes:
    """Return the beginning of a request, up to the resource that the client named."""
    fields: dict[str, Any] = {"kind": _kind(kind), "resource": resource_value(rt)}
    if subresource:
        fields["subResource"] = fields["requestSubResource"] = subresource
    fields["requestKind"], fields["requestResource"] = _kind(requested_kind), resource_value(requested)
    return orjson.dumps(fields)[:-1]


def _kind(kind: GroupVersionKind) -> dict[str, str]:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


_HEADS: Final = {
    version: f'{{"kind":"{KIND}","apiVersion":"{GROUP}/{version}","request":{{"uid":"'.encode() for version in VERSIONS
}


def encoded(request: bytes, *, uid: str, version: str) -> bytes:
    """Return the JSON of the review to send. ``request``: that of the request without its uid."""
    return b'%b%b",%b}' % (_HEADS[version], uid.encode(), request[1:])


# -- answers ----------------------------------------------------------------------------------------------------------


def answer_of(value: Any, *, uid: str, version: str, mutating: bool) -> WebhookAnswer:
    """Return the answer in a decoded body. ``uid``, ``version``: those of the review. Raises CallFailed."""
    try:
        usual = msgspec.convert(value, _Usual).response
    except msgspec.ValidationError:
        usual = None
    if usual is not None and usual.allowed and usual.uid == uid and version == "v1":
        if usual.patch is UNSET and usual.patchType is UNSET:
            return ALLOWED
        if mutating and usual.patch and usual.patchType:
            return WebhookAnswer(True, {}, _decoded_patch(usual.patch), (), {})
    response = _response(value, uid, version)
    patch = _decoded_patch(response.get("patch"))
    patch_type = _text(response, "patchType", f"{version}.PatchType")
    given = response.get("patchType") is not None
    if not mutating:
        if version == "v1":
            if patch:
                raise _invalid("validating webhook may not return response.patch")
            if given:
                raise _invalid("validating webhook may not return response.patchType")
        patch = b""
    elif version == "v1":
        if patch and not given:
            raise _invalid("webhook returned response.patch but not response.patchType")
        if given and not patch:
            raise _invalid("webhook returned response.patchType but not response.patch")
        if given and not patch_type:
            raise _invalid('webhook returned invalid response.patchType of ""')
    allowed = response.get("allowed")
    if allowed is not None and not isinstance(allowed, bool):
        raise _mismatch(allowed, "allowed", "bool")
    return WebhookAnswer(
        allowed=bool(allowed),
        result=_status(response.get("status")),
        patch=patch,
        warnings=[each[:MAX_TEXT] for each in _texts(response, "warnings")[:MAX_WARNINGS]],
        annotations=_annotations(response),
    )


ALLOWED: Final = WebhookAnswer(allowed=True, result={}, patch=b"", warnings=(), annotations={})


class _UsualStatus(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    metadata: dict[str, Any] | UnsetType = UNSET
    code: Literal[200] | UnsetType = UNSET


class _UsualResponse(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    uid: str
    allowed: bool
    status: _UsualStatus | UnsetType = UNSET
    patch: str | UnsetType = UNSET
    patchType: Literal["JSONPatch"] | UnsetType = UNSET


class _Usual(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The form of most reviews that are answers. controller-runtime adds a status of code 200."""

    apiVersion: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    response: _UsualResponse


_OPTIONS: Final = ("List", "Get", "Create", "Update", "Patch", "Delete")
_META_KINDS: Final = {"Status", "WatchEvent", *(f"{verb}Options" for verb in _OPTIONS)}
"""Kinds of meta/v1, which every group version of Kubernetes has."""
_UNVERSIONED_KINDS: Final = {"Status", "APIVersions", "APIGroup", "APIGroupList", "APIResourceList"}
"""Kinds that are registered for every version, in groups that have no version here as well."""


def _response(value: Any, uid: str, version: str) -> Mapping[str, Any]:
    value = {} if value is None else value
    if not _is_object(value):
        raise _no_kind(value, f"Go value of type {_TYPE_META}")
    for field in ("apiVersion", "kind"):
        if not isinstance(value.get(field) or "", str):
            raise _no_kind(value[field], f"Go struct field .{field} of type string")
    api_version, kind = _text(value, "apiVersion"), _text(value, "kind")
    group, _, name = (api_version or f"{GROUP}/{version}").rpartition("/")
    if kind in _UNVERSIONED_KINDS or (kind in _META_KINDS and group == GROUP and name in VERSIONS):
        raise CallFailed(f"failed to call webhook: converting (v1.{kind}) to ({version}.{KIND}): unknown conversion")
    if (kind or KIND) != KIND or group != GROUP or name not in VERSIONS:
        shown = f"no kind {go_quote(kind or KIND)} is registered for version {go_quote(api_version)}"
        raise CallFailed(f'failed to call webhook: {shown} in scheme "pkg/runtime/scheme.go:111"')
    if name != version:
        converted = f"converting ({name}.{KIND}) to ({version}.{KIND}): unknown conversion"
        raise CallFailed(f"failed to call webhook: {converted}")
    request = value.get("request")
    if request is not None and not _is_object(request):
        raise CallFailed(
            f"failed to call webhook: json: cannot unmarshal {json_word(request)} into Go struct field "
            f"{KIND}.request of type {version}.AdmissionRequest"
        )
    response = value.get("response")
    if response is None:
        raise _invalid("webhook response was absent")
    if not _is_object(response):
        raise _mismatch(response, "", f"{version}.AdmissionResponse")
    if version == "v1":
        found = _text(response, "uid", "types.UID")
        if found != uid:
            raise _invalid(f"expected response.uid={go_quote(uid)}, got {go_quote(found[:MAX_TEXT])}")
        if not api_version or not kind:
            expected, given = f"{GROUP}/{version}, Kind={KIND}", api_version or "/"
            raise _invalid(f"expected webhook response of {expected}, got {given}, Kind={kind}")
    return response


def _is_object(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, dict)


def _no_kind(value: Any, where: str) -> CallFailed:
    why = f"json: cannot unmarshal {json_word(value)} into {where}"
    return CallFailed(f"failed to call webhook: couldn't get version/kind; json parse error: {why}")


def _invalid(why: str) -> CallFailed:
    return CallFailed(f"received invalid webhook response: {why}")


_GO_STRUCTS: Final = {
    "": "AdmissionResponse",
    "status": "Status",
    "status.details": "StatusDetails",
    "status.details.causes": "StatusCause",
}
"""The Go struct of the members below a member of the response."""


def _mismatch(value: Any, field: str, go_type: str) -> CallFailed:
    outer, _, _ = field.rpartition(".")
    path = f"{_GO_STRUCTS[outer]}.response.{field}" if field else "AdmissionReview.response"
    return CallFailed(
        f"failed to call webhook: json: cannot unmarshal {json_word(value)} into Go struct field {path} "
        f"of type {go_type}"
    )


def _text(values: Mapping[str, Any], name: str, go_type: str = "string") -> str:
    value = values.get(name)
    if value is not None and not isinstance(value, str):
        raise _mismatch(value, name, go_type)
    return value or ""


def _texts(values: Mapping[str, Any], name: str) -> list[str]:
    value = values.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise _mismatch(value, name, "[]string")
    for each in value:
        if each is not None and not isinstance(each, str):
            raise _mismatch(each, name, "string")
    return [each or "" for each in value]


_STATUS_TEXTS: Final = (("status", "string"), ("message", "string"), ("reason", "v1.StatusReason"))
_DETAIL_TYPES: Final = (("name", "string"), ("group", "string"), ("kind", "string"), ("uid", "types.UID"))
_CAUSE_TYPES: Final = (("reason", "v1.CauseType"), ("message", "string"), ("field", "string"))


def _status(value: Any) -> Mapping[str, Any]:
    """Return the Status of a response, whose members have their types."""
    found = _member(value, "status", "v1.Status")
    _member(found.get("metadata"), "status.metadata", "v1.ListMeta")
    _check_texts(found, "status", _STATUS_TEXTS)
    _check_number(found, "status", "code")
    details = _member(found.get("details"), "status.details", "v1.StatusDetails")
    _check_texts(details, "status.details", _DETAIL_TYPES)
    _check_number(details, "status.details", "retryAfterSeconds")
    causes = details.get("causes")
    if causes is not None and not isinstance(causes, list):
        raise _mismatch(causes, "status.details.causes", "[]v1.StatusCause")
    for cause in causes or ():
        _check_texts(_member(cause, "status.details.causes", "v1.StatusCause"), "status.details.causes", _CAUSE_TYPES)
    return found


def _member(value: Any, field: str, go_type: str) -> Mapping[str, Any]:
    if value is not None and not _is_object(value):
        raise _mismatch(value, field, go_type)
    return value or {}


def _check_texts(values: Mapping[str, Any], field: str, types: Sequence[tuple[str, str]]) -> None:
    for name, go_type in types:
        value = values.get(name)
        if value is not None and not isinstance(value, str):
            raise _mismatch(value, f"{field}.{name}", go_type)


def _check_number(values: Mapping[str, Any], field: str, name: str) -> None:
    value = values.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31):
        return
    raise _mismatch(value, f"{field}.{name}", "int32")


def _annotations(response: Mapping[str, Any]) -> Mapping[str, str]:
    found = _member(response.get("auditAnnotations"), "auditAnnotations", "map[string]string")
    for value in found.values():
        if value is not None and not isinstance(value, str):
            raise _mismatch(value, "auditAnnotations", "string")
    return {key: (value or "")[:MAX_TEXT] for key, value in list(found.items())[:MAX_ANNOTATIONS]}


_NOT_BASE64: Final = re.compile(r"[^A-Za-z0-9+/\r\n]")


def _decoded_patch(value: Any) -> bytes:
    if value is None:
        return b""
    if not isinstance(value, str):
        raise _mismatch(value, "patch", "[]uint8")
    try:
        return binascii.a2b_base64(value, strict_mode=True)
    except ValueError:  # binascii.Error, or characters beyond ASCII
        pass
    text = value.rstrip("=\r\n")
    wrong = _NOT_BASE64.search(text)
    try:
        if wrong is None:
            return base64.b64decode(value.replace("\r", "").replace("\n", ""), validate=True)
    except binascii.Error:
        pass
    at = wrong.start() if wrong is not None else len(value)
    raise CallFailed(f"failed to call webhook: illegal base64 data at input byte {at}")


_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")


def is_warning(text: str) -> bool:
    """Tell whether a warning can be a header field; others are dropped."""
    return bool(text) and _CONTROL.search(text) is None
