"""Converters between served versions. The table stands at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Object = dict[str, Any]

CONVERTERS: Final[Mapping[tuple[str, str, str], Callable[[Object], Object]]] = {}
