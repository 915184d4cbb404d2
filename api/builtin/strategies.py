"""The life-cycle rules of the built-in kinds, one row per storage resource.

A table; what needs more than a flag is a small function in hooks.py, what is wrong with an object is said in
validation*.py. Kinds that are not listed have a status subresource and no rules of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kubechronicle.api.builtin import (
    hooks,
    hooks_pods,
    hooks_services,
    validation,
    validation_apps,
    validation_batch,
    validation_claims,
    validation_cron,
    validation_endpoints,
    validation_events,
    validation_job_status,
    validation_pod_subresources,
    validation_pods,
    validation_quotas,
    validation_scaling,
    validation_services,
    validation_storage,
    warnings_core,
    warnings_workloads,
)
from kubechronicle.api.builtin.strategies_groups import GROUPS
from kubechronicle.api.strategy.strategy import (
    ORPHAN,
    UNSUPPORTED,
    Strategy,
    SubresourceStrategy,
    status_update,
)

_STATUS: Final = MappingProxyType({"status": status_update()})
_DEPLOYMENT_STATUS: Final = status_update(
    "spec", metadata=("labels",), validate_update=validation_apps.deployment_status
)


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "configmaps": Strategy(status=False, validate=validation.config_map, validate_update=validation.config_map_update),
    "secrets": Strategy(
        status=False,
        prepare_update=hooks.secret_type_stays,
        validate=validation.secret,
        validate_update=validation.secret_update,
        warnings=warnings_core.secret_warnings,
    ),
    "namespaces": Strategy(
        names="label",
        prepare_create=hooks.new_namespace,
        prepare_update=hooks.namespace_finalizers_stay,
        canonicalize=hooks.label_namespace,
        validates_whole_update=False,
        validate=validation.namespace,
        returns_deleted=True,
        reset=(("status",),),
        subresources=MappingProxyType(
            {
                "status": status_update("spec", validate_update=validation.namespace_status),
                "finalize": SubresourceStrategy(
                    prepare=hooks.finalize_namespace,
                    validate_update=validation.namespace_finalize,
                    reset=(("status",),),
                ),
            }
        ),
    ),
    "pods": Strategy(
        generation=True,
        graceful=True,
        returns_deleted=True,
        validates_whole_update=False,
        validates_spec_update=False,
        prepare_create=hooks_pods.new_pod,
        prepare_update=hooks_pods.pod_gates,
        validate=validation_pods.pod,
        validate_update=validation_pods.pod_update,
        warnings=warnings_workloads.pod_warnings,
        subresources=MappingProxyType(
            {
                "status": status_update(
                    "spec",
                    metadata=("ownerReferences",),
                    prepare=hooks_pods.pod_status_keeps,
                    validate_update=validation_pod_subresources.pod_status,
                    warnings=warnings_workloads.pod_status_warnings,
                    reset=(("spec",), ("metadata", "deletionTimestamp"), ("metadata", "ownerReferences")),
                ),
                "ephemeralcontainers": SubresourceStrategy(
                    prepare=hooks_pods.only_ephemeral_containers,
                    validate_update=validation_pod_subresources.ephemeral_containers_update,
                ),
                "resize": SubresourceStrategy(
                    prepare=hooks_pods.only_resources, validate_update=validation_pod_subresources.resize
                ),
            }
        ),
    ),
    "services": Strategy(
        names="label",
        create_on_update=True,
        returns_deleted=True,
        prepare_create=hooks_services.new_service,
        prepare_update=hooks_services.changed_service,
        validate=validation_services.service,
        validate_update=validation_services.service_update,
        warnings=warnings_core.service_warnings,
        subresources=MappingProxyType(
            {"status": status_update("spec", validate_update=validation_services.service_status)}
        ),
    ),
    "endpoints": Strategy(
        status=False,
        create_on_update=True,
        validates_spec_update=False,
        validates_whole_update=False,
        validate=validation_endpoints.endpoints,
        validate_update=validation_endpoints.endpoints_update,
        warnings=warnings_core.endpoints_warnings,
    ),
    "events": Strategy(
        status=False,
        create_on_update=True,
        dependents=UNSUPPORTED,
        validate=validation_events.event,
        validate_as=validation_events.event_as,
        validates_whole_update=False,
    ),
    "limitranges": Strategy(status=False, create_on_update=True, validate=validation_quotas.limit_range),
    "nodes": Strategy(
        status_on_create=True,
        validates_whole_update=False,
        validates_spec_update=False,
        prepare_create=hooks.node_ranges_agree,
        prepare_update=hooks.node_ranges_agree,
        validate=validation_quotas.node,
        validate_update=validation_quotas.node_update,
        warnings=warnings_core.node_warnings,
        subresources=MappingProxyType({"status": status_update("spec", validate_update=validation_quotas.node_change)}),
    ),
    "persistentvolumes": Strategy(
        returns_deleted=True,
        prepare_create=hooks.new_persistent_volume,
        subresources=MappingProxyType({"status": status_update("spec", timed=hooks.volume_status_moves)}),
        validates_whole_update=False,
        validates_spec_update=False,
        validate=validation_storage.persistent_volume,
        validate_update=validation_storage.persistent_volume_update,
        warnings=warnings_core.volume_warnings,
    ),
    "persistentvolumeclaims": Strategy(
        returns_deleted=True,
        prepare_create=hooks.new_claim,
        validates_spec_update=False,
        validate=validation_claims.claim,
        validate_update=validation_claims.claim_update,
        warnings=warnings_core.claim_warnings,
        subresources=MappingProxyType(
            {"status": status_update("spec", validate_update=validation_claims.claim_status)}
        ),
        validates_whole_update=False,
    ),
    "podtemplates": Strategy(
        status=False,
        generation=True,
        generation_fields=("template",),
        returns_deleted=True,
        validates_whole_update=False,
        prepare_create=hooks.new_pod_template,
        prepare_update=hooks.pod_template_gates,
        validate=validation_apps.pod_template_object,
        warnings=warnings_workloads.pod_template_warnings,
    ),
    "replicationcontrollers": Strategy(
        prepare_create=hooks_pods.new_template,
        prepare_update=hooks_pods.template_gates,
        generation=True,
        dependents=ORPHAN,
        validates_whole_update=False,
        validates_twice=True,
        validate=validation_apps.replication_controller,
        warnings=warnings_workloads.named_template_warnings,
        subresources=MappingProxyType(
            {"status": status_update("spec", validate_update=validation_apps.replica_set_status)}
        ),
    ),
    "resourcequotas": Strategy(
        returns_deleted=True,
        validates_whole_update=False,
        validates_spec_update=False,
        validate=validation_quotas.quota,
        validate_update=validation_quotas.quota_update,
        subresources=MappingProxyType(
            {"status": status_update("spec", validate_update=validation_quotas.quota_status)}
        ),
    ),
    "serviceaccounts": Strategy(status=False, returns_deleted=True, warnings=warnings_core.service_account_warnings),
    "deployments.apps": Strategy(
        prepare_create=hooks_pods.new_template,
        generation=True,
        generation_fields=("spec",),
        prepare_update=hooks.deployment_annotations_count,
        validates_whole_update=False,
        validate=validation_apps.deployment,
        validate_update=validation_apps.selector_update,
        warnings=warnings_workloads.named_template_warnings,
        subresources=MappingProxyType({"status": _DEPLOYMENT_STATUS}),
    ),
    "replicasets.apps": Strategy(
        prepare_create=hooks_pods.new_template,
        prepare_update=hooks_pods.template_gates,
        generation=True,
        validates_whole_update=False,
        validates_twice=True,
        validate=validation_apps.replica_set,
        validate_update=validation_apps.selector_update,
        warnings=warnings_workloads.named_template_warnings,
        subresources=MappingProxyType(
            {"status": status_update("spec", validate_update=validation_apps.replica_set_status)}
        ),
    ),
    "statefulsets.apps": Strategy(
        names="label",
        generation=True,
        prepare_create=hooks.new_stateful_set,
        prepare_update=hooks.stateful_set_gates,
        validates_whole_update=False,
        validate=validation_apps.stateful_set,
        validate_update=validation_apps.stateful_set_update,
        warnings=warnings_workloads.stateful_set_warnings,
        subresources=MappingProxyType(
            {"status": status_update("spec", validate_update=validation_apps.stateful_set_status)}
        ),
    ),
    "daemonsets.apps": Strategy(
        generation=True,
        prepare_create=hooks.new_daemon_set,
        prepare_update=hooks.daemon_set_template_generation,
        validates_whole_update=False,
        validates_twice=True,
        validate=validation_apps.daemon_set,
        validate_update=validation_apps.selector_update,
        warnings=warnings_workloads.template_warnings,
        subresources=MappingProxyType(
            {"status": status_update("spec", validate_update=validation_apps.daemon_set_status)}
        ),
    ),
    "controllerrevisions.apps": Strategy(
        status=False,
        validate=validation_apps.controller_revision,
        validate_update=validation_apps.controller_revision_update,
    ),
    "jobs.batch": Strategy(
        generation=True,
        dependents=ORPHAN,
        defaults_again=True,
        prepare_create=hooks.new_job,
        prepare_update=hooks_pods.template_gates,
        validates_whole_update=False,
        validate=validation_batch.job,
        validate_update=validation_batch.job_update,
        warnings=warnings_workloads.job_warnings,
        subresources=MappingProxyType(
            {"status": status_update("spec", validate_update=validation_job_status.job_status)}
        ),
    ),
    "cronjobs.batch": Strategy(
        generation=True,
        validates_whole_update=False,
        validates_spec_update=False,
        prepare_create=hooks.new_cron_job,
        prepare_update=hooks.cron_job_gates,
        validate=validation_cron.cron_job,
        validate_update=validation_cron.cron_job_update,
        warnings=warnings_workloads.cron_job_warnings,
        subresources=_STATUS,
    ),
    "horizontalpodautoscalers.autoscaling": Strategy(
        subresources=MappingProxyType(
            {"status": status_update("spec", validate_update=validation_scaling.autoscaler_status)}
        ),
        validates_whole_update=False,
        names="segment",
        validate=validation_scaling.autoscaler,
    ),
    **GROUPS,
}
