"""What this program is and which version."""

from __future__ import annotations

import platform
from importlib import metadata


def program_version() -> str:
    """As installed, e.g. "0.1.0"."""
    return metadata.version("kubechronicle")


def version_line(kubernetes: str) -> str:
    """``kubernetes``: the API version served, e.g. "v1.36"."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"kubechronicle {program_version()} (Kubernetes {kubernetes} API, {python})"
