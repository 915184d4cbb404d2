"""The life-cycle rules of the built-in kinds outside core, apps, batch and autoscaling, as in strategies.py."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kubechronicle.api.builtin import (
    hooks,
    validation,
    validation_access,
    validation_admission,
    validation_cluster,
    validation_devices,
    validation_endpoints,
    validation_network,
    validation_scaling,
    validation_services,
    validation_storage,
)
from kubechronicle.api.strategy import Strategy, Validate, ValidateUpdate, status_update

_STATUS: Final = MappingProxyType({"status": status_update()})

_SPEC_ONLY: Final = Strategy(status=False, generation=True)


def _rbac(validate: Validate, validate_update: ValidateUpdate = lambda new, old: []) -> Strategy:
    return Strategy(
        status=False,
        names="segment",
        create_on_update=True,
        kube_finalizers=False,
        validate=validate,
        validate_update=validate_update,
    )


_WEBHOOKS: Final = Strategy(
    status=False,
    generation=True,
    generation_fields=("webhooks",),
    unconditional_update=False,
    validate=validation_admission.webhooks,
)


def _policy(validate: Validate) -> Strategy:
    return Strategy(status=False, generation=True, unconditional_update=False, validate=validate)


GROUPS: Final[Mapping[str, Strategy]] = {
    "leases.coordination.k8s.io": Strategy(
        status=False,
        create_on_update=True,
        unconditional_update=False,
        validates_whole_update=False,
        validate=validation.lease,
    ),
    "endpointslices.discovery.k8s.io": Strategy(
        status=False,
        generation=True,
        generation_fields=("endpoints", "ports", "addressType"),
        validate=validation_endpoints.endpoint_slice,
        validate_update=validation_endpoints.endpoint_slice_update,
    ),
    "priorityclasses.scheduling.k8s.io": Strategy(
        status=False,
        generation=True,
        generation_fields=(),
        validates_whole_update=False,
        validates_spec_update=False,
        validate=validation_cluster.priority_class,
        validate_update=validation_cluster.priority_class_update,
    ),
    "runtimeclasses.node.k8s.io": Strategy(
        status=False,
        unconditional_update=False,
        validate=validation_cluster.runtime_class,
        validate_update=validation_cluster.runtime_class_update,
    ),
    "roles.rbac.authorization.k8s.io": _rbac(validation_access.role),
    "clusterroles.rbac.authorization.k8s.io": _rbac(validation_access.cluster_role),
    "rolebindings.rbac.authorization.k8s.io": _rbac(validation_access.role_binding, validation_access.role_ref_update),
    "clusterrolebindings.rbac.authorization.k8s.io": _rbac(
        validation_access.cluster_role_binding, validation_access.role_ref_update
    ),
    "ingresses.networking.k8s.io": Strategy(
        generation=True,
        validates_whole_update=False,
        validates_spec_update=False,
        validate=validation_network.new_ingress,
        validate_update=validation_network.ingress_update,
        subresources=MappingProxyType(
            {"status": status_update("spec", validate_update=validation_services.ingress_status)}
        ),
    ),
    "ingressclasses.networking.k8s.io": Strategy(
        status=False,
        generation=True,
        validate=validation_network.ingress_class,
        validate_update=validation_network.ingress_class_update,
    ),
    "networkpolicies.networking.k8s.io": Strategy(
        status=False, generation=True, validates_whole_update=False, validate=validation_network.network_policy
    ),
    "ipaddresses.networking.k8s.io": Strategy(
        status=False,
        names="segment",
        validate=validation_network.ip_address,
        validate_update=validation_network.ip_address_update,
    ),
    "servicecidrs.networking.k8s.io": Strategy(
        validates_whole_update=False,
        validate=validation_network.service_cidr,
        validate_update=validation_network.service_cidr_update,
        subresources=_STATUS,
    ),
    "poddisruptionbudgets.policy": Strategy(
        generation=True,
        unconditional_update=False,
        validates_whole_update=False,
        validate=validation_scaling.disruption_budget,
        subresources=MappingProxyType(
            {"status": status_update("spec", validate_update=validation_scaling.disruption_budget_status)}
        ),
    ),
    "storageclasses.storage.k8s.io": Strategy(
        status=False, validate=validation_storage.storage_class, validate_update=validation_storage.storage_class_update
    ),
    "csidrivers.storage.k8s.io": Strategy(
        status=False,
        unconditional_update=False,
        prepare_update=hooks.csi_driver_generation,
        validate=validation_storage.csi_driver,
        validate_update=validation_storage.csi_driver_update,
    ),
    "csinodes.storage.k8s.io": Strategy(
        status=False,
        unconditional_update=False,
        validate=validation_storage.csi_node,
        validate_update=validation_storage.csi_node_update,
    ),
    "csistoragecapacities.storage.k8s.io": Strategy(
        status=False,
        unconditional_update=False,
        validate=validation_storage.storage_capacity,
        validate_update=validation_storage.storage_capacity_update,
    ),
    "volumeattachments.storage.k8s.io": Strategy(
        unconditional_update=False,
        validate=validation_storage.attachment,
        validate_update=validation_storage.attachment_update,
        subresources=_STATUS,
    ),
    "volumeattributesclasses.storage.k8s.io": Strategy(
        status=False,
        validate=validation_storage.attributes_class,
        validate_update=validation_storage.attributes_class_update,
    ),
    "certificatesigningrequests.certificates.k8s.io": Strategy(
        names="any",
        prepare_update=hooks.request_spec_stays,
        validates_whole_update=False,
        validates_spec_update=False,
        validate=validation_access.signing_request,
        subresources=MappingProxyType(
            {
                "status": status_update(
                    "spec",
                    validate_update=validation_access.request_status,
                    timed=hooks.request_conditions_timed,
                ),
                "approval": status_update(
                    "spec",
                    validate_update=validation_access.request_approval,
                    timed=hooks.request_conditions_timed,
                ),
            }
        ),
    ),
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "validatingadmissionpolicies.admissionregistration.k8s.io": Strategy(
        generation=True,
        unconditional_update=False,
        validate=validation_admission.validating_policy,
        subresources=_STATUS,
    ),
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": _policy(validation_admission.validating_binding),
    "mutatingadmissionpolicies.admissionregistration.k8s.io": _policy(validation_admission.mutating_policy),
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io": _policy(validation_admission.mutating_binding),
    "customresourcedefinitions.apiextensions.k8s.io": Strategy(
        generation=True, unconditional_update=False, subresources=_STATUS, kube_finalizers=False
    ),
    "apiservices.apiregistration.k8s.io": Strategy(
        unconditional_update=False,
        subresources=_STATUS,
        kube_finalizers=False,
        names="segment",
        validate=validation_cluster.api_service,
    ),
    "flowschemas.flowcontrol.apiserver.k8s.io": Strategy(
        generation=True, validate=validation_cluster.flow_schema, subresources=_STATUS
    ),
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": Strategy(
        generation=True, validate=validation_cluster.priority_level, subresources=_STATUS
    ),
    "deviceclasses.resource.k8s.io": Strategy(status=False, generation=True, validate=validation_devices.device_class),
    "resourceclaims.resource.k8s.io": Strategy(
        subresources=_STATUS,
        validates_whole_update=False,
        validates_spec_update=False,
        validate=validation_devices.claim,
        validate_update=validation_devices.claim_update,
    ),
    "resourceclaimtemplates.resource.k8s.io": Strategy(
        status=False,
        validates_whole_update=False,
        validates_spec_update=False,
        validate=validation_devices.claim_template,
        validate_update=validation_devices.claim_template_update,
    ),
    "resourceslices.resource.k8s.io": _SPEC_ONLY,
}
