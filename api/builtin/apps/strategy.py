"""Strategies of ReplicaSet and ControllerRevision, merged with those of the kinds' folders."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kubechronicle.api.builtin.apps import validation
from kubechronicle.api.builtin.apps.daemonset import strategy as daemonset
from kubechronicle.api.builtin.apps.deployment import strategy as deployment
from kubechronicle.api.builtin.apps.statefulset import strategy as statefulset
from kubechronicle.api.builtin.core.podtemplate.warnings import named_template_warnings
from kubechronicle.api.builtin.core.podtemplate.workloads import replica_set_status, selector_update
from kubechronicle.api.strategy.strategy import Check, Strategy, status_update

STRATEGIES: Final[Mapping[str, Strategy]] = {
    **daemonset.STRATEGIES,
    **deployment.STRATEGIES,
    **statefulset.STRATEGIES,
    "replicasets.apps": Strategy(
        pod_spec="spec.template.spec",
        update_checks=(Check.METADATA_CHANGE, Check.OBJECT, Check.CHANGE),
        generation=True,
        validate=validation.replica_set,
        validate_update=selector_update,
        warnings=named_template_warnings,
        subresources=MappingProxyType({"status": status_update("spec", validate_update=replica_set_status)}),
    ),
    "controllerrevisions.apps": Strategy(
        update_checks=(Check.METADATA, Check.OBJECT, Check.METADATA_CHANGE, Check.CHANGE),
        status=False,
        validate=validation.controller_revision,
        validate_as=validation.new_controller_revision,
        validate_update=validation.controller_revision_update,
    ),
}
