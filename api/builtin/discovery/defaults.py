"""Defaults of EndpointSlices, the same in v1 and v1beta1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_PORT: Final[Mapping[str, Any]] = {"name": "", "protocol": "TCP"}

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "discovery.v1.EndpointPort": _PORT,
    "discovery.v1beta1.EndpointPort": _PORT,
}
