"""The name and version of this program."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata


@cache  # every request of a client names it, and reading it takes as long as a small request
def program_version() -> str:
    """Return the installed version, such as "0.1.0"."""
    return metadata.version("kubechronicle")


def version_line(kubernetes: str) -> str:
    """Return the line of `kubechronicle version`. ``kubernetes``: the API version served, such as "v1.36"."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"kubechronicle {program_version()} (Kubernetes {kubernetes} API, {python})"
