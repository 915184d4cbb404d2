"""Strategies of ResourceClaim and ResourceClaimTemplate.

Sources are the ``strategy.go`` files of Kubernetes' ``registry/resource``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.common.status_strategies import only_status
from kubechronicle.api.builtin.resource.resourceclaim import validation, validation_status
from kubechronicle.api.strategy.strategy import Check, Strategy

STRATEGIES: Final[Mapping[str, Strategy]] = {
    "resourceclaims.resource.k8s.io": Strategy(
        update_checks=(Check.METADATA, Check.METADATA_CHANGE, Check.CHANGE),
        returns_deleted=True,
        validate=validation.claim,
        validate_update=validation.claim_update,
        subresources=only_status(validation_status.claim_status, validation_status.forget_deallocated),
    ),
    "resourceclaimtemplates.resource.k8s.io": Strategy(
        empties=("spec.metadata.finalizers", "spec.metadata.managedFields", "spec.metadata.ownerReferences"),
        update_checks=(Check.METADATA, Check.OBJECT, Check.METADATA_CHANGE, Check.CHANGE),
        returns_deleted=True,
        status=False,
        validate=validation.claim_template,
        validate_update=validation.claim_template_update,
    ),
}
