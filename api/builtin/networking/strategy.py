"""The strategies of networking.k8s.io.

Sources are the ``strategy.go`` files of Kubernetes' ``registry/networking``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kubechronicle.api.builtin.common.status_strategies import only_status
from kubechronicle.api.builtin.core.service.validation import balancer_status_warnings
from kubechronicle.api.builtin.networking import validation
from kubechronicle.api.strategy.strategy import Check, Strategy, status_update

STRATEGIES: Final[Mapping[str, Strategy]] = {
    "ingresses.networking.k8s.io": Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.METADATA, Check.CHANGE),
        generation=True,
        validate=validation.new_ingress,
        validate_update=validation.ingress_update,
        warnings=validation.ingress_warnings,
        subresources=MappingProxyType(
            {
                "status": status_update(
                    "spec",
                    validate_update=validation.ingress_status,
                    warnings=balancer_status_warnings,
                )
            }
        ),
    ),
    "ingressclasses.networking.k8s.io": Strategy(
        status=False,
        generation=True,
        validate=validation.ingress_class,
        validate_update=validation.ingress_class_update,
    ),
    "networkpolicies.networking.k8s.io": Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        status=False,
        generation=True,
        generation_counts_empties=True,
        validate=validation.network_policy,
        validate_update=validation.network_policy_update,
        warnings=validation.network_policy_warnings,
    ),
    "ipaddresses.networking.k8s.io": Strategy(
        update_checks=(Check.METADATA, Check.OBJECT, Check.METADATA_CHANGE, Check.CHANGE),
        status=False,
        check_name=validation.ip_address_name,
        extends_names=False,
        validate=validation.ip_address,
        validate_update=validation.ip_address_update,
    ),
    "servicecidrs.networking.k8s.io": Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        validate=validation.service_cidr,
        validate_update=validation.service_cidr_update,
        without_gates={"ServiceCIDRStatusFieldWiping": {"status": False}},
        subresources=only_status(),
    ),
}
