"""The strategy of Deployment.

Source: ``registry/apps/deployment/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kubechronicle.api.builtin.apps.deployment import validation
from kubechronicle.api.builtin.core.podtemplate.warnings import named_template_warnings
from kubechronicle.api.builtin.core.podtemplate.workloads import selector_update
from kubechronicle.api.strategy.strategy import Check, Strategy, status_update
from kubechronicle.api.values.objects import Object


def prepare_deployment_update(new: Object, old: Object) -> None:
    """Increment the generation for new annotations too, because they are copied to replica sets."""
    before, after = old["metadata"].get("annotations"), new["metadata"].get("annotations")
    if before != after and new["spec"] == old["spec"]:
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


_DEPLOYMENT_STATUS: Final = status_update("spec", metadata=("labels",), validate_update=validation.deployment_status)

STRATEGIES: Final[Mapping[str, Strategy]] = {
    "deployments.apps": Strategy(
        pod_spec="spec.template.spec",
        update_checks=(Check.METADATA_CHANGE, Check.OBJECT, Check.CHANGE),
        generation=True,
        generation_fields=("spec",),
        prepare_update=prepare_deployment_update,
        validate=validation.deployment,
        validate_update=selector_update,
        warnings=named_template_warnings,
        subresources=MappingProxyType({"status": _DEPLOYMENT_STATUS}),
    ),
}
