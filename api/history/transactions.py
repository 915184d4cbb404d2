"""The changes of a Transaction (history.kubechronicle.dev/v1), checked and parsed. Nothing here knows their kinds.

verb: create   object: …                                        also update, and apply with force
verb: patch    apiVersion, kind, namespace, name, patchType: merge | json | strategic, patch: …
verb: delete   apiVersion, kind, namespace, name, preconditions, gracePeriodSeconds, propagationPolicy

Each may have a ``cause``: the revision that it is a consequence of, as a restore gives it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kubechronicle.api.errors import status
from kubechronicle.api.history.reasons import parse_cause
from kubechronicle.api.history.secret_values import without_values
from kubechronicle.api.meta.options import DeleteOptions, parse_delete_options
from kubechronicle.api.values.objects import Object

KIND: Final = "Transaction"
SECRET: Final = ("v1", "Secret")
MOST_CHANGES: Final = 100
"""Changes of one transaction."""
PATCH_TYPES: Final[Mapping[str, str]] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
WITH_OBJECT: Final = ("create", "update", "apply")
OF_OBJECT: Final = ("apiVersion", "kind", "namespace", "name")
OF_DELETION: Final = ("preconditions", "gracePeriodSeconds", "propagationPolicy")
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "create": ("object",),
    "update": ("object",),
    "apply": ("object", "force"),
    "patch": (*OF_OBJECT, "patchType", "patch"),
    "delete": (*OF_OBJECT, *OF_DELETION),
}
"""Verb -> the fields of a change beside ``verb`` and ``cause``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionChange:
    """One change.

    ``object``: with the verbs create, update and apply.
    ``content_type``: of a ``patch``.
    ``options``: of a deletion.
    ``cause``: the revision that the change is a consequence of, 0 for that of the request.
    """

    verb: str
    api_version: str
    kind: str
    namespace: str
    name: str
    object: Object = field(default_factory=dict)
    content_type: str = ""
    patch: Any = None
    force: bool = False
    options: DeleteOptions = field(default_factory=DeleteOptions)
    cause: int = 0


def parse_changes(body: Any, *, dry_run: bool) -> Sequence[TransactionChange]:
    """Return the changes of a Transaction, at most MOST_CHANGES. StatusError 400, 422."""
    spec = body.get("spec") if isinstance(body, dict) else None
    changes = spec.get("changes") if isinstance(spec, dict) else None
    if not isinstance(changes, list) or not changes:
        raise status.bad_request("spec.changes must be a list with at least one change")
    if len(changes) > MOST_CHANGES:
        raise status.bad_request(
            f"spec.changes has {len(changes)} changes: at most {MOST_CHANGES} can be committed together"
        )
    for extra in body.keys() - {"apiVersion", "kind", "metadata", "spec", "status"}:
        raise status.bad_request(f"unknown field {extra}")
    return [_parsed(change, f"spec.changes[{place}]", dry_run=dry_run) for place, change in enumerate(changes)]


def _parsed(change: Any, path: str, *, dry_run: bool) -> TransactionChange:
    if not isinstance(change, dict):
        raise status.bad_request(f"{path} must be an object")
    verb = change.get("verb")
    if not isinstance(verb, str) or verb not in FIELDS:
        raise status.bad_request(f"{path}.verb: must be one of {', '.join(FIELDS)}")
    for extra in sorted(change.keys() - {"verb", "cause", *FIELDS[verb]}):
        raise status.bad_request(f"{path}.{extra}: {verb} has no such field")
    if verb in WITH_OBJECT:
        obj = change.get("object")
        metadata = obj.get("metadata") if isinstance(obj, dict) else None
        if not isinstance(obj, dict) or not isinstance(metadata, dict):
            raise status.bad_request(f"{path}.object: must be an object with metadata")
        named = {"apiVersion": obj.get("apiVersion"), "kind": obj.get("kind")}
        named |= {name: metadata.get(name) for name in ("namespace", "name")}
    else:
        obj, named = {}, {name: change.get(name) for name in OF_OBJECT}
    texts = {name: _text(value, f"{path}.{name}") for name, value in named.items()}
    required = ("apiVersion", "kind") if verb == "create" else ("apiVersion", "kind", "name")
    for name in required:
        if not texts[name]:
            raise status.bad_request(f"{path}: {name} is missing")
    content_type = ""
    if verb == "patch":
        if change.get("patchType") not in PATCH_TYPES or "patch" not in change:
            raise status.bad_request(f"{path}: patchType must be one of {', '.join(PATCH_TYPES)}, with a patch")
        content_type = PATCH_TYPES[change["patchType"]]
    return TransactionChange(
        verb=verb,
        api_version=texts["apiVersion"],
        kind=texts["kind"],
        namespace=texts["namespace"],
        name=texts["name"],
        object=obj,
        content_type=content_type,
        patch=change.get("patch"),
        force=_is_true(change.get("force"), f"{path}.force"),
        options=_options(change, path, dry_run=dry_run),
        cause=_cause(change.get("cause"), f"{path}.cause"),
    )


def without_secret_values(body: Object, changes: Sequence[TransactionChange]) -> Object:
    """Return a Transaction without the values of Secrets, for its answer and for audit events.

    Audit policies choose levels by resource, and so a rule about Secrets is none about Transactions. ``changes``: those
    of the Transaction, parsed.
    """
    shown = [
        _without_values(sent) if (change.api_version, change.kind) == SECRET else sent
        for sent, change in zip(body["spec"]["changes"], changes, strict=True)
    ]
    return {**body, "spec": {**body["spec"], "changes": shown}}


def _without_values(change: Object) -> Object:
    left = {name: value for name, value in change.items() if name != "patch"}
    return left | {"object": without_values(change["object"])} if "object" in change else left


def _cause(value: Any, path: str) -> int:
    try:
        return parse_cause(_text(value, path) or "0")
    except ValueError as error:
        raise status.bad_request(f"{path}: {error}") from None


def _text(value: Any, path: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise status.bad_request(f"{path}: must be a string")
    return value


def _is_true(value: Any, path: str) -> bool:
    if value is not None and not isinstance(value, bool):
        raise status.bad_request(f"{path}: must be true or false")
    return bool(value)


def _options(change: Mapping[str, Any], path: str, *, dry_run: bool) -> DeleteOptions:
    values = {name: change[name] for name in OF_DELETION if change.get(name) is not None}
    seconds, preconditions = values.get("gracePeriodSeconds"), values.get("preconditions", {})
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int)):
        raise status.bad_request(f"{path}.gracePeriodSeconds: must be an integer")
    if not isinstance(preconditions, dict) or not all(isinstance(each, str) for each in preconditions.values()):
        raise status.bad_request(f"{path}.preconditions: must have strings")
    _text(values.get("propagationPolicy"), f"{path}.propagationPolicy")
    return parse_delete_options({}, values | ({"dryRun": ["All"]} if dry_run else {}))
