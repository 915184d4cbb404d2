"""Converters between versions of all built-in kinds, merged from the groups, and fields that conversions set.

The order of the groups does not matter: each (kind, from, to) has one converter. A converter does not change its
argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kubechronicle.api.builtin import kinds
from kubechronicle.api.builtin.common.version_conversion import Converter
from kubechronicle.api.values.objects import Object

CONVERTERS: Final[Mapping[tuple[str, str, str], Converter]] = {
    **kinds.CONVERTERS,
}
"""(kind, from version, to version) -> converter."""

FILL_EMPTY: Final[Mapping[str, Callable[[Object], None]]] = kinds.FILL_EMPTY
