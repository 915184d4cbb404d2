"""Names of configurations from files (KEP-5793), which objects of the API should not have.

Source: Kubernetes' ``pkg/apis/admissionregistration/validation/static_suffix.go``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubechronicle.api.values.objects import Object

SUFFIX: Final = ".static.k8s.io"
RESERVED: Final = (
    f'names ending with "{SUFFIX}" are reserved for static manifest-based configurations and cannot be managed via '
    "the API"
)


def warnings(new: Object, old: Object | None) -> Sequence[str]:
    """Return a warning about a name that is reserved."""
    return (f"metadata.name: {RESERVED}",) if new["metadata"].get("name", "").endswith(SUFFIX) else ()
