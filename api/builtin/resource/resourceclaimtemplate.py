"""ResourceClaimTemplate: the form of claims that are made for pods.

Source: Kubernetes' ``registry/resource/resourceclaimtemplate``, ``apis/resource`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, aged
from kubechronicle.api.builtin.resource import v1beta1
from kubechronicle.api.builtin.resource.resourceclaim import validation
from kubechronicle.api.builtin.resource.resourceclaim.resourceclaim import CLAIM_FIELDS
from kubechronicle.api.strategy.gated_fields import below
from kubechronicle.api.strategy.strategy import Check, Strategy

KIND: Final = BuiltinKind(
    resource="resourceclaimtemplates.resource.k8s.io",
    strategy=Strategy(
        empties=("spec.metadata.finalizers", "spec.metadata.managedFields", "spec.metadata.ownerReferences"),
        update_checks=(Check.METADATA, Check.OBJECT, Check.METADATA_CHANGE, Check.CHANGE),
        returns_deleted=True,
        status=False,
        validate=validation.claim_template,
        with_gates={"DRAListTypeAttributes": {"validate": partial(validation.claim_template, lists=True)}},
        validate_update=validation.claim_template_update,
    ),
    gated_fields={
        "": below("spec.spec", CLAIM_FIELDS),
    },
    printer=Printer((NAME, AGE), aged),
    converters=v1beta1.pair(
        "ResourceClaimTemplate",
        lambda spec: v1beta1.claim_to_v1beta1(spec["spec"]),
        lambda spec: v1beta1.claim_to_v1(spec["spec"]),
    ),
)
