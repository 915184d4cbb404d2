"""Definition: a CustomResourceDefinition as far as the registry needs it, read from its stored form.

A definition of megabytes is written several times while it is established. So a change of its status alone is found by
the bytes of its spec, which are then not decoded again.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import orjson

from kubechronicle.api.builtin.apiextensions.conditions import same_names
from kubechronicle.api.custom.rule import RuleMeasures
from kubechronicle.api.custom.served import SelectableField, all_types, getter, has_condition
from kubechronicle.api.registry.registry import Registry, ResourceType
from kubechronicle.api.selectors import field_selectors
from kubechronicle.api.selectors.selectable_fields import SELECTABLE
from kubechronicle.api.values.objects import Object, ReadOnlyObject
from kubechronicle.eventlog.entries import Describe, Entry

log = logging.getLogger(__name__)

DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"
OWN_GROUP: Final = "kubechronicle.dev"
MALFORMED: Final = (KeyError, TypeError, ValueError, AttributeError, StopIteration, msgspec.MsgspecError)
"""Errors of reading a definition that lacks required fields."""


@dataclass(frozen=True, slots=True)
class Definition:
    """``versions``: the names of the served versions.

    ``names``: the wanted ones; ``accepted``: status.acceptedNames; ``has_its_names``: both are the same.
    ``deleted``: the deletion has begun.
    ``types``: of all versions; none if the definition is not served.
    ``spec``: a digest of its bytes. ``digest``: one of all that the types depend on, whatever the order of fields.
    """

    name: str
    group: str
    versions: tuple[str, ...]
    names: Object
    accepted: Object
    has_its_names: bool
    established: bool
    deleted: bool
    types: tuple[ResourceType, ...]
    spec: bytes
    digest: bytes


class _DefinitionMetadata(msgspec.Struct):
    uid: str = ""
    deletionTimestamp: str = ""


class _Status(msgspec.Struct):
    acceptedNames: dict[str, Any] | None = None
    conditions: list[dict[str, Any]] | None = None


class _Stored(msgspec.Struct):
    metadata: _DefinitionMetadata
    spec: msgspec.Raw
    status: _Status | None = None


_DECODER: Final = msgspec.json.Decoder(_Stored)


def may_serve(base: Registry, group: str, plural: str) -> bool:
    """Tell whether the resource may be a custom one: it is neither built in nor this server's own."""
    own = group == OWN_GROUP or group.endswith(f".{OWN_GROUP}")
    return not own and not base.known_as(f"{plural}.{group}")


def read_definition(
    entry: Entry, base: Registry, held: Definition | None = None, measures: RuleMeasures | None = None
) -> Definition | None:
    """Return the definition; None if it is malformed. ``held``: an earlier state, whose types are used again if they
    serve the same. ``measures``: of its rules."""
    try:
        return _read(entry, base, held, measures)
    except MALFORMED as error:
        log.error("%s is malformed and not served: %r", entry.key.name, error)
        return None


def _read(entry: Entry, base: Registry, held: Definition | None, measures: RuleMeasures | None) -> Definition:
    stored = _DECODER.decode(entry.json)
    status = stored.status or _Status()
    accepted, state = status.acceptedNames or {}, {"status": {"conditions": status.conditions}}
    raw = hashlib.blake2b(stored.metadata.uid.encode() + b"\n" + bytes(stored.spec), digest_size=16).digest()
    established = has_condition(state, "Established")
    if held is not None and held.spec == raw and held.accepted == accepted:
        group, versions, names, digest = held.group, held.versions, held.names, held.digest
    else:
        spec = orjson.loads(bytes(stored.spec))
        group, names = spec["group"], spec["names"]
        versions = tuple(version["name"] for version in spec["versions"] if version.get("served"))
        digest = _digest(stored.metadata.uid, spec, accepted)
    types: tuple[ResourceType, ...] = ()
    if established and may_serve(base, group, accepted["plural"]):
        same = held.types if held is not None and held.digest == digest else ()
        if same and same[0].custom.terminating == has_condition(state, "Terminating"):
            types = same
        else:
            types = all_types(entry.object(), load=entry.object, size=len(entry.json), like=same, measures=measures)
    return Definition(
        name=entry.key.name,
        group=group,
        versions=versions,
        names=names,
        accepted=accepted,
        has_its_names=same_names(names, accepted),
        established=established,
        deleted=bool(stored.metadata.deletionTimestamp),
        types=types,
        spec=raw,
        digest=digest,
    )


def _digest(uid: str, spec: ReadOnlyObject, accepted: ReadOnlyObject) -> bytes:
    return hashlib.blake2b(orjson.dumps((uid, spec, accepted), option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


# -- description -------------------------------------------------------------------------------------------------------
#
# Description: the labels and fields of stored objects, with the selectable fields of custom resources.
#
# A definition may get selectable fields, or defaults of such fields, while its objects exist. Their view then describes
# them anew.


class Description:
    """The functions ``describe`` and ``plain`` of field_selectors.py, for all resources that are served."""

    def __init__(self) -> None:
        self._chosen: dict[str, frozenset[SelectableField]] = {}
        self._fields = dict(SELECTABLE)
        self.describe: Final[Describe] = field_selectors.describer(self._fields)

    def plain(self, resource: str) -> bool:
        """Return True if the resource has no selectable fields but name and namespace."""
        return resource not in self._fields

    def choose(self, resource: str, fields: frozenset[SelectableField]) -> bool:
        """Set the selectable fields of a custom resource. Return whether they have changed."""
        if fields == self._chosen.get(resource, frozenset()):
            return False
        if fields:
            self._chosen[resource] = fields
            self._fields[resource] = tuple(getter(field) for field in sorted(fields))
        else:
            del self._chosen[resource], self._fields[resource]
        return True
