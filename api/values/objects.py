"""The type of a decoded Kubernetes object."""

from __future__ import annotations

from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]
"""A decoded JSON object: a Kubernetes object, or a part of one."""
