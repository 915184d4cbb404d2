"""The type of a decoded Kubernetes object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]
"""A decoded JSON object: a Kubernetes object, or a part of one."""

ReadOnlyObject: TypeAlias = Mapping[str, Any]
"""The same where it is only read, so that any mapping will do."""
