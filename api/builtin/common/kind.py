"""The record of one built-in kind: all rules that its published data does not say; and plain strategies of statuses.

A kind's file makes it at its end, from the functions above it. ``builtin/kinds.py`` makes tables of all records. A
kind's file also has the rules of definitions that the kind owns: Pod's has a Container's defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from kubechronicle.api.builtin.common.printer import Printer
from kubechronicle.api.builtin.common.version_conversion import Converter
from kubechronicle.api.strategy.gated_fields import GatedField
from kubechronicle.api.strategy.strategy import (
    STATUS_METADATA,
    Check,
    PrepareUpdate,
    Strategy,
    SubresourceStrategy,
    ValidateNow,
    ValidateUpdate,
    status_update,
)
from kubechronicle.api.values.objects import Object

STATUS: Final = MappingProxyType({"status": status_update()})


def only_status(
    validate_update: ValidateUpdate = lambda new, old: [],
    prepare: PrepareUpdate | None = None,
    checks: tuple[Check, ...] = (Check.METADATA_CHANGE, Check.CHANGE),
    validate_now: ValidateNow | None = None,
) -> Mapping[str, SubresourceStrategy]:
    """Return a status subresource that keeps spec and metadata (apimachinery's ResetObjectMetaForStatus)."""
    update = status_update(
        "spec",
        metadata=STATUS_METADATA,
        prepare=prepare,
        validate_update=validate_update,
        reset=(("metadata",), ("spec",)),
        checks=checks,
        validate_now=validate_now,
    )
    return MappingProxyType({"status": update})


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinKind:
    """The rules of one kind. Without any, it has a status subresource, and shows its name and age.

    ``resource``: the storage resource, such as "pods" or "deployments.apps".
    ``strategy``: flags and hooks for preparation, validation and warnings.
    ``gated_fields``: subresource or "" -> the fields that a write there loses while their feature gate is off. Those of
    a pod's spec at ``strategy.pod_spec`` are among them by themselves.
    ``default_values``: definition -> field -> constant. It fills a field that is absent or an empty string; if the
    field is a pointer in Go, only one that is absent.
    ``default_functions``: definition -> function that sets fields which depend on other fields, in place. It runs after
    the object's constant values are filled in and before its nested objects get their defaults.
    ``resource_lists``: definition -> fields with amounts that are rounded up to a thousandth, after that function.
    ``printer``: kubectl's table.
    ``converters``: (kind, from version, to version) -> converter, which does not change its argument.
    ``fill_empty``: sets what Kubernetes' conversion from its internal type sets in an object without contents, as in a
    bookmark (``pkg/apis/GROUP/v1/conversion.go``).
    """

    resource: str
    strategy: Strategy | None = None
    gated_fields: Mapping[str, Sequence[GatedField]] = field(default_factory=dict)
    default_values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    default_functions: Mapping[str, Callable[[Object], None]] = field(default_factory=dict)
    resource_lists: Mapping[str, Sequence[str]] = field(default_factory=dict)
    printer: Printer | None = None
    converters: Mapping[tuple[str, str, str], Converter] = field(default_factory=dict)
    fill_empty: Callable[[Object], None] | None = None
