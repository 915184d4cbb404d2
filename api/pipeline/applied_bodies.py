"""The configuration of a server-side apply, from the body of a request.

Lives here: the ways to read a body, from the quickest to the one for any YAML. Not here: the checks of a configuration,
and its merge (server_side_apply.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kubechronicle.api.codecs import errors
from kubechronicle.api.codecs import yaml as codec
from kubechronicle.api.errors import status
from kubechronicle.api.managed_fields import managers
from kubechronicle.api.managed_fields.field_sets import FieldSet
from kubechronicle.api.managed_fields.managers import Paths, Writer
from kubechronicle.api.meta import stored_contents
from kubechronicle.api.patch import known_parts
from kubechronicle.api.patch.known_parts import Settled
from kubechronicle.api.schema.empties import Empty
from kubechronicle.api.schema.types import ObjectType
from kubechronicle.api.schema.values import json_word
from kubechronicle.api.values.objects import Object

KUBECTL: Final = "kubectl"
"""kubectl's manager: its server-side apply takes over from its client-side apply, and updates the annotation."""

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """An apply: ``body`` in YAML or JSON, ``writer`` the manager, ``reset`` the fields that this endpoint ignores.

    ``fits``: the contents of the live object, all but its metadata, are known to fit the type.
    ``empties`` receives the empty lists and maps of the merged object.
    """

    body: bytes
    writer: Writer
    force: bool = False
    validation: str = "Warn"
    reset: Paths = ()
    fits: bool = False
    empties: list[Empty] | None = None


def read(kind: ObjectType, request: Request, old: Object | None) -> tuple[Object, FieldSet | None, list[str]]:
    """Return (configuration, its field set, None if it may be invalid, complaints about repeated keys).

    The configuration lacks a part that is known to leave the live object as it is.
    """
    last = _last_applied(old, request.writer)
    if old is not None and request.fits and not _keeps_last_applied(old, request):
        found = known_parts.take_out(request.body, old, kind, request.writer.manager)
        if found is not None and (quickly := _read_without(*found, last)) is not None:
            return *quickly, []
    config = codec.decode_nearly_plain(request.body)
    named = None if config is None else known_parts.read(config, kind, last)
    if named is not None:
        return config, named, []
    config, duplicates = read_any(request.body)
    return config, None, duplicates


def _read_without(body: bytes, part: Settled, last: FieldSet) -> tuple[Object, FieldSet] | None:
    """Return (a configuration without a part, the field set with it); None if the rest may be invalid."""
    config = codec.decode_nearly_plain(body)
    if config is None or not known_parts.was_taken_out(config, part):
        return None
    named = known_parts.read(config, part.kind, last)
    return None if named is None else (config, {**named, f"f:{part.name}": part.node})


def _keeps_last_applied(live: Object, request: Request) -> bool:
    """Return whether the apply may have to note its configuration in the annotation of client-side applies."""
    if request.writer.manager != KUBECTL:
        return False
    return LAST_APPLIED in (live["metadata"].get("annotations") or ()) or LAST_APPLIED.encode() in request.body


def note_settled(config: Object, named: FieldSet, old: Object, kind: ObjectType, obj: Object, request: Request) -> None:
    """Note which large part of a configuration has left the live object as it is."""
    for name in stored_contents.noted_in(old):
        if name in config and obj.get(name) is old[name]:
            known_parts.note_settled(request.body, name, old, kind, request.writer.manager, named[f"f:{name}"])


def _last_applied(old: Object | None, writer: Writer) -> FieldSet:
    """Return the field set of a manager's last apply, empty if there was none."""
    for entry in () if old is None else old["metadata"].get("managedFields") or ():
        manager, operation, _, subresource = managers.key_of(entry)
        if (manager, operation, subresource) == (writer.manager, "Apply", writer.subresource):
            fields: FieldSet = entry.get("fieldsV1") or {}
            return fields
    return {}


def read_any(body: bytes) -> tuple[Object, list[str]]:
    """Return (configuration, complaints about repeated keys) of a body in YAML or JSON. 400 if it has none."""
    plain = codec.decode_plain(body)
    if plain is not None:
        return plain, []
    try:
        value, duplicates = codec.decode_value(body)
    except errors.DecodeError as error:
        raise status.bad_request(f"error decoding YAML: error converting YAML to JSON: {error.message}") from None
    if value is None:
        return {}, duplicates
    if not isinstance(value, dict):
        raise status.bad_request(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal "
            f"{json_word(value)} into Go value of type map[string]interface {{}}"
        )
    config: Object = _whole_numbers(value)
    return config, duplicates


def _whole_numbers(value: Any) -> Any:
    """Return JSON data with 80.0 as 80: both are the same number, and the same key of a list."""
    if value.__class__ is dict:
        return {name: _whole_numbers(item) for name, item in value.items()}
    if value.__class__ is list:
        return [_whole_numbers(item) for item in value]
    if value.__class__ is float and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value
