"""Applying a patch of any type to an object: content type → algorithm → decoded result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from kubechronicle.api.codecs import errors
from kubechronicle.api.codecs import json as codec
from kubechronicle.api.codecs.errors import MAX_COMPLAINTS, Complaints
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import go_quote, invalid_value
from kubechronicle.api.patch import json_patch, merge_patch, printed, strategic_merge
from kubechronicle.api.pipeline import applied_bodies, bodies, custom_bodies
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.schema import check, equality
from kubechronicle.api.schema.empties import Empty
from kubechronicle.api.schema.values import json_word
from kubechronicle.api.values.objects import Object

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_YAML: Final = "application/apply-patch+yaml"

PATCH_TYPES: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH)


def apply(
    rt: ResourceType,
    base: Object,
    content_type: str,
    body: bytes,
    *,
    validation: str,
    empties: list[Empty] | None = None,
) -> tuple[Object, list[str]]:
    """Return (patched and decoded object, warnings). ``base`` may be changed.

    ``content_type`` has no parameters. ``empties`` receives the empty lists and maps of the patched object. 400 for an
    unreadable patch, 415 for an unknown type, 422 if it cannot be applied or changes the object's identity.
    """
    if content_type == STRATEGIC_MERGE_PATCH and rt.definition:
        return _strategic(rt, base, body, validation, empties)
    checked = validation != "Ignore"
    patched: Any
    complaints: Sequence[str]
    as_stored = orjson.dumps(base, option=0 if rt.custom is None else orjson.OPT_SORT_KEYS)
    if content_type == MERGE_PATCH:
        patched, complaints = _merge(base, body, checked=checked)
    elif content_type == JSON_PATCH:
        patch, duplicates = _read(body)
        operations = json_patch.decode(patch, checked=checked, document=duplicates.document)
        complaints = _operation_complaints(operations, duplicates)
        try:
            if duplicates.document is None and not printed.depends_on_text(body):
                patched, kept = json_patch.apply(base, operations), Complaints()
            else:
                patched, kept = _patch_text(base, as_stored, body, operations)
        except json_patch.PatchFailed:
            raise json_patch.rejected() from None
        if kept:
            patched, complaints = _with_repeated_keys(rt, patched, kept, complaints, as_stored, body)
    else:
        raise status.unsupported_media_type_generic()

    def shown() -> str:
        return _printed(as_stored, content_type, body)

    result: dict[str, Any] = {"shown": shown, "validation": validation, "complaints": complaints}
    if rt.custom is not None:
        return custom_bodies.decode_patched(rt, patched, **result)
    return patched, bodies.decode_patched(rt, patched, empties=empties, **result)


def _patch_text(base: Object, as_stored: bytes, body: bytes, operations: list[Any]) -> tuple[Any, Complaints]:
    """Return (the object after a JSON patch whose result depends on its text, the keys that are repeated in it).

    Large objects are patched as if their values had one text only.
    """
    if len(as_stored) + len(body) > printed.MAX_PRINTED:
        return json_patch.apply(base, operations), Complaints()
    return codec.decode_value(printed.after_json_patch(as_stored, body).encode(), strict=True)


def _with_repeated_keys(
    rt: ResourceType, patched: Any, kept: Complaints, complaints: Sequence[str], as_stored: bytes, body: bytes
) -> tuple[Any, Sequence[str]]:
    """Return a patched object as Go decodes it if keys are repeated in its text, and all complaints. 422."""
    try:
        patched, more = bodies.with_repeated_keys(patched, bodies.kind_type(rt), kept)
    except check.TypeMismatch as error:
        shown = _printed(as_stored, JSON_PATCH, body)
        raise status.invalid("", "", "", [invalid_value("patch", shown, str(error))]) from None
    return patched, [*complaints, *more]


def _printed(base: bytes, content_type: str, body: bytes) -> str:
    """Return the text of an object that was patched, for an error about it."""
    if len(base) + len(body) <= printed.MAX_PRINTED:
        return (printed.after_merge_patch if content_type == MERGE_PATCH else printed.after_json_patch)(base, body)
    document, patch = orjson.loads(base), codec.loads(body)
    if content_type == MERGE_PATCH:
        patched = merge_patch.apply(document, patch) if isinstance(patch, dict) else patch
    else:
        patched = json_patch.apply(document, patch or [])
    return orjson.dumps(patched, option=orjson.OPT_SORT_KEYS).decode()


def _merge(base: Object, body: bytes, *, checked: bool) -> tuple[Any, Sequence[str]]:
    """Return (the object after a merge patch, complaints). ``checked`` is False for fieldValidation=Ignore.

    Then kube-apiserver's library alone reads the patch: it knows one error only, and a list replaces the object.
    """
    patch, complaints = _read(body)
    if checked and patch is not None:
        patch = merge_patch.decode(patch)
    if isinstance(patch, list):
        return patch, complaints
    if not isinstance(patch, dict):
        raise merge_patch.rejected()
    return merge_patch.apply(base, patch), complaints


_OPERATION_FIELDS: Final = frozenset(("op", "path", "from", "value"))


def _operation_complaints(operations: list[Any], duplicates: Complaints) -> list[str]:
    """Return complaints about repeated and unknown members of operations, in the order of the patch."""
    # Without repeated keys, the operations are dicts; with them, the document has tuples instead.
    document = duplicates.document
    texts: list[str] = []
    for index, operation in enumerate(operations if document is None else document):
        seen: set[str] = set()
        for name, value in operation.items() if isinstance(operation, dict) else operation or ():
            path = f"[{index}].{name}"
            if name not in _OPERATION_FIELDS:
                texts.append(f"json patch unknown field {go_quote(path)}")
                continue
            if name in seen:
                texts.append(f"json patch duplicate field {go_quote(path)}")
            seen.add(name)
            if name == "value" and document is not None:
                below: dict[str, None] = {}
                codec.find_duplicates(value, path, below)
                texts += [f"json patch duplicate field {go_quote(each)}" for each in below]
    return list(dict.fromkeys(texts))[:MAX_COMPLAINTS]


def check_syntax(content_type: str, body: bytes) -> None:
    """Reject a patch that is no JSON, or no YAML, as kube-apiserver does before it looks for the object. 400."""
    if content_type == APPLY_YAML:
        applied_bodies.check_syntax(body)
    else:
        _read(body)


def _read(body: bytes) -> tuple[Any, Complaints]:
    """Return the decoded patch and complaints about repeated keys. 400 if it is not JSON."""
    try:
        return codec.decode_value(body, strict=True)
    except errors.DecodeError:
        raise status.bad_request("invalid JSON patch") from None


def _strategic(
    rt: ResourceType, base: Object, body: bytes, validation: str, empties: list[Empty] | None
) -> tuple[Object, list[str]]:
    kind = bodies.kind_type(rt)
    if kind is None:
        raise status.unsupported_media_type_generic()
    patch, complaints = _read(body)
    if patch is None:
        patch = {}
    if not isinstance(patch, dict):
        word = json_word(patch)
        raise status.bad_request(f"json: cannot unmarshal {word} into Go value of type map[string]interface {{}}")
    patched = strategic_merge.apply(base, patch, kind)
    as_sent = orjson.dumps(patch)  # the object shares its parts, and will change them

    def shown() -> str:
        return strategic_merge.go_map(orjson.loads(as_sent))

    warnings = bodies.convert_patched(
        rt, patched, shown=shown, validation=validation, complaints=complaints, empties=empties
    )
    equality.encode_again(patched, rt.definition)
    return patched, warnings
