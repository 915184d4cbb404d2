"""Converters of the batch group, merged from the kinds' folders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.batch.cronjob import conversions as cronjob
from kubechronicle.api.builtin.common.version_conversion import Converter

CONVERTERS: Final[Mapping[tuple[str, str, str], Converter]] = {
    **cronjob.CONVERTERS,
}
