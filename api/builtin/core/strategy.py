"""Strategies of the core kinds with few rules, merged with those of the kinds' folders.

Sources are the ``strategy.go`` files of Kubernetes' ``registry/core``, named after their kinds.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kubechronicle.api.builtin.core import validation, validation_quotas, warnings
from kubechronicle.api.builtin.core.node import strategy as node
from kubechronicle.api.builtin.core.persistentvolume import strategy as persistentvolume
from kubechronicle.api.builtin.core.persistentvolumeclaim import strategy as persistentvolumeclaim
from kubechronicle.api.builtin.core.pod import strategy as pod
from kubechronicle.api.builtin.core.podtemplate import strategy as podtemplate
from kubechronicle.api.builtin.core.podtemplate.warnings import named_template_warnings
from kubechronicle.api.builtin.core.podtemplate.workloads import replica_set_status
from kubechronicle.api.builtin.core.service import strategy as service
from kubechronicle.api.strategy.strategy import ORPHAN, Check, Strategy, SubresourceStrategy, keep, status_update
from kubechronicle.api.values.objects import Object

# -- limit ranges -----------------------------------------------------------------------------------------------------


def name_limit_range(new: Object) -> None:
    """Name a LimitRange without a name by a UUID, which follows from its uid."""
    metadata = new["metadata"]
    if not metadata.get("name"):
        metadata["name"] = str(uuid.uuid5(uuid.NAMESPACE_OID, metadata["uid"]))


# -- namespaces -------------------------------------------------------------------------------------------------------

NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"


def prepare_new_namespace(new: Object) -> None:
    """Set the phase to Active, and add the finalizer that clears the namespace's contents."""
    new["status"] = {"phase": "Active"}
    finalizers = new["spec"].setdefault("finalizers", [])
    if "kubernetes" not in finalizers:
        finalizers.append("kubernetes")


def keep_namespace_finalizers(new: Object, old: Object) -> None:
    """Keep spec.finalizers: only the finalize subresource changes them."""
    keep("finalizers", new["spec"], old["spec"])


def keep_namespace_status(new: Object, old: Object) -> None:
    """Keep the status: the finalize subresource changes only metadata and spec.finalizers."""
    keep("status", new, old)


def label_namespace(new: Object) -> None:
    """Set the label with the name, also for a generated name."""
    new["metadata"].setdefault("labels", {})[NAMESPACE_LABEL] = new["metadata"]["name"]


def limits_default_to_empty(item: Object, name: str) -> bool:
    """Return whether a field of a LimitRange's item defaults to an empty map."""
    return name in ("default", "defaultRequest") and item.get("type") == "Container"


# -- secrets ----------------------------------------------------------------------------------------------------------


def keep_secret_type(new: Object, old: Object) -> None:
    """Keep the old type if the new Secret names none."""
    if not new.get("type"):
        keep("type", new, old)


def keep_names_of_secrets(new: Object) -> None:
    """Reduce the references of a service account to the names of its secrets."""
    if new.get("secrets"):
        new["secrets"] = [{"name": each["name"]} if each.get("name") else {} for each in new["secrets"]]


STRATEGIES: Final[Mapping[str, Strategy]] = {
    **node.STRATEGIES,
    **persistentvolume.STRATEGIES,
    **persistentvolumeclaim.STRATEGIES,
    **pod.STRATEGIES,
    **podtemplate.STRATEGIES,
    **service.STRATEGIES,
    "configmaps": Strategy(
        status=False,
        empties=("binaryData",),  # data is never nil: it defaults to an empty map
        validate=validation.config_map,
        validate_update=validation.config_map_update,
    ),
    "secrets": Strategy(
        status=False,
        empties=("data",),
        prepare_update=keep_secret_type,
        validate=validation.secret,
        validate_update=validation.secret_update,
        warnings=warnings.secret_warnings,
    ),
    "namespaces": Strategy(
        update_checks=(Check.METADATA, Check.OBJECT, Check.METADATA_CHANGE),
        names="label",
        prepare_create=prepare_new_namespace,
        prepare_update=keep_namespace_finalizers,
        canonicalize=label_namespace,
        validate=validation.namespace,
        returns_deleted=True,
        reset=(("status",),),
        subresources=MappingProxyType(
            {
                "status": status_update("spec", validate_update=validation.namespace_status),
                "finalize": SubresourceStrategy(
                    prepare=keep_namespace_status,
                    validate_update=validation.namespace_finalize,
                    reset=(("status",),),
                ),
            }
        ),
    ),
    "endpoints": Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.METADATA, Check.CHANGE),
        status=False,
        create_on_update=True,
        validate=validation.endpoints,
        validate_update=validation.endpoints_update,
        warnings=warnings.endpoints_warnings,
    ),
    "limitranges": Strategy(
        update_checks=(Check.METADATA, Check.OBJECT),
        prepare_create=name_limit_range,
        status=False,
        create_on_update=True,
        never_nil=limits_default_to_empty,
        validate=validation_quotas.limit_range,
    ),
    "replicationcontrollers": Strategy(
        pod_spec="spec.template.spec",
        names="long",
        defaults_again=True,
        update_checks=(Check.METADATA_CHANGE, Check.OBJECT, Check.CHANGE),
        generation=True,
        dependents=ORPHAN,
        validate=validation.replication_controller,
        warnings=named_template_warnings,
        subresources=MappingProxyType({"status": status_update("spec", validate_update=replica_set_status)}),
    ),
    "resourcequotas": Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        returns_deleted=True,
        validate=validation_quotas.quota,
        validate_update=validation_quotas.quota_update,
        subresources=MappingProxyType(
            {"status": status_update("spec", validate_update=validation_quotas.quota_status)}
        ),
    ),
    "serviceaccounts": Strategy(
        status=False,
        returns_deleted=True,
        prepare_create=keep_names_of_secrets,
        prepare_update=lambda new, old: keep_names_of_secrets(new),
        warnings=warnings.service_account_warnings,
    ),
}
