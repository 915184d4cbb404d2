"""Defaults of PersistentVolumeClaims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "core.v1.PersistentVolumeClaimSpec": {"volumeMode": "Filesystem"},
    "core.v1.PersistentVolumeClaimStatus": {"phase": "Pending"},
}
