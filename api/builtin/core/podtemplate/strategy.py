"""Strategy of PodTemplate. | Source: ``registry/core/podtemplate/strategy.go``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.core.podtemplate import validation, warnings
from kubechronicle.api.strategy.strategy import Check, Strategy

STRATEGIES: Final[Mapping[str, Strategy]] = {
    "podtemplates": Strategy(
        pod_spec="template.spec",
        update_checks=(Check.METADATA_CHANGE, Check.OBJECT, Check.CHANGE),
        status=False,
        generation=True,
        generation_fields=("template",),
        returns_deleted=True,
        validate=validation.pod_template_object,
        warnings=warnings.pod_template_warnings,
    ),
}
