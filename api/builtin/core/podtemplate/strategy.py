"""Strategy of PodTemplate, and hooks shared by the kinds with a pod template in their spec.

Each hook changes the new object in place. Source: ``registry/core/podtemplate/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.core.pod.strategy import drop_disabled_fields
from kubechronicle.api.builtin.core.podtemplate import validation, warnings
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.objects import Object


def prepare_new_workload(new: Object) -> None:
    """Drop the fields of disabled features from the pod template of a new workload."""
    drop_disabled_fields((new["spec"].get("template") or {}).get("spec") or {})


def prepare_workload_update(new: Object, old: Object) -> None:
    """Drop the fields of disabled features, as on creation."""
    prepare_new_workload(new)


def prepare_new_pod_template(new: Object) -> None:
    """Drop the fields of disabled features."""
    drop_disabled_fields((new.get("template") or {}).get("spec") or {})


def prepare_pod_template_update(new: Object, old: Object) -> None:
    """Drop the fields of disabled features, as on creation."""
    prepare_new_pod_template(new)


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "podtemplates": Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.OBJECT, Check.CHANGE),
        status=False,
        generation=True,
        generation_fields=("template",),
        returns_deleted=True,
        prepare_create=prepare_new_pod_template,
        prepare_update=prepare_pod_template_update,
        validate=validation.pod_template_object,
        warnings=warnings.pod_template_warnings,
    ),
}
