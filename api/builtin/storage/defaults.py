"""Defaults of storage.k8s.io."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "storage.v1.StorageClass": {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
    "storage.v1.CSIDriverSpec": {
        "attachRequired": True,
        "podInfoOnMount": False,
        "storageCapacity": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "volumeLifecycleModes": ["Persistent"],
        "requiresRepublish": False,
        "seLinuxMount": False,
    },
}
