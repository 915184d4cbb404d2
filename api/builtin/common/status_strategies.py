"""Strategies of status subresources without rules of their own."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kubechronicle.api.strategy.strategy import (
    STATUS_METADATA,
    Check,
    PrepareUpdate,
    SubresourceStrategy,
    ValidateUpdate,
    status_update,
)

STATUS: Final = MappingProxyType({"status": status_update()})


def only_status(
    validate_update: ValidateUpdate = lambda new, old: [],
    prepare: PrepareUpdate | None = None,
    checks: tuple[Check, ...] = (Check.METADATA_CHANGE, Check.CHANGE),
) -> Mapping[str, SubresourceStrategy]:
    """Return a status subresource that keeps spec and metadata (apimachinery's ResetObjectMetaForStatus)."""
    update = status_update(
        "spec",
        metadata=STATUS_METADATA,
        prepare=prepare,
        validate_update=validate_update,
        reset=(("metadata",), ("spec",)),
        checks=checks,
    )
    return MappingProxyType({"status": update})
