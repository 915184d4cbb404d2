"""The life-cycle rules of the built-in kinds outside core, apps, batch and autoscaling, as in strategies.py."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kubechronicle.api.builtin import (
    hooks,
    hooks_groups,
    validation_access,
    validation_admission,
    validation_certificates,
    validation_cluster,
    validation_device_slices,
    validation_device_status,
    validation_devices,
    validation_endpoint_slices,
    validation_events,
    validation_flow,
    validation_network,
    validation_policies,
    validation_scaling,
    validation_services,
    validation_storage_classes,
    warnings_groups,
)
from kubechronicle.api.strategy.strategy import (
    PrepareUpdate,
    Strategy,
    SubresourceStrategy,
    Validate,
    ValidateUpdate,
    status_update,
)

_STATUS: Final = MappingProxyType({"status": status_update()})


def _only_status(
    validate_update: ValidateUpdate = lambda new, old: [], prepare: PrepareUpdate | None = None
) -> Mapping[str, SubresourceStrategy]:
    """A status subresource that changes nothing of metadata either (apimachinery's ResetObjectMetaForStatus)."""
    update = status_update(
        "spec",
        metadata=("labels", "annotations", "finalizers", "ownerReferences"),
        prepare=prepare,
        validate_update=validate_update,
        reset=(("metadata",), ("spec",)),
    )
    return MappingProxyType({"status": update})


def _rbac(validate: Validate, validate_update: ValidateUpdate = lambda new, old: []) -> Strategy:
    return Strategy(
        status=False,
        names="segment",
        create_on_update=True,
        kube_finalizers=False,
        validates_first=True,
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
        prepare_create=hooks_groups.new_lease,
        prepare_update=hooks_groups.lease_features,
        validate=validation_events.lease,
    ),
    "endpointslices.discovery.k8s.io": Strategy(
        status=False,
        generation=True,
        generation_fields=(),
        prepare_update=validation_endpoint_slices.endpoint_slice_changes,
        prepare_as=validation_endpoint_slices.drop_topology,
        validates_whole_update=False,
        validates_spec_update=False,
        validate=validation_endpoint_slices.endpoint_slice,
        validate_update=validation_endpoint_slices.endpoint_slice_update,
        warnings=validation_endpoint_slices.endpoint_slice_warnings,
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
        validates_first=True,
        validate=validation_cluster.runtime_class,
        validate_update=validation_cluster.runtime_class_update,
        warnings=warnings_groups.runtime_class_warnings,
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
        warnings=validation_network.ingress_warnings,
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
        status=False,
        generation=True,
        validates_whole_update=False,
        validates_spec_update=False,
        validate=validation_network.network_policy,
        validate_update=validation_network.network_policy_update,
        warnings=validation_network.network_policy_warnings,
    ),
    "ipaddresses.networking.k8s.io": Strategy(
        status=False,
        names="any",
        validates_first=True,
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
            {
                "status": status_update(
                    "spec",
                    validate_update=validation_scaling.disruption_budget_status,
                    lenient_in=("policy/v1beta1",),
                )
            }
        ),
    ),
    "storageclasses.storage.k8s.io": Strategy(
        returns_deleted=True,
        status=False,
        validates_first=True,
        validate=validation_storage_classes.storage_class,
        validate_update=validation_storage_classes.storage_class_update,
        warnings=warnings_groups.storage_class_warnings,
    ),
    "csidrivers.storage.k8s.io": Strategy(
        returns_deleted=True,
        status=False,
        unconditional_update=False,
        prepare_create=hooks_groups.new_csi_driver,
        prepare_update=hooks_groups.csi_driver_changes,
        validates_whole_update=False,
        validate=validation_storage_classes.csi_driver,
        validate_update=validation_storage_classes.csi_driver_update,
    ),
    "csinodes.storage.k8s.io": Strategy(
        returns_deleted=True,
        status=False,
        unconditional_update=False,
        validates_first=True,
        validate=validation_storage_classes.csi_node,
        validate_update=validation_storage_classes.csi_node_update,
    ),
    "csistoragecapacities.storage.k8s.io": Strategy(
        status=False,
        unconditional_update=False,
        validates_first=True,
        validate=validation_storage_classes.storage_capacity,
        validate_update=validation_storage_classes.storage_capacity_update,
        warnings=warnings_groups.storage_capacity_warnings,
    ),
    "volumeattachments.storage.k8s.io": Strategy(
        returns_deleted=True,
        unconditional_update=False,
        validates_first=True,
        validate=validation_storage_classes.attachment,
        validate_update=validation_storage_classes.attachment_update,
        subresources=_only_status(validation_storage_classes.attachment_status),
    ),
    "volumeattributesclasses.storage.k8s.io": Strategy(
        returns_deleted=True,
        status=False,
        validate=validation_storage_classes.attributes_class,
        validate_update=validation_storage_classes.attributes_class_update,
    ),
    "certificatesigningrequests.certificates.k8s.io": Strategy(
        names="any",
        requested=validation_certificates.note_requester,
        prepare_update=hooks.request_spec_stays,
        validates_whole_update=False,
        validates_spec_update=False,
        validate=validation_certificates.signing_request,
        subresources=MappingProxyType(
            {
                "status": status_update(
                    "spec",
                    validate_update=validation_certificates.request_status,
                    timed=validation_certificates.times_of_conditions,
                ),
                "approval": status_update(
                    "spec",
                    validate_update=validation_certificates.request_approval,
                    timed=validation_certificates.times_of_conditions,
                ),
            }
        ),
    ),
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "validatingadmissionpolicies.admissionregistration.k8s.io": Strategy(
        generation=True,
        unconditional_update=False,
        validate=validation_policies.validating_policy,
        subresources=_only_status(validation_policies.policy_status),
    ),
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": _policy(validation_policies.validating_binding),
    "mutatingadmissionpolicies.admissionregistration.k8s.io": _policy(validation_policies.mutating_policy),
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io": _policy(validation_policies.mutating_binding),
    "customresourcedefinitions.apiextensions.k8s.io": Strategy(
        generation=True, unconditional_update=False, subresources=_STATUS, kube_finalizers=False
    ),
    "apiservices.apiregistration.k8s.io": Strategy(
        unconditional_update=False,
        subresources=_only_status(validation_cluster.api_service_status),
        kube_finalizers=False,
        names="segment",
        prepare_create=hooks_groups.new_api_service,
        validate=validation_cluster.api_service,
    ),
    "flowschemas.flowcontrol.apiserver.k8s.io": Strategy(
        generation=True,
        validate=validation_flow.flow_schema,
        subresources=_only_status(validation_flow.conditions_update),
    ),
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": Strategy(
        generation=True,
        validate=validation_flow.priority_level,
        subresources=_only_status(validation_flow.conditions_update),
    ),
    "deviceclasses.resource.k8s.io": Strategy(
        returns_deleted=True, status=False, generation=True, validate=validation_devices.device_class
    ),
    "resourceclaims.resource.k8s.io": Strategy(
        returns_deleted=True,
        validates_whole_update=False,
        validates_spec_update=False,
        validate=validation_devices.claim,
        validate_update=validation_devices.claim_update,
        subresources=_only_status(validation_device_status.claim_status, validation_device_status.forget_deallocated),
    ),
    "resourceclaimtemplates.resource.k8s.io": Strategy(
        returns_deleted=True,
        status=False,
        validates_whole_update=False,
        validates_spec_update=False,
        validate=validation_devices.claim_template,
        validate_update=validation_devices.claim_template_update,
    ),
    "resourceslices.resource.k8s.io": Strategy(
        returns_deleted=True,
        status=False,
        generation=True,
        prepare_create=validation_device_slices.new_slice,
        prepare_update=validation_device_slices.slice_features,
        stamp=validation_device_slices.taints_since,
        validates_whole_update=False,
        validates_spec_update=False,
        validate=validation_device_slices.resource_slice,
        validate_update=validation_device_slices.resource_slice_update,
    ),
}
