"""Converters between CronJob batch/v1 and batch/v1beta1, which have the same fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.common.version_conversion import Converter, same_fields

CONVERTERS: Final[Mapping[tuple[str, str, str], Converter]] = same_fields("CronJob", "batch")
