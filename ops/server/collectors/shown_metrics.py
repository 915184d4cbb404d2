"""The metrics and label values that /metrics shows, from the settings."""

from __future__ import annotations

from pathlib import Path

import yaml

from kubechronicle.http.metrics import MetricFilter
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.settings.conversion import label_values
from kubechronicle.ops.settings.settings import Settings
from kubechronicle.ops.settings.types import LabelValues

MANIFEST = "--allow-metric-labels-manifest"


def shown_metrics(settings: Settings) -> MetricFilter:
    """Return the filter. Raise OperatorError for an unusable file."""
    given = [settings.allow_metric_labels] if settings.allow_metric_labels is not None else []
    if not given and settings.allow_metric_labels_manifest is not None:
        given = [_manifest(settings.allow_metric_labels_manifest)]
    return MetricFilter(
        disabled=frozenset(settings.disabled_metrics or ()),
        allowed={(metric, label): frozenset(values) for each in given for metric, label, values in each.allowed},
    )


def _manifest(file: Path) -> LabelValues:
    try:
        document = yaml.safe_load(file.read_bytes())
        mapping = document.get("allowListMapping") if isinstance(document, dict) else None
        if not isinstance(mapping, dict):
            raise ValueError("it has no mapping allowListMapping")
        return label_values(mapping)
    except (ValueError, OSError, yaml.YAMLError) as error:
        raise OperatorError(f"{MANIFEST}: {file}: {error}") from None
