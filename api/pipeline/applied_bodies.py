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
from kubechronicle.api.managed_fields.field_sets import FieldSet
from kubechronicle.api.managed_fields.managers import Paths, Writer
from kubechronicle.api.patch import typed_readers
from kubechronicle.api.schema.empties import Empty
from kubechronicle.api.schema.types import ObjectType
from kubechronicle.api.schema.values import json_word
from kubechronicle.api.values.objects import Object

KUBECTL: Final = "kubectl"
"""kubectl's manager: its server-side apply takes over from its client-side apply, and updates the annotation."""

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRequest:
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


def read(kind: ObjectType, body: bytes) -> tuple[Object, FieldSet | None, list[str]]:
    """Return (configuration, its field set, None if it may be invalid, complaints about repeated keys)."""
    config = codec.decode_nearly_plain(body)
    named = None if config is None else typed_readers.read(config, kind)
    if config is not None and named is not None:
        return config, named, []
    config, duplicates = read_any(body)
    return config, None, duplicates


def check_syntax(body: bytes) -> None:
    """Reject a body that is no YAML with 400. One that begins like JSON is only read when it is applied."""
    if not _begins_like_json(body):
        _value(body)


def _begins_like_json(body: bytes) -> bool:
    return body.lstrip().startswith(b"{")


def _value(body: bytes) -> tuple[Any, list[str]]:
    try:
        return codec.decode_value(body)
    except errors.DecodeError as error:
        # kube-apiserver makes JSON of it first, unless it begins like JSON.
        failed = "decoding patch: error converting YAML to JSON" if _begins_like_json(body) else "encoding patch"
        raise status.bad_request(f"error {failed}: {error.message}") from None


def read_any(body: bytes) -> tuple[Object, list[str]]:
    """Return (configuration, complaints about repeated keys) of a body in YAML or JSON. 400 if it has none."""
    plain = codec.decode_plain(body)
    if plain is not None:
        return plain, []
    value, duplicates = _value(body)
    if value is None:
        return {}, duplicates
    if not isinstance(value, dict):
        raise status.bad_request(
            "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal "
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
