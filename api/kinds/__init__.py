"""Facts about the types of each Kubernetes minor: data that `make kinds` writes, and their reader."""

from __future__ import annotations

from typing import Final

SERVED: Final = "1.37"
"""The minor whose types are served."""
RELEASE: Final = "v1.37.2"
"""The release that its facts are of, and the programs beside the server."""
