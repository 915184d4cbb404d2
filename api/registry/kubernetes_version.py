"""The version of Kubernetes whose API is served."""

from __future__ import annotations

from typing import Final

KUBERNETES_MAJOR: Final = "1"
KUBERNETES_MINOR: Final = "36"
