"""The strategy of Node.

Source: ``registry/core/node/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kubechronicle.api.builtin.core.node import validation, warnings
from kubechronicle.api.strategy.strategy import Check, Strategy, status_update
from kubechronicle.api.values.objects import Object


def prepare_new_node(new: Object) -> None:
    """Drop the fields of DynamicKubeletConfig, which was removed."""
    (new.get("spec") or {}).pop("configSource", None)
    (new.get("status") or {}).pop("config", None)


def prepare_node_update(new: Object, old: Object) -> None:
    """Drop the source of the kubelet's configuration, unless the old node has one."""
    if (old.get("spec") or {}).get("configSource") is None:
        (new.get("spec") or {}).pop("configSource", None)


def prepare_node_status(new: Object, old: Object) -> None:
    """Drop the status of the kubelet's configuration, unless the old node has one."""
    if (old.get("status") or {}).get("config") is None:
        (new.get("status") or {}).pop("config", None)


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "nodes": Strategy(
        update_checks=(Check.METADATA, Check.OBJECT, Check.METADATA_CHANGE, Check.CHANGE),
        status_on_create=True,
        prepare_create=prepare_new_node,
        prepare_update=prepare_node_update,
        validate=validation.node,
        validate_update=validation.node_change,
        warnings=warnings.node_warnings,
        subresources=MappingProxyType(
            {"status": status_update("spec", prepare=prepare_node_status, validate_update=validation.node_change)}
        ),
    ),
}
