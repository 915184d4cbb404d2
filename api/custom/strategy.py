"""The strategy of custom resources, and the checks of their writes in the order of kube-apiserver.

After apiextensions-apiserver ``pkg/registry/customresource`` (strategy.go, status_strategy.go, validator.go).
Objects are checked in the version of the request, not in the stored one.
Not here: the steps of a write (pipeline/custom_writes.py), and the schema itself (schema/).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.custom.rules import CustomRules
from kubechronicle.api.custom.schema.compiled import CompiledSchema
from kubechronicle.api.custom.schema.known_contents import Contents, KnownContents
from kubechronicle.api.errors.field_errors import Cause, invalid_value
from kubechronicle.api.meta import metadata
from kubechronicle.api.meta.metadata import STANDARD_FINALIZERS
from kubechronicle.api.patch.strategic_merge import go_map
from kubechronicle.api.schema.equality import same_classes
from kubechronicle.api.strategy.strategy import Strategy, SubresourceStrategy
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object, ReadOnlyObject

STATUS: Final = "status"

NOT_CHECKED: Final = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation"
)
_BLOCKING: Final = frozenset(
    ("FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid")
)
"""Reasons of causes after which the rules of the schema (x-kubernetes-validations) are not evaluated."""

MAX_REPLICAS: Final = 2**31 - 1


def strategy(subresources: ReadOnlyObject) -> Strategy:
    """Return the strategy of a version with these subresources."""
    below: dict[str, SubresourceStrategy] = {}
    if subresources.get(STATUS) is not None:
        below[STATUS] = SubresourceStrategy(prepare=_keep_all_but_status, reset=(("metadata",), ("spec",)))
    return Strategy(
        status=STATUS in below,
        generation=True,
        unconditional_update=False,
        kube_finalizers=False,
        reset=((STATUS,),) if STATUS in below else (),
        subresources=below,
    )


def _keep_all_but_status(new: Object, old: Object) -> None:
    """Keep the stored object, but for its status and managers. The revision of both is the same, or was not given."""
    entries = new["metadata"].get("managedFields")
    kept: Object = {
        **old,
        "metadata": {name: item for name, item in old["metadata"].items() if name != "managedFields"},
    }
    if entries:
        kept["metadata"]["managedFields"] = entries
    kept.pop(STATUS, None)
    if STATUS in new:
        kept[STATUS] = new[STATUS]
    new.clear()
    new.update(kept)


def changes_generation(new: ReadOnlyObject, old: ReadOnlyObject) -> bool:
    """Return whether anything but metadata differs. As in Go, 1 is not 1.0."""
    if len(new) != len(old):
        return True
    return any(
        name not in old or item != old[name] or not same_classes(item, old[name])
        for name, item in new.items()
        if name != "metadata"
    )


def stay(new: ReadOnlyObject, old: ReadOnlyObject) -> bool:
    """Return whether the contents of both objects, all but the metadata, are the very same. False also if equal."""
    return len(new) == len(old) and all(
        item is old.get(name) or (item.__class__ is str and item == old.get(name))
        for name, item in new.items()
        if name != "metadata"
    )


class Checks:
    """The checks of a version's objects."""

    __slots__ = (
        "_api_version",
        "_kind",
        "_label_selector",
        "_obeying",
        "_replicas",
        "_rules",
        "_schema",
        "_status_replicas",
        "_staying",
    )

    def __init__(
        self, api_version: str, kind: str, subresources: ReadOnlyObject, schema: CompiledSchema, rules: CustomRules
    ) -> None:
        scale: Mapping[str, str] = subresources.get("scale") or {}
        self._api_version = api_version
        self._kind = kind
        self._schema = schema
        self._rules = rules
        # Contents for which no rule fails, and those that obey the rules if an update leaves them as they are.
        self._obeying = KnownContents() if rules.of_contents else None
        self._staying = KnownContents() if rules and not (rules.of_contents or rules.sees_metadata) else None
        self._replicas = scale.get("specReplicasPath", "")
        self._status_replicas = scale.get("statusReplicasPath", "")
        self._label_selector = scale.get("labelSelectorPath") or ""

    def created(self, obj: Object, contents: Contents, *, namespaced: bool, warnings: list[str]) -> list[Cause]:
        """Return the problems of a new object, with its ``contents``; ``warnings`` receives those of its rules."""
        causes = self._type(obj)
        wrong_type = bool(causes)
        if not wrong_type:
            meta = obj["metadata"]
            causes += metadata.validate(meta, namespaced=namespaced, name_check=names.subdomain_name, kube=False)
        return self._contents(causes, obj, None, contents, warnings, whole=not wrong_type)

    def updated(self, new: Object, old: Object, contents: Contents, *, warnings: list[str]) -> list[Cause]:
        """Return the problems of an update; ``warnings`` as in ``created``."""
        causes = self._type(new)
        wrong_type = bool(causes)
        if not wrong_type:
            causes += metadata.validate_update(new["metadata"], old["metadata"], kube=False)
        return self._contents(causes, new, old, contents, warnings, whole=not wrong_type)

    def status_updated(self, new: Object, old: Object, contents: Contents, *, warnings: list[str]) -> list[Cause]:
        """Return the problems of an update of the status; ``warnings`` as in ``created``."""
        causes = metadata.validate_update(new["metadata"], old["metadata"], kube=False)
        causes += self._schema.validate_status(new, old)
        causes += self._scale_status(new)
        return self._checked_by_rules(causes, new, old, warnings)

    def _contents(
        self,
        causes: list[Cause],
        new: Object,
        old: Object | None,
        contents: Contents,
        warnings: list[str],
        *,
        whole: bool,
    ) -> list[Cause]:
        """Add the problems of the contents. ``whole``: the object has the right type, and is checked in full."""
        digest = self._schema.digest(contents) if whole else None
        if whole:
            causes += self._schema.validate(new, old, digest)
            if self._replicas:
                causes += self._number(new, self._replicas)
                causes += self._scale_status(new)
        return self._checked_by_rules(causes, new, old, warnings, digest)

    def _checked_by_rules(
        self,
        causes: list[Cause],
        new: Object,
        old: Object | None,
        warnings: list[str],
        digest: bytes | None = None,
    ) -> list[Cause]:
        """Return the causes with those of the rules, which are evaluated unless a value blocks that.

        Nor are they evaluated again for contents that obey them all: ``digest`` is theirs.
        """
        if any(cause.reason in _BLOCKING for cause in causes):
            return [*causes, invalid_value("<nil>", None, NOT_CHECKED)] if self._rules else causes
        known = None if digest is None else self._obeying
        if digest is not None and old is not None and self._staying is not None and stay(new, old):
            known = self._staying
        if known is not None and digest in known:
            return causes
        found, tolerated = self._rules.validate(new, old)
        if known is not None and not (found or tolerated):
            known.add(digest)
        warnings += tolerated
        return causes + found

    def _type(self, obj: Object) -> list[Cause]:
        causes = []
        if obj["kind"] != self._kind:
            causes.append(invalid_value("kind", obj["kind"], f"must be {self._kind}"))
        if obj["apiVersion"] != self._api_version:
            causes.append(invalid_value("apiVersion", obj["apiVersion"], f"must be {self._api_version}"))
        return causes

    def _scale_status(self, obj: Object) -> list[Cause]:
        if not self._status_replicas:
            return []
        causes = self._number(obj, self._status_replicas)
        if self._label_selector:
            _, problem = field_at(obj, self._label_selector, str)
            if problem:
                causes.append(invalid_value(self._label_selector, "", problem))
        return causes

    def _number(self, obj: Object, path: str) -> list[Cause]:
        found, problem = field_at(obj, path, int)
        replicas = found or 0
        if problem:
            return [invalid_value(path, 0, problem)]
        if replicas < 0:
            return [invalid_value(path, replicas, "should be a non-negative integer")]
        if replicas > MAX_REPLICAS:
            return [invalid_value(path, replicas, f"should be less than or equal to {MAX_REPLICAS}")]
        return []


# -- fields by the paths of a definition ------------------------------------------------------------------------------

_GO_TYPES: Final[dict[type, str]] = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    list: "[]interface {}",
    dict: "map[string]interface {}",
    type(None): "<nil>",
}


def steps(path: str) -> list[str]:
    """Return the names of the fields of a path such as ``.spec.replicas``."""
    return path.removeprefix(".").split(".")


def field_at(obj: ReadOnlyObject, path: str, wanted: type) -> tuple[Any, str]:
    """Return (value, problem) of the field at a path; (None, "") if there is none.

    After apimachinery ``unstructured.NestedInt64`` and ``NestedString``. ``wanted``: int or str.
    """
    value: Any = obj
    names_of = steps(path)
    for position, name in enumerate(names_of):
        if value is None:
            return None, ""
        if value.__class__ is not dict:
            return None, _accessor_error(names_of[: position + 1], value, "map[string]interface{}")
        if name not in value:
            return None, ""
        value = value[name]
    if value.__class__ is not wanted:
        return None, _accessor_error(names_of, value, _GO_TYPES[wanted])
    return value, ""


def _accessor_error(path: Sequence[str], value: Any, wanted: str) -> str:
    shown = go_map(value) if value is not None else "<nil>"
    return f".{'.'.join(path)} accessor error: {shown} is of the type {_GO_TYPES[value.__class__]}, expected {wanted}"


# -- finalizers -------------------------------------------------------------------------------------------------------


def finalizer_warnings(new: ReadOnlyObject, old: ReadOnlyObject | None) -> list[str]:
    """Return warnings about added finalizers whose names may conflict with others'."""
    given = new["metadata"].get("finalizers")
    if not given:
        return []
    held = () if old is None else old["metadata"].get("finalizers") or ()
    texts: list[str] = []
    for name in sorted({*given} - {*held}):
        shown = f'metadata.finalizers: "{name}": '
        texts += [shown + problem for problem in names.qualified_name(name)]
        if "/" not in name and name not in STANDARD_FINALIZERS:
            path = " including a path (/)" if "." in name else ""
            texts.append(
                f"{shown}prefer a domain-qualified finalizer name{path} "
                "to avoid accidental conflicts with other finalizer writers"
            )
    return texts
