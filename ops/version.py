"""The name and version of this program."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.2.0"
"""As in pyproject.toml. To find the metadata of the installed package would take 7 ms of the start of each command."""


def program_version() -> str:
    """Return the version of this program, such as "0.2.0"."""
    return VERSION


def version_line(kubernetes: str) -> str:
    """Return the line of `kubechronicle version`. ``kubernetes``: the API version served, such as "v1.36"."""
    import platform

    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"kubechronicle {program_version()} (Kubernetes {kubernetes} API, {python})"
