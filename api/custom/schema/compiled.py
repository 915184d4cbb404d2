"""The compiled schema of one version of a custom resource, and the steps in the order of kube-apiserver.

Of a body: ``clean`` (metadata, unknown fields, nulls, embedded resources), ``default``; of the result: ``validate``.
``settle`` does the first two. A request does so several times with the same contents, as kube-apiserver's codec does;
only the first time costs a walk (known_contents.py). Most contents need no step but defaults: one walk proves that
(known_contents.py).
After apiextensions-apiserver ``pkg/apiserver/customresource_handler.go`` and ``pkg/registry/customresource``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.custom.schema import defaults, embedded, keywords
from kubechronicle.api.custom.schema.containers import validate_lists
from kubechronicle.api.custom.schema.failures import NO_FIELD, Failures
from kubechronicle.api.custom.schema.known_contents import Contents, KnownContents, digest_of, proof_of, settles
from kubechronicle.api.custom.schema.ratcheting import Correlated
from kubechronicle.api.custom.schema.structure import CONTAINERS, NO_FIELDS, Schema, SchemaNode
from kubechronicle.api.custom.schema.tables import Table, apply, apply_ratcheted
from kubechronicle.api.errors.field_errors import Cause, invalid_value
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.values.allowance import ALLOWANCE, UNLIMITED, Estimated, TooLong

PROOF: Final = 0.005
"""Estimated seconds of long matches in a proof that an object conforms. Without a proof, it is validated in full."""

Object = dict[str, Any]


class CompiledSchema:
    """A schema, ready for use by several threads at once. ``root``: its structure."""

    __slots__ = (
        "_conforming",
        "_growth",
        "_preserves",
        "_proof",
        "_settled",
        "_status",
        "_table",
        "_unproved",
        "_valid",
        "root",
    )

    def __init__(self, openapi: Schema, *, preserve_unknown: bool) -> None:
        self.root = SchemaNode(openapi)
        self._preserves = preserve_unknown
        self._table = keywords.table(openapi)
        status = (openapi.get("properties") or NO_FIELDS).get("status")
        self._status: Table | None = None if status is None else keywords.table(status)
        if not preserve_unknown:
            _prune_defaults(self.root)
        self._settled = KnownContents() if settles(self.root) else None
        self._valid = None if _checks_metadata(openapi) else KnownContents()
        provable = not preserve_unknown and self._settled is not None and self._valid is not None
        self._proof = proof_of(self.root, self._table) if provable else None
        self._conforming = KnownContents()
        self._unproved: bytes | None = None
        self._growth: int | None = None

    def settle(self, obj: Object, *, drop_malformed: bool = False) -> list[str]:
        """Clean and default an object, in place. Arguments, result and exceptions are those of both steps."""
        known = self._settled
        if known is None:
            unknown = self.clean(obj, drop_malformed=drop_malformed)
            self.default(obj)
            return unknown
        unknown = embedded.coerce_root(obj, drop_malformed=drop_malformed)
        if drop_malformed and digest_of(obj) in known:  # a stored object, which is mostly known as it is
            return unknown
        # Neither step needs the other's result. In this order, most objects conform before anything is pruned.
        self.default(obj)
        digest = digest_of(obj)
        if digest in known:
            return unknown
        if not self.conforms(obj, digest):
            unknown += self.prune(obj)
            digest = digest_of(obj)
        known.add(digest)
        return unknown

    def is_settled(self, contents: Contents) -> bool:
        """Tell whether contents are known to have the form and the defaults of the schema.

        False also where that is not known.
        """
        return contents.digest in self._conforming or (self._settled is not None and contents.digest in self._settled)

    def conforms(self, obj: Object, digest: bytes | None) -> bool:
        """Tell whether an object is known to conform, or can be proved to. ``digest``: of its contents.

        Then it has the form and the defaults of the schema, is valid, fits the type, and is stored as it is.
        """
        proof = self._proof
        if proof is None or digest is None or digest == self._unproved:
            return False
        if digest in self._conforming:
            return True
        failures = Failures()
        allowance = ALLOWANCE.get()
        token = ALLOWANCE.set(Estimated(PROOF)) if allowance is UNLIMITED else None
        try:
            proved = proof(obj, failures) and not failures
        except (RecursionError, TooLong):
            proved = False
        finally:
            if token is not None:
                ALLOWANCE.reset(token)
        if proved:
            self._conforming.add(digest)
        else:
            self._unproved = digest  # the steps of one request ask several times
        return proved

    def is_known_to_conform(self, contents: Contents) -> bool:
        """Tell whether contents have been proved to conform."""
        return contents.digest in self._conforming

    def clean(self, obj: Object, *, drop_malformed: bool = False) -> list[str]:
        """Bring a decoded object into the form of the schema, in place. Return the paths of the unknown fields.

        ``drop_malformed``: ill-typed metadata is dropped, as of stored objects; otherwise embedded.MalformedError.
        """
        unknown = embedded.coerce_root(obj, drop_malformed=drop_malformed)
        unknown += self.prune(obj)
        return unknown + embedded.coerce_embedded(obj, self.root, drop_malformed=drop_malformed)

    def default(self, obj: Object) -> None:
        """Set structural defaults, in place. defaults.TooManyDefaultsError if they make the object too large."""
        if self.root.deep_defaults:
            defaults.Filler().fill(obj, self.root)

    def size_with_defaults(self, encoded: bytes) -> int:
        """Return the most bytes that an object may have with its defaults. ``encoded``: the object as JSON."""
        growth = self._growth
        if growth is None:
            growth = self._growth = defaults.most_added(self.root) if self.root.deep_defaults else 0
        if not growth:
            return len(encoded)
        # Each object gets the defaults of its level, and each null may be replaced by one.
        return len(encoded) + growth * (encoded.count(b"{") + encoded.count(b"null"))

    def complete(self, obj: Object) -> None:
        """Bring a merged object into form, without malformed metadata, and set its defaults, in place."""
        self.coerce(obj, drop_malformed=True)
        if self.root.deep_defaults and not self.conforms(obj, digest_of(obj)):
            self.default(obj)

    def prune(self, obj: Object) -> list[str]:
        """Remove unknown fields, and nulls that the schema forbids and gives no default, in place.

        Return the sorted paths of the unknown fields. The metadata of the root and of embedded resources stays.
        """
        return [] if self._preserves else defaults.prune(obj, self.root)

    def coerce(self, obj: Object, *, drop_malformed: bool = False) -> list[str]:
        """Bring the metadata of the root and of embedded resources into form, in place. Return unknown fields' paths.

        embedded.MalformedError for the first ill-typed value, unless ``drop_malformed``.
        """
        unknown = embedded.coerce_root(obj, drop_malformed=drop_malformed)
        return unknown + embedded.coerce_embedded(obj, self.root, drop_malformed=drop_malformed)

    def digest(self, contents: Contents) -> bytes | None:
        """Return the digest of contents for ``validate``; None if their validity depends on the object's metadata."""
        return None if self._valid is None else contents.digest

    def validate(self, obj: Object, old: Object | None = None, digest: bytes | None = None) -> list[Cause]:
        """Return the problems of an object; in an update, those of values that it changes.

        Not those of the root's own metadata and of the scale paths. ``digest``: of the object, if the caller has it.
        """
        if digest is None:
            digest = self.digest(Contents(obj))
        if self._valid is not None and (digest in self._valid or self.conforms(obj, digest)):
            return []
        correlated = None if old is None else Correlated(obj, old, self.root)
        causes, tolerated = _validate(self._table, obj, correlated, "")
        causes += embedded.validate_embedded(obj, self.root)
        repeated = validate_lists(obj, self.root)
        if self._valid is not None and not (causes or tolerated or repeated):
            self._valid.add(digest)
        return causes if repeated and old is not None and validate_lists(old, self.root) else causes + repeated

    def validate_status(self, obj: Object, old: Object) -> list[Cause]:
        """Return the problems of an update of the status: of the field ``status``, and of all sets and maps."""
        causes: list[Cause] = []
        if self._status is not None and "status" in obj:
            correlated = Correlated(obj, old, self.root).field("status")
            causes, _ = _validate(self._status, obj["status"], correlated, "status")
        repeated = validate_lists(obj, self.root)
        return causes if repeated and validate_lists(old, self.root) else causes + repeated


def _checks_metadata(openapi: Schema) -> bool:
    """Return whether the validity of an object may depend on its metadata, beyond their presence."""
    metadata = (openapi.get("properties") or NO_FIELDS).get("metadata") or NO_FIELDS
    if not {*metadata} <= {"type", "description"}:
        return True
    # A root that restricts its members in other ways than by their own schemas is rare.
    return any(openapi.get(word) for word in ("additionalProperties", "allOf", "anyOf", "enum", "not", "oneOf"))


def _validate(table: Table, value: Any, old: Correlated | None, field: str) -> tuple[list[Cause], bool]:
    """Return (the problems of a value without those that an update tolerates, whether it tolerates any).

    ``field``: what the paths lie below.
    """
    failures = Failures(field)
    tolerated = False
    try:
        apply(table, value, None, failures)
        if failures and old is not None:
            tolerated = True
            # Correlation only removes failures, so most updates need no second walk.
            failures = Failures(field)
            apply_ratcheted(table, None, failures, old)
    except RecursionError:
        return [invalid_value(field or NO_FIELD, "", "exceeded max depth")], tolerated
    return failures.causes(), tolerated


def compile_schema(openapi: Mapping[str, Any], *, preserve_unknown: bool = False) -> CompiledSchema:
    """Return the compiled form of a version's openAPIV3Schema. ``preserve_unknown``: spec.preserveUnknownFields."""
    return CompiledSchema(openapi, preserve_unknown=preserve_unknown)


def _prune_defaults(root: SchemaNode) -> None:
    """Remove unknown fields from the defaults of a schema (``defaulting/prune.go``).

    Each default is pruned where it will stand, below the root: a default in the metadata of an embedded resource has no
    schema of its own that says which fields are known. It may vanish.
    """
    _prune_defaults_below(root, root, ())


def _prune_defaults_below(root: SchemaNode, node: SchemaNode, path: tuple[str | int, ...]) -> None:
    if node.default.__class__ in CONTAINERS or (node.has_default and root.deep_embedded):
        holder: Any = copy_object(node.default) if node.default.__class__ in CONTAINERS else node.default
        for part in reversed(path):
            holder = {part: holder} if isinstance(part, str) else [holder]
        embedded.coerce_default(holder, root)
        defaults.prune_value(holder, root)
        node.set_default(_value_at(holder, path))
    if node.deep_defaults:
        for name, below in node.properties.items():
            _prune_defaults_below(root, below, (*path, name))
        if node.additional is not None:
            _prune_defaults_below(root, node.additional, (*path, "*"))
        if node.items is not None:
            _prune_defaults_below(root, node.items, (*path, 0))
        node.note_defaults()


def _value_at(holder: Any, path: tuple[str | int, ...]) -> Any:
    for part in path:
        if isinstance(part, str) and part not in holder:
            return None
        holder = holder[part]
    return holder
