"""Converters between versions of all built-in kinds, merged from the groups.

The order of the groups does not matter: each (kind, from, to) has one converter. A converter does not change its
argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.autoscaling import conversions as autoscaling
from kubechronicle.api.builtin.autoscaling import conversions_beta as autoscaling_beta
from kubechronicle.api.builtin.batch import conversions as batch
from kubechronicle.api.builtin.common.version_conversion import Converter
from kubechronicle.api.builtin.discovery import conversions as discovery
from kubechronicle.api.builtin.events import conversions as events
from kubechronicle.api.builtin.policy import conversions as policy

CONVERTERS: Final[Mapping[tuple[str, str, str], Converter]] = {
    **autoscaling.CONVERTERS,
    **autoscaling_beta.CONVERTERS,
    **batch.CONVERTERS,
    **discovery.CONVERTERS,
    **events.CONVERTERS,
    **policy.CONVERTERS,
}
"""(kind, from version, to version) -> converter."""
